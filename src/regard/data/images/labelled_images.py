"""LabelledImages: images and their labels become examples and batches of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from regard.checkpoint import read_labels, write_json
from regard.data.batch import IGNORED, Batch, BatchSpec
from regard.data.builtin import scenes
from regard.data.dataset import Dataset, Example, Sizes, no_such_split
from regard.data.images.decode import ImageFile
from regard.data.images.digest import digest_of
from regard.data.images.files import Found, labels_in, read_labelled, read_tests
from regard.data.images.pixels import filled
from regard.data.images.seeds import MISSING, seeds
from regard.data.images.store import Kept, Pixels, load_store, notes_on, save_pixels, write_stores
from regard.data.labelled import Columns, some
from regard.data.prepared import keep_lines, kept_lines, refuse_uneven
from regard.data.ragged import damaged, mapped
from regard.settings.errors import UserError
from regard.settings.opening import replacing
from regard.settings.schema import Data, Image, Run

__all__ = ["ImageBatch", "LabelledImages", "Named"]

LABELS = "labels.json"
BETWEEN = ", "  # separates several labels of one image
BUILT_IN_CHECK = 1_000  # built-in images in the validation set and in each test set


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Pixels as they were prepared, and the target labels."""

    pixels: UInt8[Tensor, "rows channels size size"]
    targets: Int[Tensor, "rows places"]
    seeds: Int[Tensor, " rows"]
    """A random number for each example, by which it is augmented: a function of the run's seed, the epoch and the
    example. MISSING (−1) where a row is only there to fill the batch."""


@dataclass(frozen=True)
class Named:
    """The name of an image and its labels."""

    path: str
    labels: tuple[str, ...]


class LabelledImages(Dataset[ImageFile, ImageBatch]):
    """Images with labels.

    The length of an image is the number of vectors that an encoder makes of it: `train.batch_tokens` counts these.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.pixels: dict[str, Pixels] = {}
        self.targets: dict[str, Int[np.ndarray, "examples places"]] = {}
        self.named: dict[str, Sequence[Named]] = {}  # of every split but train
        self.labels: list[str] = []

    @property
    def image(self) -> Image:
        assert self.run.model.image is not None
        return self.run.model.image

    # Files -> pixels

    def make_data(self, folder: Path) -> dict[str, Any]:
        paths = [Path(path) for path in self.run.data.paths]
        if not paths:
            return self._make_built_in(folder)
        corpus = read_labelled(paths, self._columns(), share=self.run.data.held_out)
        self._learn_labels(corpus.splits)
        kept = write_stores(corpus.splits, {split: folder / "data" / f"{split}.pixels.npy" for split in corpus.splits},
                            self.image)
        self.notes += [*corpus.notes, *notes_on(kept)]
        write_json(folder / LABELS, {"labels": self.labels})
        for split, its in kept.items():
            if not its.found:
                raise UserError(f"{split}: none of its images can be read: {its.bad[0][1]}")
            self._keep(split, _named(its), folder)
        first = kept["train"].found[0]
        self.first = f"{first.tree.place(first.name)} → {', '.join(first.texts) or 'no label'}"
        return {"splits": list(kept), "notes": self.notes, "first": self.first}

    def _keep(self, split: str, named: Sequence[Named], folder: Path) -> None:
        with replacing(folder / "data" / f"{split}.targets.npy") as file:
            np.save(file, self._targets_of(named).ravel(), allow_pickle=False)
        if split != "train":
            keep_lines(folder / "data" / f"{split}.jsonl", ([one.path, one.labels] for one in named))

    def _make_built_in(self, folder: Path) -> dict[str, Any]:
        """Scenes, each with the shape of its large thing."""
        if not set(scenes.SHAPES).issuperset(self.labels):  # of a converted run
            raise UserError(f"the built-in images have the labels {some(scenes.SHAPES)}; the run has learned "
                            f"{some(self.labels)}; `regard eval --data FOLDER` measures it on others")
        self.labels = self.labels or sorted(scenes.SHAPES)
        write_json(folder / LABELS, {"labels": self.labels})
        size = self.run.data.built_in_size
        for split in scenes.SPLITS:
            made = scenes.labelled(split, size if split == "train" else min(BUILT_IN_CHECK, size), self.image.size)
            named = [Named(f"{split} {number}", (scenes.SHAPES[label],)) for number, label in enumerate(made.labels)]
            save_pixels(folder / "data" / f"{split}.pixels.npy", made.pixels, grey=self.image.grey)
            self._keep(split, named, folder)
            self.first = self.first or f"{named[0].path} → {named[0].labels[0]}"
        return {"splits": list(scenes.SPLITS), "notes": self.notes, "first": self.first}

    def restore(self, folder: Path) -> Sizes:
        self.labels = read_labels(folder / LABELS)
        return {"labels": len(self.labels)}

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        cache, places, most = folder / "data", self.target_places, 1 if self.several else len(self.labels) - 1
        for split in about["splits"]:
            store, flat = load_store(cache / f"{split}.pixels.npy", self.image), mapped(
                cache / f"{split}.targets.npy", np.int32)
            if len(flat) != len(store) * places or (len(flat) and not 0 <= flat.min() <= flat.max() <= most):
                raise damaged(cache / f"{split}.targets.npy", "its labels are not those of the images")
            self.pixels[split], self.targets[split] = store, flat.reshape(len(store), places)
            if split != "train":
                file = cache / f"{split}.jsonl"
                self.named[split] = [_line(line, file) for line in kept_lines(file)]
                refuse_uneven(file, len(store), len(self.named[split]))

    def fingerprint(self) -> str:
        return digest_of(self.run, self._columns())

    def _columns(self) -> Columns:
        return Columns(self.run.data.source, self.run.data.target, self.several)

    def _learn_labels(self, splits: Mapping[str, Sequence[Found]]) -> None:
        known = {label for found in splits["train"] for label in found.texts}
        if not known.issubset(self.labels or known):  # a converted run, without its data
            raise UserError(f"train: has the labels {some(sorted(known))}; the run has learned {some(self.labels)}; "
                            "`regard eval --data FOLDER` measures it on others")
        self.labels = self.labels or sorted(known, key=_rank)  # a converted model has its own order

    def stand_for(self, data: Data) -> Sizes:
        self.labels = labels_in([Path(path) for path in data.paths], Columns(data.source, data.target, self.several))
        self.targets = {split: np.zeros((len(its), self.target_places), np.int32) for split, its in self.pixels.items()}
        return {"labels": len(self.labels)}

    # Examples

    @property
    def several(self) -> bool:
        """Whether an image has any number of labels."""
        return self.run.data.multi_label

    @property
    def target_places(self) -> int:
        """The number of targets of an image: its label, or 0 or 1 for each label."""
        return len(self.labels) if self.several else 1

    @property
    def length(self) -> int:
        return self.image.places

    def splits(self) -> Sequence[str]:
        return list(self.pixels)

    def lengths(self, split: str) -> NDArray[np.int64]:
        return np.full(len(self.pixels[split]), self.length, np.int64)

    def of(self, split: str) -> Sequence[Named]:
        """The names and labels of a split other than train."""
        if split not in self.named:
            raise no_such_split(split, list(self.named))
        return self.named[split]

    def examples(self, split: str, limit: int | None = None) -> list[Example[ImageFile]]:
        """Images as they were prepared."""
        named = self.of(split)[:limit]
        pixels = self.pixels[split].take(np.arange(len(named)))
        return [Example(ImageFile.of(one.path, its, is_fitted=True),
                        BETWEEN.join(sorted(one.labels, key=self.labels.index)))
                for one, its in zip(named, pixels, strict=True)]

    def add(self, name: str, pixels: Pixels, named: Sequence[Named]) -> None:
        """Add a split, for the lifetime of this object."""
        self.pixels[name], self.named[name], self.targets[name] = pixels, named, self._targets_of(named)

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        own = self._columns()
        columns = own._replace(source=source or own.source, target=target or own.target)
        added = list[str]()
        for path in paths:
            corpus = read_tests(path, columns, self.labels)
            # Mapped files live until they are closed, also without a name.
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                files = {split: Path(folder, f"{number}.npy") for number, split in enumerate(corpus.splits)}
                kept = write_stores(corpus.splits, files, self.image)
                self.notes += [*corpus.notes, *notes_on(kept)]
                for split, its in kept.items():
                    if not its.found:
                        raise UserError(f"{split}: none of its images can be read: {its.bad[0][1]}")
                    self.add(split, load_store(files[split], self.image), _named(its))
            added += kept
        return added

    # Pixels -> batches

    def collate(self, split: str, chosen: BatchSpec) -> ImageBatch:
        indices = chosen.indices
        return self.batch(self.pixels[split].take(indices), self.targets[split][indices], rows=chosen.rows,
                          seeds=seeds(self.run.seed, chosen.epoch, indices))

    def batch(self, pixels: UInt8[np.ndarray, "there channels size size"], targets: Int[np.ndarray, "there places"], *,
              rows: int, seeds: Int[np.ndarray, " there"] | None = None) -> ImageBatch:
        """Missing rows do not count, nor do targets that are IGNORED."""
        there, every = len(pixels), filled(pixels, rows)
        wanted = torch.full((rows, self.target_places), IGNORED)
        wanted[:there] = torch.from_numpy(targets.astype(np.int64))
        numbers = torch.full((rows,), MISSING)
        numbers[:there] = torch.from_numpy(np.zeros(there, np.int64) if seeds is None else seeds)
        counted = int((wanted != IGNORED).sum())
        return ImageBatch({"loss": counted, "nll": counted}, every, wanted, numbers)

    def targets_of(self, has: Sequence[int]) -> list[int]:
        """The number of the label; for several labels, 0 or 1 for each."""
        return [int(number in has) for number in range(len(self.labels))] if self.several else list(has)

    def _targets_of(self, named: Iterable[Named]) -> Int[np.ndarray, "examples places"]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        rows = [self.targets_of([numbers[label] for label in one.labels]) for one in named]
        return np.array(rows, np.int32).reshape(len(rows), self.target_places)


def _named(kept: Kept) -> list[Named]:
    return [Named(found.tree.place(found.name), found.texts) for found in kept.found]


def _line(kept: object, path: Path) -> Named:
    match kept:
        case [str(name), [*labels]] if all(isinstance(label, str) for label in labels):
            return Named(name, tuple(map(str, labels)))
    raise damaged(path, "a line is not an image with its labels")


def _rank(label: str) -> tuple[bool, int, str]:
    """Numbers in their order, then words.

    >>> sorted(["10", "9", "cat"], key=_rank)
    ['9', '10', 'cat']
    """
    is_number = label.isascii() and label.isdigit() and len(label) < 10
    return not is_number, int(label) if is_number else 0, label
