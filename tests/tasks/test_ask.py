"""Questions about images: what is learned, answered and seen, whatever the batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as pillow

from regard.check.consistency import checks
from regard.data.batch import IGNORED, BatchSampler, BatchSpec
from regard.data.images.decode import ImageFile
from regard.data.images.image_question import ImageQuestion, QuestionReader
from regard.look.axes import Mixed, grid_parts
from regard.look.measure import pointing
from regard.models.mixed import MixedDecoder
from regard.nn.init import initialize
from regard.predictor import Predictor, load
from regard.settings.errors import UserError
from regard.settings.load import load as settings_of
from regard.settings.schema import Run
from regard.tasks.ask import Ask
from regard.tasks.traits import defaults
from regard.training.loop import train

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 60), "blue": (30, 60, 200)}
SMALL = ("model.image.size=16", "model.image.stem=patches", "model.image.patch=8", "model.width=16", "model.depth=1",
         "model.heads=2", "device=cpu", "search.max_tokens=8", "data.max_tokens=32")


def run_of(*more: str, built_in: bool = True) -> Run:
    return settings_of(None, [*SMALL, *more], base=defaults("ask", built_in=built_in))


def image(colour: str) -> np.ndarray:
    return np.asarray(pillow.new("RGB", (16, 16), COLOURS[colour]))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain images with two questions each, whose mark stands before, in or after the text."""
    folder = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 24), ("val", 6)):
        lines = []
        for number in range(count):
            name, colour = f"{split}{number}.png", list(COLOURS)[number % 3]
            pillow.new("RGB", (16, 16), COLOURS[colour]).save(folder / name)
            mark, end = [("", ""), ("<image> ", ""), ("", " <image>")][number // 3 % 3]
            lines += [{"image": name, "question": f"{mark}what colour is it?{end}", "answer": colour},
                      {"image": name, "question": "is it red?", "answer": "yes" if colour == "red" else "no"}]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("run")
    run = run_of("train.steps=100", "train.warmup=5", "train.batch_tokens=160", "train.learning_rate=0.01",
                 "tokens.kind=words", "train.augment.crop=0", "model.dropout=0", f"data.paths={photos}", built_in=False)
    train(run, folder, quiet=True)
    return load(folder)


def task_of(folder: Path, *more: str) -> tuple[Ask, MixedDecoder]:
    task = Ask(run_of("data.built_in_size=24", *more))
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


# Batches.


def test_rows_that_only_fill_a_batch_are_no_black_images(tmp_path: Path) -> None:
    """The batch norms of a residual network would take them into their statistics."""
    task, _ = task_of(tmp_path)
    batch = task.data.collate("train", BatchSpec(np.array([0, 1]), 3, int(task.data.lengths("train").max())))
    assert torch.equal(batch.pixels[2], batch.pixels[0])
    assert (batch.write[2] == IGNORED).all()


# Learning and answering.


def test_questions_about_plain_images_are_learned(trained: Predictor) -> None:
    for colour in COLOURS:
        assert trained.predict([(image(colour), "what colour is it?"), (image(colour), "is it red?")]) == [
            colour, "yes" if colour == "red" else "no"]
    assert trained.evaluate("val") == {"exact": 100.0, "examples": 12}


def test_a_question_is_given_as_a_pair_as_json_or_after_a_path(trained: Predictor, photos: Path) -> None:
    path = str(photos / "val1.png")
    ways = [(path, "is it red?"), {"image": path, "question": "is it red?"}, f"{path} is it red?",
            json.dumps({"image": path, "question": "is it red?"}),
            ImageQuestion(ImageFile("x", Path(path).read_bytes()), "is it red?")]
    assert trained.predict(ways) == ["no"] * len(ways)


@pytest.mark.parametrize(("given", "says"), [
    ('{"image": 3}', 'expected {"image": "PATH", "question": "TEXT"}'), ("{", "broken JSON"),
    ("nothing.png what is it?", "nothing.png: no such file")])
def test_what_is_no_question_is_an_error_that_names_it(given: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        QuestionReader().parse(given, origin="argument 1")


def test_two_images_in_one_question_are_refused(photos: Path) -> None:
    with pytest.raises(UserError, match="stands in it 2 times"):
        QuestionReader().check((image("red"), "<image> or <image>?"), origin="input")


def test_an_answer_depends_on_its_question_only(trained: Predictor) -> None:
    asked = [(image(colour), question) for colour in ("red", "blue", "green") for question in (
        "is it red?", "what colour is it?", "what <image> colour?")]
    for search in ({}, {"temperature": 1.0, "best": 3, "top_k": 5}, {"temperature": 0.0}):
        together = trained.answers(asked, batch=2, **search)
        alone = [trained.answers([one], **search)[0] for one in asked]
        assert [[one.text, *(other.text for other in one.others)] for one in together] == [
            [one.text, *(other.text for other in one.others)] for one in alone]


def test_tokens_that_are_greedy_are_marked(trained: Predictor) -> None:
    inputs = [QuestionReader().check((image("red"), "is it red?"), origin="input")]
    [batch] = trained.task.batches(inputs, trained.predict(inputs, beam=1))
    said = batch.write != IGNORED
    assert torch.equal(trained.task.matches_greedy(trained.model, batch), said)


# Sequences.


def test_a_batch_has_the_image_at_its_mark_and_counts_answers_only(tmp_path: Path) -> None:
    task, _ = task_of(tmp_path)
    tokens, places = task.data.tokens, task.data.image.places
    inputs = [QuestionReader().check((image("red"), text), origin="input") for text in (
        "what colour <image> is the circle?", "is the star small?")]
    [batch] = task.data.batches(inputs, ["red", "yes"], rows=2)
    for row, (before, after, answer) in enumerate([("what colour", "is the circle?", "red"),
                                                   ("", "is the star small?", "yes")]):
        head, tail, wanted = tokens.encode([before, after, answer])
        assert batch.spans[row].tolist()[: len(head) + places + 1] == [0] * len(head) + [1] * places + [0]
        read = [*head, *[tokens.pad] * places, *tail, tokens.start, *wanted]
        assert batch.read[row, : len(read)].tolist() == read
        written = [*[IGNORED] * (len(read) - len(wanted) - 1), *wanted, tokens.end]
        assert batch.write[row, : len(read)].tolist() == written
    assert batch.counts == {"loss": 4, "nll": 4}


def test_all_questions_about_an_image_are_one_training_sequence_if_they_fit(photos: Path, tmp_path: Path) -> None:
    for most, wanted in ((32, 24), (12, 48)):
        task = Ask(run_of("tokens.kind=words", f"data.paths={photos}", f"data.max_tokens={most}", built_in=False))
        task.data.prepare(tmp_path / str(most))
        assert len(task.data.ids["train"]) == wanted
        assert len(task.data.ids["val"]) == len(task.data.of("val")) == 12
    spec = next(iter(BatchSampler(task.data.lengths("train"), tokens=200, seed=0)))
    batch = task.data.collate("train", spec)
    assert batch.pixels.shape[0] == batch.read.shape[0]


def test_missing_rows_count_nothing(tmp_path: Path) -> None:
    task, model = task_of(tmp_path)
    batch = task.data.padded([], np.zeros((0, 3, 16, 16), np.uint8), rows=2, length=8)
    assert batch.counts == {"loss": 0, "nll": 0}
    assert [float(term.total.detach()) for term in task.loss(model, batch)] == [0.0, 0.0]


# A look inside.


def test_words_of_an_answer_have_maps_over_the_picture(trained: Predictor) -> None:
    record = trained.look((image("blue"), "what <image> colour is it?"))
    axes = record.axes["decoder.blocks.0.self"]
    assert isinstance(axes.sources, Mixed)
    [part] = grid_parts(axes.sources)
    assert part.patches == slice(1, 5)
    assert part.grid.picture is not None
    assert [piece.strip() for piece in axes.sources][-2:] == ["<s>", "blue"]
    assert [piece.strip() for piece in axes.targets][-2:] == ["blue", "</s>"]
    weights = record["decoder.blocks.0.self"]
    assert weights.shape == (2, len(axes.targets), len(axes.sources))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert (weights[:, 1, 4] > 0).all()  # the first patch sees the last
    assert (weights[:, 0, 1:] == 0).all()  # the first word sees nothing after it


def test_regions_of_built_in_questions_are_pointed_at(tmp_path: Path) -> None:
    task, model = task_of(tmp_path)
    examples, regions = task.data.examples("val", 6), task.data.regions("val", 6)
    assert regions is not None
    inputs, outputs = [one.input for one in examples], [one.wanted for one in examples]
    seen = task.look(model, inputs, outputs)
    rows = [lambda count, batch=batch: task.output_rows(batch, count)
            for one, output in zip(inputs, outputs, strict=True) for batch in task.batches([one], [output])]
    assert set(pointing(seen, regions, rows)) >= {("decoder.blocks.0.self", 0), ("decoder.blocks.0.self", 1)}


STEMS = {"patches": (), "resnet": ("model.image.stem=resnet", "model.image.patch=4", "model.image.stages=1")}


@pytest.mark.parametrize("stem", STEMS)
def test_cached_batched_and_searched_answers_are_those_of_one_pass(stem: str, tmp_path: Path) -> None:
    task, model = task_of(tmp_path, *STEMS[stem])
    found = list(checks(task.probe(model)))
    assert [check.name for check in found if not check.holds] == []
    assert {"alone = in a batch", "cache = none"} <= {check.name for check in found}
    bare = Ask(task.run)
    bare.data.restore(tmp_path)
    assert [check.name for check in checks(bare.probe(model)) if not check.holds] == []


# Data and settings.


@pytest.mark.parametrize(("line", "says"), [
    ({"image": "a.png", "answer": "red"}, "'red', for both; a line has a question and an answer"),
    ({"image": "a.png", "question": "what?"}, "'what\\?', for both"),
    ({"image": "a.png", "question": " ", "answer": "red"}, "no question"),
    ({"image": "a.png", "question": ["what?"], "answer": "red"}, "instead of a text")])
def test_a_line_without_a_question_or_an_answer_is_named(tmp_path: Path, line: dict[str, object], says: str) -> None:
    pillow.new("RGB", (16, 16)).save(tmp_path / "a.png")
    good = {"image": "a.png", "question": "what?", "answer": "red"}
    (tmp_path / "asked.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(line)}\n")
    task = Ask(run_of(f"data.paths={tmp_path / 'asked.jsonl'}", built_in=False))
    with pytest.raises(UserError, match=rf"asked.jsonl:2.*{says}"):
        task.data.prepare(tmp_path / "run")


def test_other_questions_can_be_scored(trained: Predictor, photos: Path) -> None:
    [split] = trained.task.data.add_test_data([photos / "val.jsonl"])
    assert trained.evaluate(split)["exact"] == 100.0


@pytest.mark.parametrize(("setting", "says"), [
    ("model.recurrent.cell=gru", "model.recurrent.cell=gru"), ("model.max_positions=20", "model.max_positions=20")])
def test_settings_that_cannot_be_are_refused(setting: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        Ask(run_of(setting))
