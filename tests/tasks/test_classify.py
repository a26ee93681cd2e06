"""classify: the loss and the scores are what they are defined as, and an answer is a label with its probability."""

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

from regard.check.consistency import checks
from regard.data.batch import BatchSampler, BatchSpec
from regard.data.labelled import Sample
from regard.data.text.labelled_text import LabelBatch
from regard.look.metrics import ClassificationMetrics, f1
from regard.mistakes import mistakes
from regard.predictor import Predictor
from regard.predictor import load as load_anywhere
from regard.settings.errors import UserError
from regard.settings.load import load as settings
from regard.settings.schema import Run
from regard.tasks.classify import Classify
from regard.tasks.traits import defaults
from regard.training.loop import train

TINY = ["model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "tokens.vocabulary=300",
        "train.batch_tokens=512", "train.steps=40", "train.warmup=5", "train.learning_rate=0.01", "data.max_tokens=16",
        "device=cpu", "train.precision=float32"]  # fmt: skip
COLOURS = ("red", "green", "blue")


def run_of(data: Path | None, *more: str) -> Run:
    paths = [] if data is None else [f"data.paths={data}"]
    return settings(None, [*TINY, *paths, *more], base=defaults("classify", built_in=data is None))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns which colour a text names."""
    folder = tmp_path_factory.mktemp("one")
    rows = [(f"the {colour} {thing} number {n}", colour) for n in range(12) for colour in COLOURS
            for thing in ("car", "house")]
    (folder / "colours.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    train(run_of(folder / "colours.tsv"), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns all colours that a text names."""
    folder = tmp_path_factory.mktemp("many")
    texts = [(f"{' and '.join(named)} things number {n}" if named else f"some things number {n}", named)
             for n in range(12) for named in (("red",), ("red", "blue"), ("green",), (), ("blue", "green"))]
    (folder / "colours.jsonl").write_text(
        "".join(json.dumps({"text": text, "labels": named}) + "\n" for text, named in texts))
    train(run_of(folder / "colours.jsonl", "data.multi_label=true", "train.steps=80"), folder / "run", quiet=True)
    return folder / "run"


load = partial(load_anywhere, device="cpu")  # where the batches of these tests lie


# Learning.


def test_a_classifier_learns_the_word_that_decides(one: Path) -> None:
    predictor = load(one)
    assert predictor.predict(["the red house", "a blue car", "green"]) == ["red", "blue", "green"]
    scores = predictor.evaluate("val")
    assert scores["accuracy"] == scores["macro_f1"] == 1.0
    assert scores["examples"] == 6
    assert next(iter(scores)) == "accuracy"  # what a list of runs shows


def test_a_text_may_have_several_labels_or_none(many: Path) -> None:
    predictor = load(many)
    assert predictor.predict(["blue and green things number 3", "some things number 4", "red things number 5"]) == [
        "blue, green", "", "red"]
    scores = predictor.evaluate("val")
    assert scores["exact_match"] == scores["micro_f1"] == scores["macro_f1"] == 1.0


# The loss.


def a_batch(task: Classify, split: str = "val") -> LabelBatch:
    chosen = BatchSampler(task.data.lengths(split), tokens=512, seed=0)[0]
    # Three rows are empty.
    return task.data.collate(split, BatchSpec(chosen.indices, len(chosen.indices) + 3, chosen.length))


def logits(predictor: Predictor, batch: LabelBatch) -> Tensor:
    """Of each row by itself, without padding."""
    pad = predictor.task.data.tokens.pad
    return torch.cat([predictor.model(row[row != pad][None]) for row in batch.tokens if (row != pad).any()])


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_of_one_label_is_its_cross_entropy(one: Path, smoothing: float) -> None:
    predictor = load(one)
    predictor.read_data()
    predictor.task.run = run_of(one.parent / "colours.tsv", f"train.label_smoothing={smoothing}")
    batch = a_batch(predictor.task)
    logs = logits(predictor, batch).log_softmax(-1)
    targets = batch.targets[: len(logs), 0]
    own, spread = -logs[torch.arange(len(logs)), targets], -logs.mean(1)
    terms = {term.name: float(term.total) for term in predictor.task.loss(predictor.model, batch)}
    assert batch.counts == {"loss": len(logs), "nll": len(logs)}
    assert terms["nll"] == pytest.approx(float(own.sum()), rel=1e-4)
    assert terms["loss"] == pytest.approx(float(((1 - smoothing) * own + smoothing * spread).sum()), rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_of_several_labels_is_the_sum_of_their_decisions(many: Path, smoothing: float) -> None:
    predictor = load(many)
    predictor.read_data()
    predictor.task.run = run_of(many.parent / "colours.jsonl", "data.multi_label=true",
                                f"train.label_smoothing={smoothing}")
    batch = a_batch(predictor.task)
    chances = logits(predictor, batch).double().sigmoid()
    wanted = batch.targets[: len(chances)].double()
    terms = {term.name: float(term.total) for term in predictor.task.loss(predictor.model, batch)}

    def entropy(target: Tensor) -> float:
        return float(-(target * chances.log() + (1 - target) * (1 - chances).log()).sum())

    assert batch.counts["loss"] == wanted.numel()
    assert terms["nll"] == pytest.approx(entropy(wanted), rel=1e-4)
    assert terms["loss"] == pytest.approx(entropy((1 - smoothing) * wanted + smoothing / 2), rel=1e-4)


# The scores.


def by_hand(wanted: list[str], given: list[str]) -> tuple[float, float]:
    """Accuracy and macro-F1 by counting."""
    scores = []
    for label in {*wanted, *given}:
        right = sum(w == g == label for w, g in zip(wanted, given, strict=True))
        precision = right / max(1, given.count(label))
        recall = right / max(1, wanted.count(label))
        scores.append(2 * precision * recall / max(1e-12, precision + recall))
    return sum(w == g for w, g in zip(wanted, given, strict=True)) / len(wanted), sum(scores) / len(scores)


def test_accuracy_and_macro_f1_are_what_counting_gives() -> None:
    random = np.random.default_rng(0)
    names = ["a", "b", "c", "never"]
    wanted, given = random.integers(0, 3, 50), random.integers(0, 3, 50)
    logs = np.log(np.where(np.arange(4) == given[:, None], 0.7, 0.1))
    judged = ClassificationMetrics(names, logs, np.log1p(-np.exp(logs)), np.arange(4) == wanted[:, None], several=False)
    accuracy, macro = by_hand([names[i] for i in wanted], [names[i] for i in given])
    scores = judged.scores()
    assert scores["accuracy"] == pytest.approx(accuracy)
    assert scores["macro_f1"] == pytest.approx(macro)
    assert scores["loss"] == pytest.approx(-np.where(wanted == given, math.log(0.7), math.log(0.1)).mean())
    assert math.isnan(f1(judged.wanted, judged.given)[3])  # nothing is known of a label that never occurs


def test_of_several_labels_matches_are_whole_and_f1_counts_each() -> None:
    wanted = np.array([[True, True], [False, False], [True, False]])
    chances = np.array([[0.9, 0.2], [0.1, 0.4], [0.8, 0.6]])
    scores = ClassificationMetrics(["a", "b"], np.log(chances), np.log(1 - chances), wanted, several=True).scores()
    right = np.where(wanted, chances, 1 - chances)
    assert scores == {
        "exact_match": pytest.approx(1 / 3), "micro_f1": pytest.approx(2 * 2 / (3 + 3)),
        "macro_f1": pytest.approx((1.0 + 0.0) / 2), "loss": pytest.approx(-np.log(right).mean()), "examples": 3}


@torch.no_grad()
def test_the_loss_of_a_split_is_the_one_that_training_reports(one: Path) -> None:
    predictor = load(one)
    predictor.read_data()
    batch = a_batch(predictor.task)
    terms = {term.name: float(term.total) for term in predictor.task.loss(predictor.model, batch)}
    assert predictor.evaluate("val")["loss"] == pytest.approx(terms["nll"] / batch.counts["nll"], rel=1e-4)


def test_what_is_taken_for_what_is_counted(one: Path) -> None:
    predictor = load(one)
    predictor.task.data.add("odd", [Sample("the red car", ("blue",)), Sample("a red house", ("red",))])
    confusion = predictor.task.confusion(predictor.model, "odd")
    assert confusion.labels == ["blue", "green", "red"]
    assert confusion.counts.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 1]]


# The answers.


def test_an_answer_has_the_probability_of_every_label(one: Path, many: Path) -> None:
    [answer] = load(one).answers(["the red car"], best=2)
    assert answer.probabilities is not None
    assert answer.score == pytest.approx(math.log(answer.probabilities["red"]), abs=1e-6)
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert [answer.text, *(other.text for other in answer.others)] == list(answer.probabilities)[:2]
    [answer] = load(many).answers(["red and blue things"])
    assert set(answer.probabilities or ()) == set(COLOURS)
    assert {label for label, chance in (answer.probabilities or {}).items() if chance > 0.5} == {"red", "blue"}


def test_a_text_by_itself_gets_the_label_that_it_gets_among_others(one: Path) -> None:
    predictor = load(one)
    texts = ["", "red", "the green house", "some blue car of a neighbour who likes it very much indeed " * 3]
    together = predictor.answers(texts)
    for text, answer in zip(texts, together, strict=True):
        [alone] = predictor.answers([text])
        assert alone.text == answer.text
        assert alone.score == pytest.approx(answer.score, abs=1e-5)


def test_a_word_of_a_hundred_thousand_letters_is_cut_with_a_note(one: Path) -> None:
    predictor = load(one)
    assert predictor.predict(["x" * 100_000])[0] in COLOURS
    assert predictor.task.notes[-1] == "1 of 1 text cut to data.max_tokens=16 tokens"


@pytest.mark.parametrize("kind", ["one", "many"])
def test_a_look_has_one_choice_among_the_labels(kind: str, request: pytest.FixtureRequest) -> None:
    predictor = load(request.getfixturevalue(kind))
    output = predictor.choices("red things number 3", best=2)
    [choice] = output.choices
    assert output.text == choice.token == "red"
    assert len(choice.best) == 2
    assert choice.best[0][0] == "red"
    assert predictor.choices("red things number 3", "blue").choices[0].probability < 0.5 < choice.probability
    assert predictor.look("red things").axes["encoder.blocks.0.self"].sources[0] == "<s>"
    with pytest.raises(UserError, match="'pink': no such label; the labels are blue, green, red"):
        predictor.choices("red things", "pink")


@pytest.mark.parametrize("kind", ["one", "many"])
def test_every_check_holds_of_a_classifier(kind: str, request: pytest.FixtureRequest) -> None:
    predictor = load(request.getfixturevalue(kind))
    found = {check.name: check for check in checks(predictor.task.probe(predictor.model))}
    assert set(found) == {"batch = single", "padded = unpadded", "fused = explicit", "equivariant without positions"}
    assert all(check.holds for check in found.values())


def test_a_mistake_says_what_was_wanted_and_what_came(one: Path) -> None:
    predictor = load(one)
    predictor.task.data.add("odd", [Sample("the red car", ("blue",)), Sample("a red house", ("red",))])
    found = mistakes(predictor.task, predictor.model, "odd")
    assert (found.sentences, found.wrong) == (2, 1)
    [mistake] = found.worst
    assert (mistake.source, mistake.reference, mistake.answer) == ("the red car", "blue", "red")
    assert mistake.attention is not None
    # Of all its tokens: they were read, not written.
    assert mistake.attention.weights.shape == (mistake.length, mistake.length)


@pytest.mark.parametrize("kind", ["one", "many"])
def test_the_likeliest_labels_are_those_that_are_given(kind: str, request: pytest.FixtureRequest) -> None:
    predictor = load(request.getfixturevalue(kind))
    task, texts = predictor.task, ["red things", "the blue car", "x"]
    [batch] = task.batches(texts, predictor.predict(texts))
    assert task.matches_greedy(predictor.model, batch).all()
    [batch] = task.batches(["the red car"], ["green"])
    assert not task.matches_greedy(predictor.model, batch).all()


def test_without_its_data_a_run_still_answers(one: Path, tmp_path: Path) -> None:
    for file in one.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    predictor = load(tmp_path)
    assert predictor.predict(["the red car"]) == ["red"]
    assert all(check.holds for check in checks(predictor.task.probe(predictor.model)))


# Data.


def test_other_labels_than_those_learned_are_refused(one: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("a car\tred\na cat\tpink\n")
    with pytest.raises(UserError, match=r"test.tsv:2: unknown label 'pink'; the model knows blue, green, red"):
        load(one).task.data.add_test_data([tmp_path / "test.tsv"])


def test_a_shifted_copy_keeps_its_labels(one: Path) -> None:
    predictor = load(one)
    predictor.read_data()
    task = predictor.task
    name = task.data.shift("val", "length", seed=0)
    assert name == "val length"
    for before, after in zip(task.data.of("val"), task.data.of(name), strict=True):
        assert after.labels == before.labels
        assert before.text.startswith(after.text)
        assert len(after.text) < len(before.text)


@pytest.fixture
def types_are_not_checked() -> Iterator[None]:
    """At half a millisecond a sentence, checking types in so many calls would take long."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("types_are_not_checked")
def test_the_mark_that_ends_a_built_in_sentence_does_not_tell_its_kind(tmp_path: Path) -> None:
    task = Classify(run_of(None, "data.built_in_size=200"))
    task.data.prepare(tmp_path)
    assert task.data.splits() == ["train", "val", "test", "test_combinations"]
    assert {"negation", "open question", "statement", "two clauses", "yes-no question"} <= set(task.data.labels)
    samples = [sample for split in task.data.samples for sample in task.data.of(split)]
    for mark in (".", "?", "!"):
        marked = {sample.labels for sample in samples if sample.text.endswith(mark)}
        assert {("statement",), ("yes-no question",), ("open question",), ("negation",)} <= marked
    assert sum(sample.text[-1] in ".?!" for sample in samples) == pytest.approx(len(samples) / 2, rel=0.15)
    rows = [row.tolist() for row in task.data.ids["train"][0]]
    trained = {text.rstrip(".?!") for text in task.data.tokens.decode(rows)}
    assert not trained & {sample.text.lower().rstrip(".?!") for sample in samples}


@pytest.mark.slow
@pytest.mark.usefixtures("types_are_not_checked")
def test_a_bare_run_tells_the_kinds_of_unseen_sentences_apart(tmp_path: Path) -> None:
    scores = train(defaults("classify", built_in=True), tmp_path / "run", quiet=True)
    assert min(scores[split]["accuracy"] for split in scores) > 0.98
    texts = ["are you tired", "You are tired.", "Where are you?", "You are not tired."]
    assert load(tmp_path / "run").predict(texts) == ["yes-no question", "statement", "open question", "negation"]
