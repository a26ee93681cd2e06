"""classify on images: where it is not as on texts. The other tests of classify ask both."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image as pillow

from colours import Images, Texts
from regard.data.batch import BatchSampler
from regard.data.images.augment import augmented
from regard.data.images.pixels import centred
from regard.look.axes import Grid
from regard.nn.init import initialize
from regard.predictor import load
from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks import make
from regard.tasks.base import Task
from regard.training.loop import train
from regard.verbs.train import settled

KIND = Images()
COLOURS = [(colour,) for _ in range(8) for colour in ("red", "green", "blue")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KIND.write(tmp_path_factory.mktemp("data"), COLOURS)


def prepared(run: Run, folder: Path) -> Task:
    task = make(run)
    task.data.prepare(folder)
    return task


# Learning.


@pytest.mark.parametrize("how", ["mixup", "cutmix"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_mixed_images_have_the_labels_of_both_by_their_shares(
    data: Path, tmp_path: Path, how: str, smoothing: float
) -> None:
    run = KIND.run(data, f"train.augment.{how}=1.0", "train.augment.flip=false", f"train.label_smoothing={smoothing}")
    task = prepared(run, tmp_path)
    batch = task.data.collate("train", BatchSampler(task.data.lengths("train"), tokens=160, seed=0)[0])
    model = task.build({"labels": 3}).train()
    initialize(model, seed=0)
    assert run.model.image is not None
    mixed = augmented(batch.pixels, batch.seeds, how=run.train.augment, image=run.model.image)
    logits, targets = model(centred(mixed.pixels, run.model.image)), batch.targets[:, 0]
    real = targets >= 0
    assert 0 < mixed.share[real].min() < 1
    soft = (mixed.share[:, None] * F.one_hot(targets.clamp(min=0), 3)
            + (1 - mixed.share)[:, None] * F.one_hot(targets[mixed.partners].clamp(min=0), 3))
    loss, nll = task.loss(model, batch)
    wanted = F.cross_entropy(logits[real], soft[real], label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.total, wanted)
    torch.testing.assert_close(nll.total, F.cross_entropy(logits[real], soft[real], reduction="sum"))


def test_images_are_augmented_only_in_training(data: Path, tmp_path: Path) -> None:
    tasks = [prepared(KIND.run(data, *more), tmp_path / str(number)) for number, more in enumerate((
        ("train.augment.flip=true", "train.augment.colour=0.5", "train.augment.mixup=1.0"),
        ("train.augment.flip=false", "train.augment.crop=0")))]
    model = tasks[0].build({"labels": 3})
    initialize(model, seed=0)
    batch = tasks[0].data.collate("train", BatchSampler(tasks[0].data.lengths("train"), tokens=160, seed=0)[0])
    for mode, is_same in ((model.eval, True), (model.train, False)):
        mode()
        one, other = (task.loss(model, batch)[0].total for task in tasks)
        assert bool(one == other) == is_same


def test_a_step_is_augmented_the_same_way_whenever_it_is_made(data: Path, tmp_path: Path) -> None:
    task = prepared(KIND.run(data, "train.augment.colour=0.5", "train.augment.cutmix=1.0"), tmp_path)
    plan = BatchSampler(task.data.lengths("train"), tokens=160, seed=0)
    model = task.build({"labels": 3}).train()
    initialize(model, seed=0)
    first, again, later = (task.loss(model, task.data.collate("train", plan[step]))[0].total for step in (
        0, 0, plan.steps_per_epoch))
    assert first == again != later


# The default settings.


def photograph(path: Path, width: int, height: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pillow.effect_noise((width, height), 60).convert(mode).save(path)


@pytest.mark.parametrize(("sizes", "mode", "size", "patch", "grey"), [
    ([(32, 32)], "RGB", 32, 4, False), ([(28, 28)], "L", 28, 4, True), ([(640, 480), (300, 900)], "RGB", 64, 8, False),
    ([(9, 9)], "RGB", 16, 2, False), ([(50, 40), (40, 60), (300, 200)], "L", 40, 5, True),
])
def test_a_run_begins_with_a_size_that_fits_its_images(
    tmp_path: Path, sizes: list[tuple[int, int]], mode: str, size: int, patch: int, grey: bool
) -> None:
    for label in ("cat", "dog"):
        for number, (width, height) in enumerate(sizes):
            photograph(tmp_path / label / f"{number}.png", width, height, mode)
    image = settled("classify", [tmp_path], None, None, None, []).model.image
    assert image is not None
    assert (image.size, image.patch, image.grey) == (size, patch, grey)
    assert settled("classify", [tmp_path], None, None, None, ["model.image.size=96", "model.image.patch=8"]).model.image


def test_what_an_option_or_a_preset_says_is_read_needs_no_files() -> None:
    assert settled("classify", [], None, None, None, ["model.image.size=48", "model.image.patch=6"]).train.augment.flip
    preset = settled("classify", [], None, None, None, ["model.preset=vit-tiny"])
    assert preset.train.augment.flip
    assert settled("classify", [], None, None, None, []).model.image is None


@pytest.mark.parametrize(("kind", "setting", "message"), [
    ("images", "tokens.lowercase=true", "tokens.lowercase=true: is for text, and this run reads images; remove it"),
    ("images", "masking.rate=0.3", "masking.rate=0.3: is for text, and this run reads images; remove it"),
    ("images", "model.window=3", "model.window=3: has no effect on images; remove it"),
    ("texts", "train.augment.flip=true",
     "train.augment.flip=true: changes images, and this run reads none; remove it"),
])
def test_a_setting_of_the_other_inputs_is_refused(tmp_path: Path, kind: str, setting: str, message: str) -> None:
    made: Images | Texts = Images() if kind == "images" else Texts()
    with pytest.raises(UserError) as error:
        made.run(made.write(tmp_path, COLOURS), setting)
    assert str(error.value) == message


def test_a_task_that_reads_text_reads_no_images() -> None:
    for task in ("tag", "language"):
        with pytest.raises(UserError, match=rf"model.image: {task} reads text; .*classify.* can read"):
            settled(task, [], None, None, None, ["model.image.size=32"])


# Answers.


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(KIND.run(data), folder, quiet=True)
    return folder


def test_an_image_is_a_path_an_open_image_or_an_array(run: Path, tmp_path: Path) -> None:
    predictor, path = load(run, device="cpu"), KIND.made(tmp_path, "green")
    opened = pillow.open(path)
    answers = [answer.probabilities for answer in predictor.answers([path, str(path), opened, np.asarray(opened)])]
    assert answers[0] == answers[1] == answers[2] == answers[3]
    with pytest.raises(UserError, match=r"nothing\.png: no such file"):
        predictor.predict([path, tmp_path / "nothing.png"])
    with pytest.raises(TypeError, match=r"must be a list of images, as in predict\(\[image\]\)"):
        predictor.predict(str(path))


def test_a_look_shows_the_part_of_the_image_that_was_read(run: Path, tmp_path: Path) -> None:
    predictor, path = load(run, device="cpu"), KIND.made(tmp_path, "red")
    axes = predictor.look(path).axes["encoder.blocks.0.self"]
    assert isinstance(axes.sources, Grid)
    assert axes.targets == axes.sources
    assert (axes.sources.height, axes.sources.width, axes.sources.before) == (3, 3, ("[CLS]",))
    assert (axes.sources.picture or "").startswith("data:image/png;base64,")


def test_a_network_of_convolutions_learns_and_has_no_attention_to_look_at(data: Path, tmp_path: Path) -> None:
    settings = ("model.preset=resnet-18", "model.image.size=12", "model.image.patch=1", "model.image.stages=1,1",
                "model.width=32", "train.batch_tokens=864", "train.steps=30", "train.warmup=3", "device=cpu")
    train(settled("classify", [data], None, None, None, settings), tmp_path / "run", quiet=True)
    predictor = load(tmp_path / "run", device="cpu")
    assert predictor.predict([KIND.made(tmp_path, colour) for colour in ("red", "green", "blue")]) == [
        "red", "green", "blue"]
