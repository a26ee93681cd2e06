"""From images to captions: what is learned, answered and seen, whatever the batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as pillow

from regard.check.consistency import checks
from regard.data.batch import BatchSampler
from regard.data.images.decode import ImageFile
from regard.look.axes import Grid
from regard.look.measure import pointing
from regard.nn.init import initialize
from regard.predictor import Predictor, load
from regard.settings.errors import UserError
from regard.settings.load import load as settings_of
from regard.settings.schema import Run
from regard.tasks.base import Task
from regard.tasks.caption import Caption
from regard.tasks.traits import defaults
from regard.training.loop import train
from regard.verbs.train import settled

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 60), "blue": (30, 60, 200)}
SMALL = ("model.image.size=16", "model.image.stem=patches", "model.image.patch=8", "model.width=16",
         "model.depth=1", "model.heads=2", "device=cpu", "search.max_tokens=8")
HARD = ("model.recurrent.cell=lstm", "model.recurrent.attention=hard", "model.recurrent.gate=true",
        "train.reinforce.entropy=0.02", "train.coverage=0.1", "model.score=additive")


def run_of(*more: str, built_in: bool = True) -> Run:
    sections = {"model.recurrent"} if any("recurrent" in each for each in more) else set()
    return settings_of(None, [*SMALL, *more], base=defaults("caption", built_in=built_in, sections=sections))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain images, two captions each."""
    folder = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 24), ("val", 6)):
        lines = ["image\tcaption"]
        for number in range(count):
            name, colour = f"{split}{number}.png", list(COLOURS)[number % 3]
            pillow.new("RGB", (16, 16), COLOURS[colour]).save(folder / name)
            lines += [f"{name}\ta {colour} wall", f"{name}\tall {colour}"]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("run")
    run = run_of("train.steps=80", "train.warmup=5", "train.batch_tokens=160", "train.learning_rate=0.01",
                 "tokens.kind=words", "train.augment.crop=0", "model.dropout=0", f"data.paths={photos}", built_in=False)
    train(run, folder, quiet=True)
    return load(folder)


def image(colour: str, size: tuple[int, int] = (16, 16)) -> np.ndarray:
    return np.asarray(pillow.new("RGB", size, COLOURS[colour]))


def task_of(folder: Path, *more: str) -> tuple[Caption, torch.nn.Module]:
    task = Caption(run_of("data.built_in_size=24", *more))
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


# Learning and answering.


def test_captions_of_plain_images_are_learned(trained: Predictor) -> None:
    told = trained.predict([image(colour) for colour in COLOURS])
    assert all(text in {f"a {colour} wall", f"all {colour}"} for text, colour in zip(told, COLOURS, strict=True))
    scores = trained.evaluate("val")
    assert scores["exact"] == 100.0
    assert scores["examples"] == 6
    assert float(str(scores["bleu_1"])) > 99


def test_an_image_is_given_as_a_path_as_bytes_or_as_an_array(trained: Predictor, photos: Path) -> None:
    path = photos / "val1.png"
    told = trained.predict([str(path), ImageFile("x", path.read_bytes()), np.asarray(pillow.open(path))])
    assert len(set(told)) == 1
    assert "green" in told[0]


def test_an_answer_depends_on_its_image_only(trained: Predictor) -> None:
    colours = ["red", "blue", "green", "blue", "red"]
    for search in ({}, {"temperature": 1.0, "best": 3, "top_k": 5}, {"temperature": 0.0}):
        together = trained.answers([image(colour) for colour in colours], batch=2, **search)
        alone = [trained.answers([image(colour)], **search)[0] for colour in colours]
        assert [[one.text, *(o.text for o in one.others)] for one in together] == [
            [one.text, *(o.text for o in one.others)] for one in alone]


def test_no_answer_is_longer_than_captions_may_be(tmp_path: Path) -> None:
    task, model = task_of(tmp_path, "data.max_tokens=4", "search.max_tokens=99")
    answers = task.predict(model, [one.input for one in task.data.examples("val", 8)])
    assert max(len(answer.text.split()) for answer in answers) <= 4


def test_tokens_that_are_greedy_are_marked(trained: Predictor) -> None:
    told = trained.predict([image("red")], beam=1)
    [batch] = trained.task.batches([ImageFile.of("x", image("red").transpose(2, 0, 1))], told)
    assert trained.task.matches_greedy(trained.model, batch).all()


# A look inside.


def test_each_word_of_an_answer_has_a_map_over_the_picture(trained: Predictor) -> None:
    record = trained.look(image("blue"))
    axes = record.axes["decoder.blocks.0.cross"]
    grid = axes.sources
    assert isinstance(grid, Grid)
    assert (grid.height, grid.width, grid.before) == (2, 2, ())
    assert grid.picture is not None
    assert "".join(axes.targets[:-1]).strip() == trained.predict([image("blue")])[0]
    assert axes.targets[-1] == "</s>"
    assert record["decoder.blocks.0.cross"].shape == (2, len(axes.targets), 4)
    np.testing.assert_allclose(record["decoder.blocks.0.cross"].sum(-1), 1, atol=1e-5)
    assert record.axes["encoder.blocks.0.self"].targets == grid
    assert record.axes["decoder.blocks.0.self"].sources[0] == "<s>"


def test_other_words_can_be_looked_at_and_weighed(trained: Predictor) -> None:
    record = trained.look(image("blue"), "all red")
    assert [piece.strip() for piece in record.axes["decoder.blocks.0.cross"].targets] == ["all", "red", "</s>"]
    chosen = trained.choices(image("blue"), "all red")
    assert chosen.text == "all red"
    assert chosen.choices[1].probability < 0.5
    assert chosen.choices[1].best[0][0].strip() == "blue"


def test_where_words_point_is_known_for_built_in_images(tmp_path: Path) -> None:
    task, model = task_of(tmp_path)
    examples, regions = task.data.examples("val", 6), task.data.regions("val", 6)
    assert regions is not None
    records = task.look(model, [one.input for one in examples], [one.wanted for one in examples])
    found = pointing(records, regions, [range] * 6)
    assert {site for site, _ in found} == {"decoder.blocks.0.cross"}
    assert all(0 <= share <= 1 for share in found.values())


# Every kind of model.


@pytest.mark.parametrize("more", [(), HARD, ("model.recurrent.cell=lstm", "model.recurrent.context=fixed")],
                         ids=["transformer", "hard", "show and tell"])
def test_every_check_holds(tmp_path: Path, more: tuple[str, ...]) -> None:
    task, model = task_of(tmp_path, *more)
    assert [check.name for check in checks(task.probe(model)) if not check.holds] == []
    bare = Caption(task.run)
    bare.data.restore(tmp_path)
    assert [check.name for check in checks(bare.probe(model)) if not check.holds] == []


def test_the_loss_of_hard_attention_has_the_gradients_of_its_places(tmp_path: Path) -> None:
    task, model = task_of(tmp_path, *HARD)
    chosen = BatchSampler(task.data.lengths("train"), tokens=160, seed=0)[0]
    batch = task.data.collate("train", chosen)
    terms = task.loss(model.train(), batch)
    assert [(term.name, term.weight) for term in terms] == [
        ("loss", 1.0), ("nll", 0.0), ("loss", 0.1), ("loss", 1.0), ("loss", 0.02)]
    terms[3].total.backward()
    assert model.get_parameter("decoder.cross.attend.query_weight").grad.abs().max() > 0


def test_a_step_draws_the_same_places_whenever_it_is_made(tmp_path: Path) -> None:
    """A run that is stopped and resumed ends with the very weights of one that is not."""
    settings = ("data.built_in_size=24", "train.steps=6", "train.save_every=3", "train.keep_checkpoints=5",
                "train.batch_tokens=160", "train.precision=float32", "tokens.kind=words", *HARD)
    train(run_of(*settings), tmp_path / "whole", quiet=True)
    resumed = tmp_path / "resumed"
    train(run_of(*settings), resumed, quiet=True)
    # As after a kill: without the model, and from the third step.
    for name in ("model.safetensors", "scores.json", "MANIFEST.json"):
        (resumed / name).unlink()
    for newer in sorted((resumed / "checkpoints").glob("step-*"))[1:]:
        for file in newer.iterdir():
            file.unlink()
        newer.rmdir()
    train(run_of(*settings), resumed, quiet=True)
    one, other = (load(folder).model.state_dict() for folder in (tmp_path / "whole", resumed))
    assert one.keys() == other.keys()
    assert "decoder.baseline.mean" in one
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


# Settings.


def test_a_captioner_must_read_images() -> None:
    run = run_of()
    with pytest.raises(UserError, match=r"^caption: the model must read images"):
        Caption(replace(run, model=replace(run.model, image=None)))


@pytest.mark.parametrize(("override", "said"), [
    ("train.augment.mixup=0.5", r"^train\.augment\.mixup=0\.5: mixes labels"),
    ("masking.rate=0.3", r"^masking\.rate=0\.3: has no effect on captions"),
])
def test_settings_without_effect_on_captions_are_refused(override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        settled("caption", [], None, None, None, [override])


def test_changed_images_keep_their_captions(tmp_path: Path) -> None:
    task, _ = task_of(tmp_path)
    name = task.data.shift("val", "noise", seed=1)
    assert task.data.of(name) == task.data.of("val")
    one, other = (task.data.pixels[split].take(np.arange(3)) for split in ("val", name))
    assert not np.array_equal(one, other)
    assert isinstance(task, Task)
