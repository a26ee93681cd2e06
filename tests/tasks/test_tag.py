"""Every word has a tag: in training, in scores and in answers, however long its sentence and however it is spelled."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from regard.check.consistency import checks
from regard.data.batch import IGNORED, BatchSpec
from regard.data.prepared import restored as restore
from regard.data.text import rows as reading
from regard.mistakes import mistakes
from regard.models.classifier import Tagger
from regard.nn.init import initialize
from regard.predictor import load as load_predictor
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run
from regard.tasks.base import Example, loss_per_token
from regard.tasks.tag import Tag, TaggedWords
from regard.tasks.traits import defaults, for_task
from regard.training.loop import train

KINDS = {"dog": "NOUN", "cat": "NOUN", "a": "DET", "the": "DET", "sees": "VERB", "walks": "VERB", "well": "ADV"}


def sentence(n: int) -> list[tuple[str, str]]:
    """Of two to ten words; "walk" is a noun after "the", and else a verb."""
    names = list(KINDS)
    words = [names[(n * n + 3 * i) % 7] for i in range(n % 9 + 1)]
    return [*((word, KINDS[word]) for word in words), *([("the", "DET"), ("walk", "NOUN")] if n % 2 else
                                                        [("walk", "VERB")])]


def written(numbers: range) -> str:
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence(n)) for n in numbers)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.conll").write_text(written(range(60)))
    (folder / "dev.conll").write_text(written(range(60, 75)) + "\nwalk\tGERUND\n")
    return folder


def tiny(data: Path | None, *overrides: str) -> Run:
    paths = [] if data is None else [f"data.paths={data}"]
    return for_task(None, ["model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0",
                           "tokens.vocabulary=300", "train.steps=2", "train.batch_tokens=64", "device=cpu", *paths,
                           *overrides],
                    base=defaults("tag", built_in=data is None))


def prepared(run: Run, folder: Path) -> tuple[Tag, Tagger]:
    task = Tag(run)
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


@pytest.fixture(scope="module")
def ready(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tag, Tagger]:
    return prepared(tiny(data), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run = tiny(data, "train.steps=150", "train.learning_rate=0.01", "train.warmup=10", "train.batch_tokens=512",
               "model.width=32", "train.precision=float32")
    train(run, folder / "run", quiet=True)
    return folder / "run"


# Words and tokens


def test_the_first_token_of_a_word_has_its_tag_and_the_others_have_none(ready: tuple[Tag, Tagger]) -> None:
    task, _ = ready
    [batch] = task.batches(["a dogcat walks"], ["DET NOUN VERB"])
    pieces = task.data.tokens.pieces(batch.tokens[0].tolist())
    tags = [task.data.labels[place] if place != IGNORED else None for place in batch.targets[0].tolist()]
    told = [(piece, tag) for piece, tag in zip(pieces, tags, strict=True) if tag]
    assert [piece[0] for piece, _ in told] == [" ", " ", " "]
    assert [tag for _, tag in told] == ["DET", "NOUN", "VERB"]
    assert batch.counts == {"loss": 3, "nll": 3}
    assert len(pieces) > 5


def test_a_batch_is_padded_with_what_counts_nothing(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    lengths = task.data.lengths("train")
    length = int(lengths[:3].max()) + 4
    batch = task.data.collate("train", BatchSpec(np.arange(3), 5, length))
    assert batch.tokens.shape == batch.targets.shape == (5, length)
    assert batch.counts["nll"] == int((batch.targets != IGNORED).sum()) == sum(len(sentence(n)) for n in range(3))
    alone = [task.data.collate("train", BatchSpec(np.array([n]), 1, int(lengths[n]))) for n in range(3)]
    whole = float(task.loss(model, batch)[1].total)
    assert whole == pytest.approx(sum(float(task.loss(model, one)[1].total) for one in alone), rel=1e-5)


def test_a_long_sentence_is_cut_for_the_loss_and_a_note_says_so(data: Path, tmp_path: Path) -> None:
    task, _ = prepared(tiny(data, "data.max_tokens=6"), tmp_path)
    assert task.data.lengths("train").max() == 6
    assert any("sentences cut to data.max_tokens=6 tokens for the loss" in note for note in task.notes)


@pytest.mark.parametrize("longest", [3, 4, 7, 12])
def test_every_word_of_a_long_sentence_has_a_tag(data: Path, tmp_path: Path, longest: int) -> None:
    task, model = prepared(tiny(data, f"data.max_tokens={longest}"), tmp_path)
    words = [word for n in range(20) for word, _ in sentence(n)]
    [answer] = task.predict(model, [" ".join(words)])
    assert [pair.rsplit("/", 1)[0] for pair in answer.text.split(" ")] == words
    assert all(pair.rsplit("/", 1)[1] in task.data.labels for pair in answer.text.split(" "))
    assert task.score(model, "val")["words"] == sum(len(sentence(n)) for n in range(60, 75)) + 1


def test_a_length_without_room_for_a_word_is_refused(data: Path) -> None:
    with pytest.raises(UserError, match=r"^data\.max_tokens=2: leaves no room for a word between start and end"):
        Tag(tiny(data, "data.max_tokens=2"))


def test_a_word_of_a_hundred_thousand_characters_has_one_tag(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    [answer] = task.predict(model, ["a " + "dog" * 33_334 + " walks"])
    assert len(answer.text.split(" ")) == len(answer.choices) == 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "bytes", "words"])
def test_every_kind_of_token_tags(data: Path, tmp_path: Path, kind: str) -> None:
    task, model = prepared(tiny(data, f"tokens.kind={kind}"), tmp_path)
    [answer] = task.predict(model, ["the dog été \x07 sees."])
    assert len(answer.choices) == 6
    assert task.score(model, "val")["sentences"] == 16


# Answers


def test_an_answer_does_not_depend_on_those_beside_it(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    texts = [" ".join(word for word, _ in sentence(n)) for n in range(30)]
    with patch.object(reading, "MAX_CPU_TOKENS", 64):
        together = task.predict(model, texts)
    for text, answer in zip(texts, together, strict=True):
        [alone] = task.predict(model, [text])
        assert alone.text == answer.text
        assert alone.score == pytest.approx(answer.score, abs=1e-5)


def test_each_word_has_its_likeliest_tags_with_probabilities(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    [answer] = task.predict(model, ["the dog walks."], search=replace(task.run.search, best=3))
    assert [choice.token for choice in answer.choices] == ["the", "dog", "walks", "."]
    for choice, pair in zip(answer.choices, answer.text.split(" "), strict=True):
        assert len(choice.best) == 3
        assert pair == f"{choice.token}/{choice.best[0][0]}"
        assert choice.probability == choice.best[0][1] == max(chance for _, chance in choice.best)
    [answer] = task.predict(model, ["the dog"], search=replace(task.run.search, best=99))
    assert sum(chance for _, chance in answer.choices[0].best) == pytest.approx(1, abs=1e-5)


def test_an_empty_text_has_no_words(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    assert [(answer.text, answer.choices) for answer in task.predict(model, ["", "  "])] == [("", ())] * 2


def test_other_tags_can_be_asked_about(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    [own] = task.choices(model, ["the walk"])
    [told] = task.choices(model, ["the walk"], ["NOUN VERB"])
    assert told.text == "the/NOUN walk/VERB"
    assert dict(own.choices[1].best)["VERB"] == told.choices[1].probability
    with pytest.raises(UserError, match="NUON: no such tag; the tags are ADV, DET, NOUN, VERB"):
        task.choices(model, ["the walk"], ["DET NUON"])


def test_what_is_looked_at_has_a_row_for_each_token(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    [record] = task.look(model, ["the dog"])
    labels = record.axes["encoder.blocks.0.self"]
    assert labels.targets == labels.sources == ("<s>", " the", " dog", "</s>")


# Scores


def test_scores_count_words(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    scores, examples = task.score(model, "val"), task.data.examples("val")
    given = [answer.split(" ") for answer in task.greedy_answers(model, examples)]
    wanted = [example.wanted.split(" ") for example in examples]
    right = [tag == said for pair in zip(wanted, given, strict=True) for tag, said in zip(*pair, strict=True)]
    assert scores["accuracy"] == sum(right) / len(right)
    assert scores["words"] == len(right)
    assert scores["sentences_right"] == sum(map(list.__eq__, wanted, given)) / len(wanted)
    per_tag = scores["accuracy_per_tag"]
    assert isinstance(per_tag, dict)
    words = Counter(tag for tags in wanted for tag in tags)
    assert set(per_tag) == set(words)
    assert sum(per_tag[tag] * words[tag] for tag in words) == pytest.approx(sum(right))


def test_the_loss_is_that_of_the_batches(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    examples = task.data.examples("val")
    batches = task.batches([example.input for example in examples], [example.wanted for example in examples])
    assert task.score(model, "val")["loss"] == pytest.approx(loss_per_token(task, model, batches), rel=1e-4)


def test_the_baseline_is_the_most_frequent_tag_of_each_word(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    seen = Counter(pair for n in range(60) for pair in sentence(n))
    walk = max(("NOUN", "VERB"), key=lambda tag: seen["walk", tag])
    pairs = [*(pair for n in range(60, 75) for pair in sentence(n)), ("walk", "GERUND")]
    right = sum(tag == (walk if word == "walk" else KINDS[word]) for word, tag in pairs)
    assert task.score(model, "val")["baseline"] == pytest.approx(right / len(pairs))


def test_a_tag_that_train_has_not_counts_as_wrong_and_is_noted(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    per_tag = task.score(model, "val")["accuracy_per_tag"]
    assert isinstance(per_tag, dict)
    assert per_tag["GERUND"] == 0
    assert any("1 of " in note and "such as GERUND: counted as wrong" in note for note in task.notes)
    assert "GERUND" not in task.data.labels


def test_a_split_of_other_tags_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(written(range(9)))
    (tmp_path / "test.conll").write_text("dog NN\n")
    with pytest.raises(UserError, match="test: train has none of its tags, such as NN; are they from the same"):
        Tag(tiny(tmp_path)).data.prepare(tmp_path / "run")


def test_a_file_of_one_tag_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("a X\n\nb X\n")
    with pytest.raises(UserError, match="at least two"):
        Tag(tiny(tmp_path)).data.prepare(tmp_path / "run")


def test_confusion_counts_the_words_whose_tags_are_known(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    found, scores = task.confusion(model, "val"), task.score(model, "val")
    assert found.counts.sum() + 1 == scores["words"]  # but for the gerund
    assert found.counts.trace() / scores["words"] == pytest.approx(scores["accuracy"])


@pytest.mark.parametrize("how", ["typos", "case", "length"])
def test_words_that_are_changed_keep_their_tags(ready: tuple[Tag, Tagger], how: str) -> None:
    task, model = ready
    name = task.data.shift("val", how, seed=0)
    for before, after in zip(task.data.of("val"), task.data.of(name), strict=True):
        assert len(after.text.split(" ")) == len(after.labels)
        assert after.labels == before.labels[: len(after.labels)]
    assert task.score(model, name)["sentences"] == 16


def test_words_of_another_file_are_tagged_and_a_space_inside_one_does_not_break(
        ready: tuple[Tag, Tagger], tmp_path: Path) -> None:
    task, model = ready
    (tmp_path / "more.conll").write_text("the dog\tNOUN\nwell\tADV\nwalks\tVERB\n\nwalk\tNOUN\n")
    [name] = task.data.add_test_data([tmp_path / "more.conll"])
    assert task.score(model, name)["words"] == 4
    assert task.data.of(task.data.shift(name, "length", seed=0))[0].labels == ("NOUN", "ADV")


# Whole runs


def test_a_run_learns_what_stands_around_a_word(trained: Path) -> None:
    predictor = load_predictor(trained)
    assert predictor.predict(["the walk", "a dog sees walk"]) == [
        "the/DET walk/NOUN", "a/DET dog/NOUN sees/VERB walk/VERB"]
    scores = json.loads((trained / "scores.json").read_text())["val"]
    assert scores["accuracy"] > scores["baseline"] + 0.05


def test_what_must_hold_of_every_model_holds(trained: Path) -> None:
    predictor = load_predictor(trained)
    found = list(checks(predictor.task.probe(predictor.model)))
    assert len(found) >= 4
    assert all(check.holds for check in found)


def test_mistakes_have_their_attention(trained: Path) -> None:
    predictor = load_predictor(trained)
    predictor.read_data()
    found = mistakes(predictor.task, predictor.model, "val")
    assert found.examples == 16
    gerund = next(mistake for mistake in found.worst if mistake.reference == "GERUND")
    assert gerund.attention is not None
    labels, weights = gerund.attention.axes, gerund.attention.weights
    assert labels.targets == ("<s>", " walk", "</s>")
    assert weights.shape == (len(labels.targets), len(labels.sources))


def test_examples_are_tagged_as_they_stand(trained: Path) -> None:
    predictor = load_predictor(trained)
    [answer] = predictor.task.greedy_answers(predictor.model, [Example("dog. ?! a", "NOUN ADV DET")])
    assert len(answer.split(" ")) == 3


def test_the_same_data_is_not_read_twice(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data), tmp_path)
    again = Tag(tiny(data))
    with patch.object(TaggedWords, "read", side_effect=AssertionError("read again")):
        again.data.prepare(tmp_path)
    assert again.score(model, "val") == task.score(model, "val")
    restored = Tag(tiny(data))
    restore(restored.data, tmp_path)
    assert restored.data.usual == task.data.usual


def test_the_built_in_data_has_its_tests(tmp_path: Path) -> None:
    task, model = prepared(tiny(None, "data.built_in_size=60"), tmp_path)
    assert task.data.splits() == ["train", "val", "test", "test_combinations"]
    assert task.data.examples("test", 1) == [Example("I am a student .", "PRON AUX DET NOUN PUNCT")]
    assert set(task.score(model, "test_combinations")) == {
        "loss", "accuracy", "baseline", "sentences_right", "words", "sentences", "accuracy_per_tag"}


@pytest.mark.slow
def test_a_bare_run_finds_nearly_all_parts_of_speech(tmp_path: Path) -> None:
    scores = train(load(None, ["device=cpu"], base=defaults("tag", built_in=True)), tmp_path / "run", quiet=True)
    for split in ("test", "test_combinations"):
        assert scores[split]["accuracy"] > 0.995
        assert scores[split]["baseline"] < 0.985


def test_a_vector_of_a_text_can_be_had(ready: tuple[Tag, Tagger]) -> None:
    task, model = ready
    with torch.no_grad():
        assert task.embed(model, ["the dog", "a cat walks."]).shape == (2, 16)


@torch.no_grad()
@pytest.mark.parametrize(("hidden", "activation"), [("gelu", torch.nn.functional.gelu), ("tanh", torch.tanh),
                                                    ("relu", torch.relu), ("none", None)])
def test_a_tag_is_read_from_a_token_through_the_hidden_layer_that_is_asked_for(
    data: Path, tmp_path: Path, hidden: str, activation: Callable[[torch.Tensor], torch.Tensor] | None
) -> None:
    _, model = prepared(tiny(data, f"model.head.hidden={hidden}"), tmp_path)
    tokens = torch.randint(3, 90, (2, 7))
    states = model.encoder(model.encoder.embed(tokens))
    weights = dict(model.head.named_parameters())
    assert ("hidden.weight" in weights) == (activation is not None)
    if activation is not None:
        states = activation(states @ weights["hidden.weight"].T + weights["hidden.bias"])
    torch.testing.assert_close(model(tokens), states @ weights["output.weight"].T + weights["output.bias"])


def test_the_hidden_layer_of_a_preset_is_that_of_whole_texts(data: Path) -> None:
    for preset in ("bert-base", "electra-small", "distilbert"):
        assert tiny(data, f"model.preset={preset}").model.head.hidden == "none"
        assert tiny(data, f"model.preset={preset}", "model.head.hidden=gelu").model.head.hidden == "gelu"
        plain = defaults("classify", built_in=False)
        assert for_task(None, [f"model.preset={preset}"], base=plain).model.head.hidden != "none"


def test_a_tagger_with_a_hidden_layer_answers_as_it_was_saved(data: Path, tmp_path: Path) -> None:
    train(tiny(data, "model.head.hidden=gelu"), tmp_path, quiet=True)
    predictor = load_predictor(tmp_path, device="cpu")
    assert "hidden.weight" in dict(predictor.model.head.named_parameters())
    assert len(predictor.predict(["the dog walks"])[0].split()) == 3
