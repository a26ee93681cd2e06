"""Features of a language model: a task goes on from a text read from both its ends, and learns what to make of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from killing import killed_at
from regard.check.consistency import checks
from regard.checkpoint import read_json
from regard.convert.import_export import read_run_model
from regard.data.batch import IGNORED, BatchSpec
from regard.data.prepared import restored
from regard.predictor import load as load_run
from regard.settings.errors import UserError
from regard.settings.load import from_json, load
from regard.settings.schema import Run
from regard.tasks import make
from regard.training.loop import train
from regard.verbs.train import settled

NOUNS, VERBS = ("cat", "dog", "bird", "fish", "horse", "mouse"), ("sees", "hears", "likes", "meets")
SENTENCES = [f"the {a} {verb} a {b}" for a in NOUNS for verb in VERBS for b in NOUNS]
TAGS = ("DET", "NOUN", "VERB", "DET", "NOUN")
SHORT = ("train.steps=4", "train.batch_tokens=64", "train.warmup=1", "train.save_every=2", "train.evaluate_every=2",
         "device=cpu", "train.precision=float32", "search.max_tokens=4")
SMALL = ("model.preset=elmo", "model.width=16", "data.max_tokens=16", "tokens.vocabulary=300", *SHORT)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[::3]))
    return path


@pytest.fixture(scope="module")
def source(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "run"
    train(settled("language", [text], None, None, None, SMALL), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of some of the words, and others of the others."""
    folder = tmp_path_factory.mktemp("tagged")
    known = {"the", "a", *NOUNS[:3], *VERBS[:2]}
    some_words = [sentence for sentence in SENTENCES if known.issuperset(sentence.split())]
    other_words = [sentence for sentence in SENTENCES if len(known.intersection(sentence.split())) == 2]
    for split, some in (("train", some_words), ("val", other_words)):
        rows = ["".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.split(), TAGS, strict=True))
                for sentence in some]
        (folder / f"{split}.conll").write_text("\n".join(rows))
    return folder


def tuned(tagged: Path, source: Path, *overrides: str) -> Run:
    return settled("tag", [tagged], None, None, None, [*SHORT, f"train.init_from={source}", *overrides])


def tensors(folder: Path) -> dict[str, Tensor]:
    return read_run_model(folder, from_json(read_json(folder / "run.json")))[1]


def body(folder: Path) -> dict[str, Tensor]:
    """By the names that a language model has."""
    return {name.removeprefix("encoder.").removeprefix("inputs."): tensor for name, tensor in tensors(folder).items()
            if not name.startswith(("encoder.over.", "head."))}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# The language models.


@pytest.mark.parametrize("start", [None, 8])
def test_the_loss_is_that_of_both_ways_and_the_perplexity_that_of_the_way_forth(
    source: Path, start: int | None
) -> None:
    """`start`: where another text begins. What stands before it is not to be told."""
    task = make(load(source / "run.json"))
    model = task.build(restored(task.data, source)).eval()
    model.load_state_dict(tensors(source), strict=False)
    batch = task.data.collate("train", BatchSpec(np.arange(3), 4, 16))  # one row is missing
    if start is not None:
        batch.read[:, start], batch.write[:, start - 1] = task.data.tokens.start, IGNORED
    with torch.no_grad():
        loss, nll = (float(term.total) for term in task.loss(model, batch))
        forth = model.logits(model(model.embed(batch.read))).log_softmax(-1)
        back = model.logits(model.hindsight(batch.read)).log_softmax(-1)
    wanted, there, told = 0.0, 0.0, 0
    for row, place in (batch.write != IGNORED).nonzero().tolist():
        wanted -= float(forth[row, place, batch.write[row, place]])
        if place + 1 < 16:  # the same two neighbours, the other way round
            there -= float(back[row, place + 1, batch.read[row, place]])
            told += 1
    assert told == 3 * 15 - 3 * (start is not None)
    assert nll == pytest.approx(wanted, rel=1e-5)
    assert loss == pytest.approx(wanted + there, rel=1e-5)


def test_a_language_model_of_two_ways_goes_on_with_another_text(source: Path, text: Path, tmp_path: Path) -> None:
    run = settled("language", [text], None, None, None, [*SHORT, f"train.init_from={source}"])
    assert run.model == load(source / "run.json").model
    train(run, tmp_path, quiet=True)
    assert not any(torch.equal(tensor, tensors(source)[name]) for name, tensor in tensors(tmp_path).items())


# What a task takes over, and what learns.


def test_a_tagger_starts_with_the_language_models_as_they_are(
    tagged: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tuned(tagged, source, "train.trainable=head"), tmp_path)
    assert same(body(tmp_path), body(source))
    assert (tmp_path / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    said = capsys.readouterr().err
    new = {name: tensor.numel() for name, tensor in tensors(tmp_path).items() if name.startswith("encoder.over.")}
    assert f"from {source}; new: encoder.over ({sum(new.values()):,}), head.output (51)" in said
    assert {"encoder.over.mix.scores", "encoder.over.mix.scale"} < new.keys()


def test_with_head_the_features_stay_and_all_over_them_learns(tagged: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(tagged, source, "train.trainable=head"), tmp_path / "long", quiet=True)
    train(tuned(tagged, source, "train.trainable=head", "train.learning_rate=1e-30"), tmp_path / "still", quiet=True)
    still, after = tensors(tmp_path / "still"), tensors(tmp_path / "long")
    moved = {name for name in after if not torch.equal(still[name], after[name])}
    assert moved == {name for name in after if name.startswith(("encoder.over.", "head."))}


def test_with_all_the_features_learn_too(tagged: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(tagged, source), tmp_path, quiet=True)
    before, after = body(source), body(tmp_path)
    assert not any(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("task", ["language", "tag"])
def test_a_killed_run_ends_as_if_it_had_not_been(
    text: Path, tagged: Path, source: Path, tmp_path: Path, task: str
) -> None:
    run = settled("language", [text], None, None, None, SMALL) if task == "language" else tuned(
        tagged, source, "train.trainable=head")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sums on a CPU depend on the number of threads
    train(run, tmp_path / "whole", quiet=True)
    with killed_at(3):
        train(run, tmp_path / "killed", quiet=True)
    train(run, tmp_path / "killed", quiet=True)
    torch.set_num_threads(before)
    for name in ("model.safetensors", "checkpoints/step-00000004/optimizer.safetensors", "scores.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("task", ["language", "tag"])
def test_all_that_is_checked_of_a_model_holds(source: Path, tagged: Path, tmp_path: Path, task: str) -> None:
    if task == "tag":
        train(tuned(tagged, source), tmp_path, quiet=True)
    predictor = load_run(source if task == "language" else tmp_path, device="cpu")
    found = list(checks(predictor.task.probe(predictor.model)))
    assert len(found) == (8 if task == "language" else 2)
    assert all(check.holds for check in found), found


def test_characters_are_tokens_like_others(text: Path, tagged: Path, tmp_path: Path) -> None:
    run = settled("language", [text], None, None, None, [*SMALL, "tokens.kind=characters", "data.max_tokens=48"])
    train(run, tmp_path / "language", quiet=True)
    train(tuned(tagged, tmp_path / "language", "train.trainable=head"), tmp_path / "tag", quiet=True)
    (answer,) = load_run(tmp_path / "tag", device="cpu").predict(["the cat sees a dog"])
    assert [word.partition("/")[0] for word in answer.split(" ")] == ["the", "cat", "sees", "a", "dog"]


def test_a_classifier_goes_on_from_both_ways_too(source: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"the {'cat' if n % 2 else 'dog'} {n}\t{n % 2}\n" for n in range(40)))
    run = settled("classify", [tmp_path / "a.tsv"], None, None, None,
                  [*SHORT, f"train.init_from={source}", "train.trainable=head"])
    train(run, tmp_path / "run", quiet=True)
    assert same(body(tmp_path / "run"), body(source))
    assert len(load_run(tmp_path / "run", device="cpu").embed(["the cat"])[0]) == 16


# What does not go.


def test_a_language_model_that_reads_forth_alone_is_no_encoder(text: Path, tagged: Path, tmp_path: Path) -> None:
    run = settled("language", [text], None, None, None, [*SMALL, "model.recurrent.direction=forward", "train.steps=1"])
    train(run, tmp_path, quiet=True)
    with pytest.raises(UserError, match="its model is of the task language, and tag needs an encoder"):
        tuned(tagged, tmp_path)


def test_adapters_are_for_blocks_that_attend(tagged: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.trainable=lora: .* none of train\.lora\.targets=q,v"):
        train(tuned(tagged, source, "train.trainable=lora"), tmp_path, quiet=True)


# What it is good for.


@pytest.mark.slow
def test_words_that_were_never_tagged_are_known_by_more_than_their_letters(
    text: Path, tagged: Path, tmp_path: Path
) -> None:
    long = ("train.steps=100", "train.batch_tokens=512", "train.learning_rate=1e-2", "train.evaluate_every=50")
    train(settled("language", [text], None, None, None, [*SMALL, *long]), tmp_path / "language", quiet=True)
    scores = train(tuned(tagged, tmp_path / "language", "train.trainable=head", *long), tmp_path / "tag", quiet=True)
    assert scores["val"]["accuracy"] > 0.9
    assert scores["val"]["baseline"] < 0.9  # each word's most frequent tag
