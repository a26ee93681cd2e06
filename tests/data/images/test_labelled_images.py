"""Labelled images as the data of a run: prepared once, the same again, and batched by a function of the step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.images.drawings import drawn, folder_of, packed
from regard.data.batch import IGNORED, BatchSampler, BatchSpec
from regard.data.images.labelled_images import LabelledImages
from regard.data.images.seeds import MISSING
from regard.models.build import image_encoder
from regard.settings.errors import UserError
from regard.settings.schema import Data, Image, Run, Tower

IMAGE = Image(size=6, patch=3)


def run_on(*paths: Path, image: Image = IMAGE, seed: int = 0, **data: object) -> Run:
    return Run(task="classify", seed=seed, model=Tower(image=image),
               data=Data(paths=tuple(map(str, paths)), **data))  # type: ignore[arg-type]


def prepared(folder: Path, run: Run) -> LabelledImages:
    folder.mkdir(exist_ok=True)
    images = LabelledImages(run)
    images.prepare(folder)
    return images


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    folder_of(root / "train", {"cat": 12, "dog": 9}, seed=1)
    folder_of(root / "test", {"cat": 2, "dog": 3}, seed=2)
    return root


def test_every_image_is_in_its_split_with_its_label(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos, held_out=0.25))
    assert {split: len(images.lengths(split)) for split in images.splits()} == {"train": 16, "val": 5, "test": 5}
    assert images.labels == ["cat", "dog"]
    assert [example.wanted for example in images.examples("test")] == ["cat"] * 2 + ["dog"] * 3
    assert images.targets["test"].ravel().tolist() == [0, 0, 1, 1, 1]


def test_prepared_pixels_are_those_of_the_files(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos))
    for example, pixels in zip(images.examples("test"), images.pixels["test"].take(np.arange(5)), strict=True):
        from_file = replace(example.input, content=None, is_fitted=False)
        assert (from_file.pixels(IMAGE) == pixels).all()
        assert (example.input.pixels(IMAGE) == pixels).all()


def test_prepared_data_is_restored_as_it_was(tmp_path: Path, photos: Path) -> None:
    first = prepared(tmp_path / "run", run_on(photos))
    again = prepared(tmp_path / "run", run_on(photos))
    for split in first.splits():
        every = np.arange(len(first.lengths(split)))
        assert (first.pixels[split].take(every) == again.pixels[split].take(every)).all()
        assert (first.targets[split] == again.targets[split]).all()
    assert (list(first.notes), first.first) == (list(again.notes), again.first)


def test_changed_images_are_prepared_again(tmp_path: Path, photos: Path) -> None:
    before = prepared(tmp_path / "run", run_on(photos)).pixels["test"].take(np.arange(1))
    (photos / "test" / "cat" / "000.png").write_bytes(packed(drawn(99)))
    assert (prepared(tmp_path / "run", run_on(photos)).pixels["test"].take(np.arange(1)) != before).any()


def test_an_image_that_moves_to_another_label_is_noticed(tmp_path: Path) -> None:
    """Also if all names and contents come in the same order. Other files do not count."""
    for place, name in enumerate(("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png")):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(packed(drawn(place)))
    before = LabelledImages(run_on(tmp_path / "photos")).fingerprint()
    (tmp_path / "photos" / "README.md").write_text("about")
    assert LabelledImages(run_on(tmp_path / "photos")).fingerprint() == before
    (tmp_path / "photos" / "cat" / "b.png").rename(tmp_path / "photos" / "dog" / "b.png")
    assert LabelledImages(run_on(tmp_path / "photos")).fingerprint() != before


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_changed_image_is_noticed_if_another_folder_has_one_of_its_name(tmp_path: Path, split: str) -> None:
    root = tmp_path / "photos"
    for its in ("train", "test"):
        folder_of(root / its, {"cat": 3, "dog": 3})
    run = run_on(root / "train", root / "test")
    before = LabelledImages(run).fingerprint()
    changed = sorted((root / split / "cat").iterdir())[0]
    assert (root / "train" / "cat" / changed.name).exists()
    assert (root / "test" / "cat" / changed.name).exists()
    changed.write_bytes(packed(drawn(77)))
    assert LabelledImages(run).fingerprint() != before


def test_a_changed_image_of_a_table_is_noticed_and_others_in_its_folder_do_not_count(tmp_path: Path) -> None:
    folder_of(tmp_path / "pictures", {"a": 6})
    table = tmp_path / "train.csv"
    table.write_text("".join(f"pictures/a/{place:03}.png,{'cat' if place % 2 else 'dog'}\n" for place in range(5)))
    before = LabelledImages(run_on(table)).fingerprint()
    (tmp_path / "pictures" / "a" / "005.png").unlink()
    assert LabelledImages(run_on(table)).fingerprint() == before
    (tmp_path / "pictures" / "a" / "004.png").write_bytes(packed(drawn(77)))
    assert LabelledImages(run_on(table)).fingerprint() != before
    assert before != LabelledImages(run_on(table, image=replace(IMAGE, size=9))).fingerprint()
    assert before != LabelledImages(run_on(table, held_out=0.3)).fingerprint()


@pytest.mark.parametrize("name", ["train.pixels.npy", "train.targets.npy", "test.jsonl"])
def test_damaged_data_is_prepared_again(tmp_path: Path, photos: Path, name: str,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    before = prepared(tmp_path / "run", run_on(photos))
    pixels = before.pixels["train"].take(np.arange(8)).copy()
    del before
    file = tmp_path / "run" / "data" / name
    file.write_bytes(file.read_bytes()[:-3])
    assert (prepared(tmp_path / "run", run_on(photos)).pixels["train"].take(np.arange(8)) == pixels).all()
    assert "prepared again" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "array"), [
    ("train.pixels.npy", np.zeros((20, 3, 6, 5), np.uint8)),
    ("train.pixels.npy", np.zeros((20, 3, 6, 6), np.float32)),
    ("train.pixels.npy", np.zeros((19, 3, 6, 6), np.uint8)),
    ("train.targets.npy", np.full(20, 2, np.int32)),
    ("train.targets.npy", np.full(20, -1, np.int32)),
    ("test.targets.npy", np.zeros(4, np.int32)),
])
def test_arrays_that_do_not_belong_together_are_refused(tmp_path: Path, photos: Path, name: str,
                                                        array: np.ndarray) -> None:
    images = prepared(tmp_path / "run", run_on(photos))
    assert len(images.lengths("train")) == 20
    np.save(tmp_path / "run" / "data" / name, array)
    other = LabelledImages(run_on(photos))
    other.restore(tmp_path / "run")
    with pytest.raises(UserError, match=r"npy: damaged"):
        other.restore_data(tmp_path / "run", {"splits": ["train", "val", "test"]})


@pytest.mark.parametrize("name", ["train.pixels.npy", "train.targets.npy"])
@pytest.mark.parametrize("place", [20, 40, 60, 70])
def test_a_damaged_header_is_refused_by_name(tmp_path: Path, photos: Path, name: str, place: int) -> None:
    prepared(tmp_path / "run", run_on(photos))
    file = tmp_path / "run" / "data" / name
    content = bytearray(file.read_bytes())
    content[place : place + 10] = b"9" * 10
    file.write_bytes(content)
    other = LabelledImages(run_on(photos))
    other.restore(tmp_path / "run")
    with pytest.raises(UserError, match=rf"{name}: damaged"):
        other.restore_data(tmp_path / "run", {"splits": ["train"]})


def test_a_batch_has_its_examples_and_fills_up_with_them(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos))
    indices = np.array([4, 1, 0])
    batch = images.collate("test", BatchSpec(indices, rows=5, length=5))
    assert (batch.pixels[:3].numpy() == images.pixels["test"].take(indices)).all()
    assert batch.targets.ravel().tolist() == [1, 0, 0, IGNORED, IGNORED]
    assert batch.counts == {"loss": 3, "nll": 3}
    assert batch.seeds[3:].tolist() == [MISSING, MISSING]
    assert torch.equal(batch.pixels[3:], batch.pixels[:2])


def test_batch_tokens_count_the_patches_of_images(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos))
    assert set(images.lengths("train")) == {2 * 2 + 1}
    assert BatchSampler(images.lengths("train"), tokens=40, seed=0).shapes == [(8, 5)]


@pytest.mark.parametrize("image", [
    Image(size=8, patch=4), Image(size=8, patch=4, class_token=False), Image(size=16, patch=4, stem="convolutions"),
    Image(size=20, patch=4, stem="resnet", stages=(1, 1)), Image(size=9, patch=1, stem="resnet", stages=(1, 1, 1)),
])
def test_the_length_of_an_image_is_the_number_of_places_in_the_encoder(image: Image) -> None:
    tower = Tower(image=image, width=16, depth=1, heads=2, positions="learned")
    inputs = image_encoder(tower).inputs
    assert image.places == inputs.before + inputs.grid[0] * inputs.grid[1]


def test_the_seed_of_an_example_depends_on_the_run_the_epoch_and_the_example(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos))

    def seeds(*indices: int, epoch: int = 0) -> list[int]:
        return images.collate("train", BatchSpec(np.array(indices), len(indices), 5, epoch)).seeds.tolist()

    assert seeds(3, 1, 2) == [*seeds(3), *seeds(1), *seeds(2)]
    assert len({*seeds(1, 2, 3), *seeds(1, 2, 3, epoch=1)}) == 6
    images.run = replace(images.run, seed=7)
    assert seeds(1) != LabelledImages(run_on(photos)).run.seed
    assert torch.tensor(seeds(*range(9))).unique().numel() == 9


def test_images_with_several_labels_have_a_target_for_each(tmp_path: Path) -> None:
    folder_of(tmp_path / "pictures", {"a": 6})
    lines = [f"pictures/a/{place:03}.png,\"{labels}\"" for place, labels in enumerate(
        ("red,round", "red", "", "round", "blue,red", "blue"))]
    (tmp_path / "train.csv").write_text("\n".join(["path,labels", *lines]))
    images = prepared(tmp_path / "run", run_on(tmp_path / "train.csv", multi_label=True, held_out=0.2))
    assert images.labels == ["blue", "red", "round"]
    every = {one.path: one.labels for split in ("val",) for one in images.of(split)}
    assert images.targets["train"].shape == (6 - len(every), 3)
    wanted = [[int(label in labels) for label in images.labels] for labels in every.values()]
    assert images.targets["val"].tolist() == wanted


def test_bad_images_are_left_out_and_named(tmp_path: Path, photos: Path) -> None:
    (photos / "train" / "cat" / "003.png").write_bytes(b"")
    (photos / "train" / "dog" / "extra.jpg").write_text("to be, or not to be")
    (photos / "test" / "dog" / "000.png").write_bytes((photos / "test" / "dog" / "001.png").read_bytes()[:50])
    images = prepared(tmp_path / "run", run_on(photos))
    left_out = [note for note in images.notes if "left out" in note]
    text = " ".join(left_out)
    assert "003.png: the file is empty" in text
    assert "extra.jpg: not an image that can be read; it looks like text" in text
    assert "1 of 5 images of test cannot be read and is left out" in text
    assert [example.wanted for example in images.examples("test")] == ["cat"] * 2 + ["dog"] * 2
    assert len(images.lengths("train")) + len(images.lengths("val")) == 20


def test_more_bad_images_than_good_ones_are_refused(tmp_path: Path, photos: Path) -> None:
    for place in range(3):
        (photos / "test" / "dog" / f"{place:03}.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"3 of 5 images of test cannot be read: .*000.png: the file is empty"):
        prepared(tmp_path / "run", run_on(photos))


def test_a_label_that_loses_all_its_images_is_refused(tmp_path: Path, photos: Path) -> None:
    folder_of(photos / "train", {"newt": 1})
    (photos / "train" / "newt" / "000.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"no image of the label 'newt' .*newt/000.png: the file is empty"):
        prepared(tmp_path / "run", run_on(photos))


def test_images_of_the_test_that_are_also_in_train_are_counted(tmp_path: Path, photos: Path) -> None:
    for place, content in enumerate((photos / "train" / "cat").iterdir()):
        (photos / "test" / "dog" / f"again{place}.png").write_bytes(content.read_bytes())
    images = prepared(tmp_path / "run", run_on(photos, held_out=0.01))
    known = [note for note in images.notes if "also in train" in note]
    val = images.of("val")[0].path
    assert known == [f"{12 if '/dog/' in val else 11} of 17 images of test are also in train"]


def test_other_data_is_measured_under_its_own_name(tmp_path: Path, photos: Path) -> None:
    images = prepared(tmp_path / "run", run_on(photos))
    other = folder_of(tmp_path / "other", {"dog": 2, "cat": 1}, seed=5)
    assert images.add_test_data([other]) == [str(other)]
    assert [example.wanted for example in images.examples(str(other))] == ["cat", "dog", "dog"]
    assert images.collate(str(other), BatchSpec(np.array([2]), 1, 5)).targets.tolist() == [[1]]
    folder_of(other, {"newt": 1})
    with pytest.raises(UserError, match="unknown label 'newt'; the model knows cat, dog"):
        images.add_test_data([other])
