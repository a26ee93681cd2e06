"""From tables of captions to examples and batches: every caption with its image."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.images.drawings import drawn, packed
from regard.data.batch import BatchSampler, BatchSpec
from regard.data.builtin import scenes
from regard.data.images.captioned_images import CaptionedImages
from regard.data.images.decode import ImageFile
from regard.settings.errors import UserError
from regard.settings.schema import Data, Image, Run, Tokens, Tower

IMAGE = Image(size=8, patch=4, class_token=False, fit="stretch")
PLACES = 4
WORDS = ["dog", "cat", "bird", "fish", "man", "boat"]


def caption(image: int, number: int) -> str:
    return " ".join(["a", *[WORDS[(image + i) % 6] for i in range(1 + (image + number) % 4)]])


def write(folder: Path, split: str, images: range, *, each: int = 2) -> Path:
    lines = ["image,caption"]
    for image in images:
        name = f"{split}{image}.png"
        (folder / name).write_bytes(packed(drawn(image, (8, 8))))
        lines += [f"{name},{caption(image, number)}" for number in range(each)]
    file = folder / f"{split}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    write(folder, "train", range(10))
    write(folder, "val", range(10, 13), each=3)
    return folder


def run_on(*paths: Path, **data: object) -> Run:
    return Run(task="caption", model=Tower(image=IMAGE), tokens=Tokens(kind="words"),
               data=Data(paths=tuple(map(str, paths)), built_in_size=30, **data))  # type: ignore[arg-type]


def prepared(folder: Path, run: Run) -> CaptionedImages:
    folder.mkdir(exist_ok=True)
    images = CaptionedImages(run)
    images.prepare(folder)
    return images


def test_every_caption_is_an_example_with_its_image(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data))
    assert images.splits() == ["train", "val"]
    assert len(images.lengths("train")) == 20
    seen = set()
    plan = BatchSampler(images.lengths("train"), tokens=40, seed=0)
    for step in range(plan.steps_per_epoch):
        batch = images.collate("train", plan[step])
        for pixels, write in zip(batch.pixels, batch.write, strict=True):
            text = images.tokens.decode([write.tolist()])[0]
            if text:
                [image] = [n for n in range(10) if np.array_equal(np.asarray(drawn(n, (8, 8))).transpose(2, 0, 1),
                                                                  pixels.numpy())]
                assert text in {caption(image, 0), caption(image, 1)}
                seen.add((image, text))
    assert len(seen) == len({(image, caption(image, number)) for image in range(10) for number in range(2)})


def test_the_length_of_an_example_is_that_of_the_caption_and_of_the_image(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data))
    assert images.lengths("train")[:2].tolist() == [PLACES + len(caption(0, n).split()) + 1 for n in range(2)]
    batch = images.collate("train", BatchSpec(np.array([0, 1, 2]), 4, PLACES + 7))
    assert batch.read.shape == batch.write.shape == (4, 7)
    assert torch.equal(batch.read[:, 1:], batch.write[:, :-1].where(batch.read[:, 1:] != 0, 0))
    assert batch.counts["nll"] == int((batch.write != images.tokens.pad).sum())
    assert (batch.write[3] == images.tokens.pad).all()
    assert batch.seeds[3] == -1
    assert torch.equal(batch.pixels[3], batch.pixels[0])  # black would shift the statistics of a batch norm


def test_a_person_sees_an_image_once_with_its_first_caption(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data))
    examples = images.examples("val")
    assert [one.wanted for one in examples] == [caption(image, 0) for image in range(10, 13)]
    assert [one.captions for one in images.of("val")] == [tuple(caption(image, n) for n in range(3))
                                                          for image in range(10, 13)]
    assert np.array_equal(examples[0].input.pixels(IMAGE), np.asarray(drawn(10, (8, 8))).transpose(2, 0, 1))
    with pytest.raises(UserError, match=r"^test: no such split"):
        images.examples("test")


def test_prepared_captions_are_restored_as_they_were(tmp_path: Path, data: Path) -> None:
    first = prepared(tmp_path / "run", run_on(data))
    again = prepared(tmp_path / "run", run_on(data))
    assert again.named == first.named
    assert np.array_equal(again.image_of["train"], first.image_of["train"])
    assert [row.tolist() for row in again.ids["train"]] == [row.tolist() for row in first.ids["train"]]


@pytest.mark.parametrize("name", ["train.target.ids.npy", "train.image_of.npy", "val.pixels.npy", "val.jsonl"])
def test_damaged_captions_are_prepared_again(tmp_path: Path, data: Path, name: str,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    first = prepared(tmp_path / "run", run_on(data))
    file = tmp_path / "run" / "data" / name
    file.write_bytes(file.read_bytes()[:-3])
    again = prepared(tmp_path / "run", run_on(data))
    assert again.named == first.named
    assert "prepared again" in capsys.readouterr().err


def test_other_captions_or_tokens_are_other_data(tmp_path: Path, data: Path) -> None:
    run = run_on(data)
    before = CaptionedImages(run).fingerprint()
    assert CaptionedImages(replace(run, tokens=Tokens(kind="bpe"))).fingerprint() != before
    table = data / "train.csv"
    table.write_text(table.read_text().replace("a dog", "one dog"))
    assert CaptionedImages(run).fingerprint() != before


def test_long_captions_are_cut_with_a_note(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data, max_tokens=3))
    assert images.lengths("train").max() == PLACES + 3
    assert any("cut to data.max_tokens=3" in note for note in images.notes)


def test_an_image_that_cannot_be_read_is_left_out_with_its_captions(tmp_path: Path, data: Path) -> None:
    (data / "train3.png").write_bytes(b"no image")
    images = prepared(tmp_path / "run", run_on(data))
    assert len(images.pixels["train"]) == 9
    assert len(images.lengths("train")) == 18
    assert any("left out" in note and "train3.png" in note for note in images.notes)


def test_jsonl_may_have_a_list_of_captions(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    lines = []
    for image in range(8):
        (folder / f"{image}.png").write_bytes(packed(drawn(image)))
        lines.append(json.dumps({"image": f"{image}.png", "captions": [caption(image, 0), caption(image, 1)]}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    images = prepared(tmp_path / "run", run_on(folder / "captions.jsonl"))
    assert set(images.splits()) == {"train", "val"}
    assert len(images.lengths("train")) == 2 * len(images.pixels["train"])


def test_other_data_is_measured_with_all_its_captions(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data))
    other = tmp_path / "other"
    other.mkdir()
    table = write(other, "test", range(20, 24), each=5)
    [name] = images.add_test_data([table])
    assert [len(one.captions) for one in images.of(name)] == [5] * 4
    assert len(images.lengths(name)) == 20
    with pytest.raises(UserError, match="no caption; add one"):
        images.add_test_data([write_labels(tmp_path)])


def write_labels(folder: Path) -> Path:
    (folder / "x.png").write_bytes(packed(drawn(1)))
    file = folder / "empty.csv"
    file.write_text("image,caption\nx.png,\n")
    return file


def test_built_in_captions_are_those_of_the_scenes_with_their_regions(tmp_path: Path) -> None:
    images = prepared(tmp_path / "run", run_on())
    assert images.splits() == list(scenes.SPLITS)
    made = scenes.scenes("test", 30)
    assert [one.wanted for one in images.examples("test")] == [scene.caption for scene in made]
    assert images.regions("test", 5) == [scene.boxes for scene in made[:5]]
    assert images.regions("test", 10_000) == [scene.boxes for scene in made]


def test_captions_from_files_have_no_regions(tmp_path: Path, data: Path) -> None:
    assert prepared(tmp_path / "run", run_on(data)).regions("val", 5) is None


def test_given_outputs_become_batches_in_their_order(tmp_path: Path, data: Path) -> None:
    images = prepared(tmp_path / "run", run_on(data))
    given = [ImageFile(str(data / f"train{n}.png")) for n in range(5)]
    batches = list(images.batches(given, ["a dog", "a cat", "a", "a dog cat", "a bird"], rows=2))
    assert [len(batch.pixels) for batch in batches] == [2, 2, 1]
    told = [images.tokens.decode([row.tolist()])[0] for batch in batches for row in batch.write]
    assert told == ["a dog", "a cat", "a", "a dog cat", "a bird"]


def test_a_published_tokenizer_is_refused() -> None:
    with pytest.raises(UserError, match=r"^tokens\.file=gpt2: captions have tokens"):
        CaptionedImages(replace(run_on(), tokens=Tokens(file="gpt2")))
