"""From files to batches to a loss to translations, whatever the batch, the padding and the tokens."""

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batch import BatchSampler, BatchSpec
from regard.data.prepared import restored
from regard.data.text import parallel_corpus as module
from regard.data.text.parallel_corpus import ParallelBatch
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.predictor import load as load_predictor
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run
from regard.tasks.base import Example
from regard.tasks.translate import Translate
from regard.training.loop import train

WORDS = ["chat", "chien", "maison", "arbre", "fleur", "livre", "table", "homme", "femme", "enfant"]
LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=200).map(np.array)


def tiny(data: Path, *overrides: str) -> Run:
    return load(None, ["model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0", "tokens.vocabulary=300",
                       "train.steps=2", "train.batch_tokens=64", "search.max_tokens=8", "device=cpu",
                       f"data.paths={data}", *overrides])  # fmt: skip


def sentence(n: int) -> str:
    """Of one to nine words, so that batches have rows of many lengths."""
    return " ".join(WORDS[(n * n + i) % 10] for i in range(n % 9 + 1))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, numbers in (("train", range(40)), ("val", range(40, 46))):
        lines = (f"{sentence(n)} {n}\t{n} {sentence(n + 1)}\n" for n in numbers)
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def prepared(run: Run, folder: Path) -> tuple[Translate, EncoderDecoder]:
    task = Translate(run)
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


def test_published_tokens_are_refused(data: Path) -> None:
    with pytest.raises(UserError, match=r"^tokens\.file=there: pairs of texts have tokens learned from"):
        Translate(tiny(data, "tokens.file=there"))


@pytest.fixture(scope="module")
def translator(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Translate, EncoderDecoder]:
    return prepared(tiny(data), tmp_path_factory.mktemp("run"))


def plan(task: Translate, seed: int = 0) -> BatchSampler:
    return BatchSampler(task.data.lengths("train"), tokens=64, seed=seed)


def same(a: ParallelBatch, b: ParallelBatch) -> bool:
    return a.counts == b.counts and all(torch.equal(x, b.tensors()[name]) for name, x in a.tensors().items())


# Batches.


@given(LENGTHS, st.integers(8, 2000), st.integers(0, 5))
def test_every_example_comes_once_in_every_epoch(lengths: np.ndarray, tokens: int, epoch: int) -> None:
    whole = BatchSampler(lengths, tokens=tokens, seed=1)
    steps = range(epoch * whole.steps_per_epoch, (epoch + 1) * whole.steps_per_epoch)
    met = Counter(index for step in steps for index in whole[step].indices.tolist())
    assert met == Counter(range(len(lengths)))


@given(LENGTHS, st.integers(8, 2000))
def test_every_example_fits_its_batch_and_every_batch_its_tokens(lengths: np.ndarray, tokens: int) -> None:
    whole = BatchSampler(lengths, tokens=tokens, seed=1)
    for step in range(whole.steps_per_epoch):
        chosen = whole[step]
        assert 0 < len(chosen.indices) <= chosen.rows
        assert lengths[chosen.indices].max() <= chosen.length
        assert chosen.rows * chosen.length <= max(tokens, chosen.length)
        assert (chosen.rows, chosen.length) in whole.shapes


@given(LENGTHS, st.integers(0, 9), st.permutations(range(12)))
def test_a_batch_depends_on_the_seed_and_the_step_alone(lengths: np.ndarray, seed: int, order: list[int]) -> None:
    first, again = (BatchSampler(lengths, tokens=256, seed=seed) for _ in range(2))
    expected = [first[step].indices.tolist() for step in range(12)]
    assert {step: again[step].indices.tolist() for step in order} == dict(enumerate(expected))


def test_another_seed_and_another_epoch_have_another_order(translator: tuple[Translate, EncoderDecoder]) -> None:
    one, other = plan(translator[0], seed=0), plan(translator[0], seed=1)
    epoch = range(one.steps_per_epoch)
    first = [one[step].indices.tolist() for step in epoch]
    assert first != [one[len(epoch) + step].indices.tolist() for step in epoch]
    assert first != [other[step].indices.tolist() for step in epoch]


def test_two_processes_make_the_same_batches(data: Path, tmp_path: Path) -> None:
    (first, _), (again, _) = (prepared(tiny(data), tmp_path / name) for name in ("a", "b"))
    for step in (7, 0, 3):
        assert same(first.data.collate("train", plan(first)[step]), again.data.collate("train", plan(again)[step]))


@given(LENGTHS, st.integers(1, 9), st.integers(0, 20))
def test_the_shares_of_all_ranks_make_up_the_batch(lengths: np.ndarray, size: int, step: int) -> None:
    whole = BatchSampler(lengths, tokens=512, seed=0)[step]
    shares = [whole.share(rank, size) for rank in range(size)]
    assert Counter(index for share in shares for index in share.indices.tolist()) == Counter(whole.indices.tolist())
    assert len({(share.rows, share.length) for share in shares}) == 1  # or the ranks would wait for each other
    assert all(len(share.indices) <= share.rows for share in shares)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_losses_of_all_ranks_add_up_to_the_batch_s(translator: tuple[Translate, EncoderDecoder], size: int) -> None:
    task, model = translator
    whole = plan(task)[1]
    shares = [task.data.collate("train", whole.share(rank, size)) for rank in range(size)]
    assert sum(share.counts["loss"] for share in shares) == task.data.collate("train", whole).counts["loss"]
    together = task.data.collate("train", whole)
    assert losses(task, model, *shares) == pytest.approx(losses(task, model, together), rel=1e-5)


def losses(task: Translate, model: EncoderDecoder, *batches: ParallelBatch) -> list[float]:
    """The sums over all batches of each term."""
    terms = [[float(term.total.detach()) for term in task.loss(model, batch)] for batch in batches]
    return [sum(column) for column in zip(*terms, strict=True)]


def test_a_batch_holds_its_examples_and_else_padding(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, _ = translator
    batch = task.data.collate("train", BatchSpec(np.array([3, 8]), rows=5, length=24))
    assert {name: tuple(tensor.shape) for name, tensor in batch.tensors().items()} == dict.fromkeys(
        ("source", "read", "write"), (5, 24))
    sources, targets = task.data.ids["train"]
    pad, start = task.data.target_tokens.pad, task.data.target_tokens.start
    for row, index in enumerate((3, 8)):
        source, target = sources[index].tolist(), targets[index].tolist()
        assert source[-1] == target[-1] == task.data.target_tokens.end
        assert batch.source[row].tolist() == source + [pad] * (24 - len(source))
        assert batch.write[row].tolist() == target + [pad] * (24 - len(target))
        assert batch.read[row, : len(target)].tolist() == [start, *target[:-1]]
    assert (batch.source[2:] == pad).all()
    assert (batch.write[2:] == pad).all()
    assert batch.counts == {"loss": len(targets[3]) + len(targets[8]), "nll": len(targets[3]) + len(targets[8])}


# Loss.


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_the_loss_of_a_batch_is_the_sum_over_its_pieces(
    translator: tuple[Translate, EncoderDecoder], count: int
) -> None:
    task, model = translator
    batch = task.data.collate("train", next(spec for spec in map(plan(task).__getitem__, range(9)) if spec.rows >= 4))
    assert losses(task, model, *batch.pieces(count)) == pytest.approx(losses(task, model, batch), rel=1e-5)


@settings(max_examples=20)
@given(rows=st.integers(0, 4), length=st.integers(0, 40))
def test_padding_changes_no_loss(translator: tuple[Translate, EncoderDecoder], rows: int, length: int) -> None:
    task, model = translator
    tight = BatchSpec(np.array([1, 2, 3]), rows=3, length=int(task.data.lengths("train")[1:4].max()))
    loose = replace(tight, rows=tight.rows + rows, length=tight.length + length)
    one, other = (losses(task, model, task.data.collate("train", chosen)) for chosen in (tight, loose))
    assert other == pytest.approx(one, rel=1e-5)


def test_without_smoothing_the_loss_is_the_likelihood(translator: tuple[Translate, EncoderDecoder], data: Path) -> None:
    task, model = translator
    batch = task.data.collate("train", plan(task)[0])
    plain = Translate(tiny(data, "train.label_smoothing=0"))
    plain.data.source_tokens, plain.data.target_tokens = task.data.source_tokens, task.data.target_tokens
    loss, nll = losses(plain, model, batch)
    assert loss == pytest.approx(nll, rel=1e-6)
    assert nll == pytest.approx(losses(task, model, batch)[1], rel=1e-6)
    logits = model.logits(model(batch.source[:1], batch.read[:1]))
    assert logits.shape[-1] % 64 == 0  # what matrix units want


# Translations.

TEXTS = [sentence(n) for n in (0, 8, 3, 17, 5, 2)] + ["chat " * 40]


@pytest.mark.parametrize("search", [{}, {"max_tokens": 256}, {"beam": 1}, {"batch": 2}, {"best": 3, "max_tokens": 20},
                                    {"no_repeat_ngram": 2}, {"length_penalty": 0.0}], ids=str)
def test_a_text_s_translation_does_not_depend_on_its_batch(
    translator: tuple[Translate, EncoderDecoder], search: dict[str, float]
) -> None:
    task, model = translator
    how = replace(task.run.search, **search)
    together = task.predict(model, TEXTS, search=how)
    alone = [task.predict(model, [text], search=how)[0] for text in TEXTS]
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert [o.text for o in one.others] == [o.text for o in other.others]
        assert len(one.others) == search.get("best", 1) - 1


def test_a_text_s_translation_does_not_depend_on_its_place(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, model = translator
    assert task.predict(model, TEXTS[::-1]) == task.predict(model, TEXTS)[::-1]


def test_no_text_has_no_translation_and_an_empty_one_an_empty_one(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, model = translator
    assert task.predict(model, []) == []
    assert [answer.text for answer in task.predict(model, ["", " ", "\u3000"])] == ["", "", ""]


def test_a_translation_holds_only_tokens_of_the_target(translator: tuple[Translate, EncoderDecoder]) -> None:
    """The ids that only round the vocabulary up, the padding and the start are never written."""
    task, model = translator
    how = replace(task.run.search, temperature=50.0, max_tokens=64)
    rows = [task.data.ids["train"][0][i] for i in range(20)]
    drawn = [token for found in task._generate(model, rows, 64, how) for token in found[0].tokens]
    assert task.data.target_tokens.end < min(drawn)
    assert max(drawn) < len(task.data.target_tokens) < model.decoder.output.out_features


def test_a_drawn_translation_is_the_same_alone_and_among_others(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, model = translator
    texts = [f"{sentence(n)} {n}" for n in range(12)]
    how = replace(task.run.search, temperature=2.0, top_k=50, min_p=0.001, best=3, repetition_penalty=1.1,
                  max_tokens=12)
    together = task.predict(model, texts, search=how)
    for text, answer in zip(texts, together, strict=True):
        [alone] = task.predict(model, [text], search=how)
        assert (alone.text, [other.text for other in alone.others]) == (
            answer.text, [other.text for other in answer.others])
        assert len({alone.text, *(other.text for other in alone.others)}) == 3


def test_a_translation_ends_before_a_stop_text(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, model = translator
    [whole] = task.predict(model, [sentence(1)])
    stop = whole.text[2:4]
    [answer] = task.predict(model, [sentence(1)], search=replace(task.run.search, stop=(stop,)))
    assert answer.text == whole.text[: whole.text.index(stop)]


# Other data.


def test_pairs_score_the_same_whether_they_are_the_runs_own_or_others(
        translator: tuple[Translate, EncoderDecoder], data: Path, tmp_path: Path) -> None:
    task, model = translator
    pairs = [line.split("\t") for line in (data / "val.tsv").read_text(encoding="utf-8").splitlines()]
    for side, ending in enumerate(("fr", "en")):
        (tmp_path / f"new.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    names = task.data.add_test_data([data / "val.tsv", tmp_path / "new.fr", tmp_path / "new.en"])
    assert names == [str(data / "val.tsv"), f"{tmp_path / 'new.fr'} {tmp_path / 'new.en'}"]
    assert [task.score(model, name) for name in names] == 2 * [task.score(model, "val")]


def test_a_run_that_was_told_one_language_knows_the_other_by_its_data(tmp_path: Path) -> None:
    for folder, languages in (("old", ("de", "en")), ("new", ("cs", "de", "en"))):
        (tmp_path / folder).mkdir()
        for language in languages:
            for split in ("train", "test"):
                (tmp_path / folder / f"{split}.{language}").write_text(f"{language} {folder}\n" * 8)
    run = tiny(tmp_path / "old", "data.source=de")
    prepared(run, tmp_path / "run")
    (tmp_path / "old").rename(tmp_path / "gone")
    task = Translate(run)
    restored(task.data, tmp_path / "run")
    (name,) = task.data.add_test_data([tmp_path / "new"])
    assert task.data.examples(name, 1) == [Example("de new", "en new")]
    (name,) = task.data.add_test_data([tmp_path / "new"], source="cs")
    assert task.data.examples(name, 1) == [Example("cs new", "en new")]


def test_a_run_from_before_languages_were_kept_is_measured_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for language in ("de", "en"):
        (tmp_path / "data" / f"train.{language}").write_text(f"{language}\n" * 8)
        (tmp_path / "data" / f"test.{language}").write_text(f"{language}\n")
    run = tiny(tmp_path / "data", "data.source=de")
    prepared(run, tmp_path / "run")
    key = tmp_path / "run" / "data" / "key.json"
    key.write_text(json.dumps({name: value for name, value in json.loads(key.read_text()).items() if name != "sides"}))
    task = Translate(run)
    restored(task.data, tmp_path / "run")
    (name,) = task.data.add_test_data([tmp_path / "data"])
    assert task.data.examples(name) == [Example("de", "en")]


# What is kept on the disk.


def test_the_ids_are_read_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = prepared(tiny(data), tmp_path)
    monkeypatch.setattr(module, "read_pairs", None)
    monkeypatch.setattr(module.tokenizers, "train", None)
    again, _ = prepared(tiny(data, "train.steps=9"), tmp_path)
    assert again.notes == first.notes
    assert again.data.splits() == first.data.splits() == ["train", "val"]
    one, other = ([list(map(list, side)) for side in each.data.ids["train"]] for each in (again, first))
    assert one == other
    assert again.data.pairs == first.data.pairs


def test_the_ids_are_read_again_when_the_data_changes(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    copy.mkdir()
    for file in data.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    run = tiny(copy / "train.tsv")  # val.tsv comes along because it lies beside
    assert len(prepared(run, tmp_path / "run")[0].data.lengths("train")) == 40
    for name, split in (("train.tsv", "train"), ("val.tsv", "val")):
        before = len(prepared(run, tmp_path / "run")[0].data.lengths(split))
        with open(copy / name, "a", encoding="utf-8") as file:
            file.write("neuf\tnew\n")
        assert len(prepared(run, tmp_path / "run")[0].data.lengths(split)) == before + 1
    replaced = (copy / "train.tsv").read_bytes().replace(b"neuf", b"vert")  # as long as before
    (copy / "train.tsv").write_bytes(replaced)
    os.utime(copy / "train.tsv", (1, 1))
    task, _ = prepared(run, tmp_path / "run")
    assert task.data.source_tokens.decode([task.data.ids["train"][0][-1].tolist()]) == ["vert"]


def test_the_ids_are_read_again_when_the_tokens_change(data: Path, tmp_path: Path) -> None:
    prepared(tiny(data), tmp_path)
    task, _ = prepared(tiny(data, "tokens.kind=bytes"), tmp_path)
    assert len(task.data.target_tokens) == 259


def test_a_cache_that_was_not_finished_is_made_anew(data: Path, tmp_path: Path) -> None:
    prepared(tiny(data), tmp_path)
    with patch.object(module.Ragged, "save", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        prepared(tiny(data, "tokens.kind=bytes"), tmp_path)  # stopped between the tokenizer and the ids
    task, _ = prepared(tiny(data), tmp_path)
    assert len(task.data.target_tokens) != 259


# End to end.


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "bytes", "words"])
def test_every_kind_of_token_trains_and_translates(data: Path, tmp_path: Path, kind: str, joint: bool) -> None:
    run = tiny(data, f"tokens.kind={kind}", f"tokens.joint={joint}", "search.beam=2")
    scores = train(run, tmp_path / "run", quiet=True)
    assert scores["val"]["sentences"] == 6
    predictor = load_predictor(tmp_path / "run", device="cpu")
    translations = predictor.predict(TEXTS)
    assert len(translations) == len(TEXTS)
    assert predictor.evaluate("val") == scores["val"]


def test_two_vocabularies_share_no_matrix_even_of_one_size(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("un deux trois\tone two three\n" * 8, encoding="utf-8")
    (tmp_path / "val.tsv").write_text("un\tone\n", encoding="utf-8")
    task, model = prepared(tiny(tmp_path, "tokens.joint=false"), tmp_path / "run")
    assert model.encoder.inputs.tokens.table.weight.shape == model.decoder.tokens.table.weight.shape
    assert model.encoder.inputs.tokens.table.weight is not model.decoder.tokens.table.weight
    assert model.decoder.tokens.table.weight is model.decoder.output.weight
    assert task.data.source_tokens.encode(["deux"]) != task.data.target_tokens.encode(["deux"])


def test_a_joint_vocabulary_has_one_matrix(translator: tuple[Translate, EncoderDecoder]) -> None:
    task, model = translator
    assert task.data.source_tokens.encode(TEXTS) == task.data.target_tokens.encode(TEXTS)
    assert model.encoder.inputs.tokens.table.weight is model.decoder.output.weight


def test_lower_case_is_folded_on_the_way_in(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data, "tokens.lowercase=true"), tmp_path)
    assert task.predict(model, ["CHAT Chien"]) == task.predict(model, ["chat chien"])


def test_what_is_looked_at_together_is_what_is_looked_at_alone(
        translator: tuple[Translate, EncoderDecoder], monkeypatch: pytest.MonkeyPatch) -> None:
    task, model = translator
    inputs, outputs = [sentence(n) for n in (3, 8, 1, 5)], [sentence(n) for n in (8, 0, 4, 5)]
    together = task.look(model, inputs, outputs)
    monkeypatch.setattr(module, "MAX_WATCHED_WEIGHTS", 1)
    for record, alone in zip(together, task.look(model, inputs, outputs), strict=True):
        assert record.axes == alone.axes
        for site, weights in record.items():
            np.testing.assert_allclose(weights, alone[site], rtol=1e-4, atol=1e-6)


def test_greedy_choices_along_an_answer_are_the_answer(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data, "search.beam=1"), tmp_path)
    inputs = [sentence(n) for n in range(4)]
    sources = task.data.encode(task.data.source_tokens, inputs, "inputs")
    for source, [answer] in zip(sources, task._generate(model, list(sources), 8, task.run.search), strict=True):
        batch = task.data._padded([source], [answer.tokens], rows=1, source_length=20, target_length=20)
        said = len(answer.tokens)
        assert task.matches_greedy(model, batch)[0].tolist() == [True] * said + [False] * (20 - said)
