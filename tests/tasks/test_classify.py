"""classify: the loss and the scores are what they are defined as, and an answer is a label with its probability."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

from colours import KINDS, Kind, Texts
from regard.check.consistency import checks
from regard.data.batch import Batch, BatchSampler, BatchSpec
from regard.look.metrics import ClassificationMetrics, f1
from regard.mistakes import mistakes
from regard.predictor import load as load_anywhere
from regard.settings.errors import UserError
from regard.tasks import make
from regard.tasks.base import loss_per_token
from regard.tasks.classify import Classify
from regard.tasks.traits import defaults
from regard.training.loop import train

COLOURS = ("red", "green", "blue")
ONE = [(colour,) for _ in range(24) for colour in COLOURS]
MANY = [named for _ in range(12) for named in (("red",), ("red", "blue"), ("green",), (), ("blue", "green"))]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="module")
def one(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns which colour an input has."""
    folder = tmp_path_factory.mktemp("one")
    train(kind.run(kind.write(folder, ONE)), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def many(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns all colours that an input has."""
    folder = tmp_path_factory.mktemp("many")
    train(kind.run(kind.write(folder, MANY), "data.multi_label=true", "train.steps=80"), folder / "run", quiet=True)
    return folder / "run"


load = partial(load_anywhere, device="cpu")  # where the batches of these tests lie


# Learning.


def test_a_classifier_learns_the_colour_that_decides(kind: Kind, one: Path, tmp_path: Path) -> None:
    predictor = load(one)
    assert predictor.predict([kind.made(tmp_path, colour) for colour in COLOURS]) == list(COLOURS)
    scores = predictor.evaluate("val")
    assert scores["accuracy"] == scores["macro_f1"] == 1.0
    assert scores["examples"] == 6
    assert next(iter(scores)) == "accuracy"  # what a list of runs shows


def test_an_input_may_have_several_labels_or_none(kind: Kind, many: Path, tmp_path: Path) -> None:
    predictor = load(many)
    inputs = [kind.made(tmp_path, *colours) for colours in (("blue", "green"), (), ("red",))]
    assert predictor.predict(inputs) == ["blue, green", "", "red"]
    scores = predictor.evaluate("val")
    assert scores["exact_match"] == scores["micro_f1"] == scores["macro_f1"] == 1.0


# The loss.


def a_batch(task: Classify, split: str = "val") -> Batch:
    chosen = BatchSampler(task.data.lengths(split), tokens=512, seed=0)[0]
    # Three rows are empty.
    return task.data.collate(split, BatchSpec(chosen.indices, len(chosen.indices) + 3, chosen.length))


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_of_one_label_is_its_cross_entropy(kind: Kind, one: Path, smoothing: float) -> None:
    predictor = load(one)
    predictor.read_data()
    predictor.task.run = kind.run(one.parent / "train.jsonl", f"train.label_smoothing={smoothing}")
    batch = a_batch(predictor.task)
    logs = kind.logits(predictor, batch).log_softmax(-1)
    targets = batch.targets[: len(logs), 0]
    own, spread = -logs[torch.arange(len(logs)), targets], -logs.mean(1)
    terms = {term.name: float(term.total) for term in predictor.task.loss(predictor.model, batch)}
    assert batch.counts == {"loss": len(logs), "nll": len(logs)}
    assert terms["nll"] == pytest.approx(float(own.sum()), rel=1e-4)
    assert terms["loss"] == pytest.approx(float(((1 - smoothing) * own + smoothing * spread).sum()), rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_of_several_labels_is_the_sum_of_their_decisions(kind: Kind, many: Path, smoothing: float) -> None:
    predictor = load(many)
    predictor.read_data()
    predictor.task.run = kind.run(many.parent / "train.jsonl", "data.multi_label=true",
                                  f"train.label_smoothing={smoothing}")
    batch = a_batch(predictor.task)
    chances = kind.logits(predictor, batch).double().sigmoid()
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
    data = predictor.task.data
    plan = BatchSampler(data.lengths("val"), tokens=512, seed=0)
    batches = [data.collate("val", plan[step]) for step in range(plan.steps_per_epoch)]
    loss = loss_per_token(predictor.task, predictor.model, batches)
    assert predictor.evaluate("val")["loss"] == pytest.approx(loss, rel=1e-4)


def test_what_is_taken_for_what_is_counted(kind: Kind, one: Path, tmp_path: Path) -> None:
    predictor = load(one)
    kind.add(predictor, "odd", tmp_path, [("red", "blue"), ("red", "red")])
    confusion = predictor.task.confusion(predictor.model, "odd")
    assert confusion.labels == ["blue", "green", "red"]
    assert confusion.counts.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 1]]


# The answers.


def test_an_answer_has_the_probability_of_every_label(kind: Kind, one: Path, many: Path, tmp_path: Path) -> None:
    [answer] = load(one).answers([kind.made(tmp_path, "red")], best=2)
    assert answer.probabilities is not None
    assert answer.score == pytest.approx(math.log(answer.probabilities["red"]), abs=1e-6)
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert [answer.text, *(other.text for other in answer.others)] == list(answer.probabilities)[:2]
    [answer] = load(many).answers([kind.made(tmp_path, "red", "blue")])
    assert set(answer.probabilities or ()) == set(COLOURS)
    assert {label for label, chance in (answer.probabilities or {}).items() if chance > 0.5} == {"red", "blue"}


def test_an_input_by_itself_gets_the_label_that_it_gets_among_others(kind: Kind, one: Path, tmp_path: Path) -> None:
    predictor = load(one)
    inputs = [kind.made(tmp_path, *colours) for colours in ((), ("red",), ("green", "red"), ("blue",) * 9)]
    together = predictor.answers(inputs)
    for given, answer in zip(inputs, together, strict=True):
        [alone] = predictor.answers([given])
        assert alone.text == answer.text
        assert alone.score == pytest.approx(answer.score, abs=1e-5)


@pytest.mark.parametrize("kind", [Texts()], indirect=True, ids=str, scope="module")
def test_a_word_of_a_hundred_thousand_letters_is_cut_with_a_note(one: Path) -> None:
    predictor = load(one)
    assert predictor.predict(["x" * 100_000])[0] in COLOURS
    assert predictor.task.notes[-1] == "1 of 1 text cut to data.max_tokens=16 tokens"


@pytest.mark.parametrize("labels", ["one", "many"])
def test_a_look_has_one_choice_among_the_labels(
    kind: Kind, labels: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    predictor, red = load(request.getfixturevalue(labels)), kind.made(tmp_path, "red")
    [red] = predictor._checked([red])
    output = predictor.choices(red, best=2)
    [choice] = output.choices
    assert output.text == choice.token == "red"
    assert len(choice.best) == 2
    assert choice.best[0][0] == "red"
    assert predictor.choices(red, "blue").choices[0].probability < 0.5 < choice.probability
    assert predictor.look(red).axes["encoder.blocks.0.self"].sources[0] == kind.first
    with pytest.raises(UserError, match="'pink': no such label; the labels are blue, green, red"):
        predictor.choices(red, "pink")


@pytest.mark.parametrize("labels", ["one", "many"])
def test_every_check_holds_of_a_classifier(kind: Kind, labels: str, request: pytest.FixtureRequest) -> None:
    predictor = load(request.getfixturevalue(labels))
    predictor.read_data()
    found = {check.name: check for check in checks(predictor.task.probe(predictor.model))}
    assert set(found) == kind.checks
    assert all(check.holds for check in found.values())


def test_a_mistake_says_what_was_wanted_and_what_came(kind: Kind, one: Path, tmp_path: Path) -> None:
    predictor = load(one)
    kind.add(predictor, "odd", tmp_path, [("red", "blue"), ("red", "red")])
    found = mistakes(predictor.task, predictor.model, "odd")
    assert (found.examples, found.wrong) == (2, 1)
    [mistake] = found.worst
    assert "red" in mistake.source
    assert (mistake.reference, mistake.answer) == ("blue", "red")
    assert mistake.attention is not None
    # Of a text all tokens, which were read and not written; of an image the class token, from which its label is read.
    rows = 1 if kind.name == "images" else mistake.length
    assert mistake.attention.weights.shape == (rows, mistake.length)
    assert (mistake.picture is not None) == (kind.name == "images")


@pytest.mark.parametrize("labels", ["one", "many"])
def test_the_likeliest_labels_are_those_that_are_given(
    kind: Kind, labels: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    predictor = load(request.getfixturevalue(labels))
    task, inputs = predictor.task, [kind.made(tmp_path, *colours) for colours in (("red",), ("blue",), ())]
    inputs = predictor._checked(inputs)
    [batch] = task.batches(inputs, predictor.predict(inputs))
    assert task.matches_greedy(predictor.model, batch).all()
    [batch] = task.batches(inputs[:1], ["green"])
    assert not task.matches_greedy(predictor.model, batch).all()


def test_a_vector_depends_on_its_input_only(kind: Kind, one: Path, tmp_path: Path) -> None:
    predictor = load(one)
    inputs = [kind.made(tmp_path, colour) for colour in COLOURS]
    vectors = predictor.embed(inputs)
    assert vectors.shape == (3, 32)
    np.testing.assert_allclose(predictor.embed(inputs[1:2]), vectors[1:2], atol=1e-5)
    assert predictor.embed([]).shape == (0, 32)


def test_without_its_data_a_run_still_answers(kind: Kind, one: Path, tmp_path: Path) -> None:
    for file in one.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    predictor = load(tmp_path)
    assert predictor.predict([kind.made(tmp_path, "red")]) == ["red"]
    assert all(check.holds for check in checks(predictor.task.probe(predictor.model)))


# Data.


def test_other_labels_than_those_learned_are_refused(kind: Kind, one: Path, tmp_path: Path) -> None:
    data = kind.write(tmp_path, [("red",), ("pink",)], name="test")
    with pytest.raises(UserError, match=r"test.jsonl:2: unknown label 'pink'; the model knows blue, green, red"):
        load(one).task.data.add_test_data([data])


def test_a_shifted_copy_keeps_its_labels(kind: Kind, one: Path) -> None:
    predictor = load(one)
    predictor.read_data()
    data = predictor.task.data
    name = data.shift("val", kind.shift, seed=0)
    assert name == f"val {kind.shift}"
    assert data.labels_of(name) == data.labels_of("val")
    before, after = (data.examples(split) for split in ("val", name))
    assert all(one.input != other.input for one, other in zip(before, after, strict=True))
    assert predictor.evaluate(name)["examples"] == 6


def test_the_first_half_of_a_text_stays_where_it_is_cut(tmp_path: Path) -> None:
    kind = Texts()
    task = make(kind.run(kind.write(tmp_path, ONE)))
    task.data.prepare(tmp_path / "run")
    for before, after in zip(task.data.of("val"), task.data.of(task.data.shift("val", "length", seed=0)), strict=True):
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
    task = Classify(Texts().run(None, "data.built_in_size=200"))
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
