"""CaptionedImages: images and their captions become examples and batches of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from regard.data import tokenizer as tokenizers
from regard.data.batch import Batch, BatchSpec
from regard.data.builtin import scenes
from regard.data.dataset import MAX_FIRST_EXAMPLE, Dataset, Example, Regions, Sizes, no_such_split
from regard.data.images.decode import ImageFile
from regard.data.images.digest import digest_of
from regard.data.images.files import ImageCorpus, read_captioned, read_captioned_tests
from regard.data.images.pixels import filled
from regard.data.images.seeds import MISSING, seeds
from regard.data.images.store import Kept, Pixels, load_store, notes_on, save_pixels, write_stores
from regard.data.labelled import Columns
from regard.data.prepared import keep_lines, kept_lines, refuse_uneven
from regard.data.ragged import Ragged, damaged, mapped
from regard.data.text.targets import Ids, encoded, targets_of
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.opening import replacing
from regard.settings.schema import Image, Run

__all__ = ["CaptionBatch", "Captioned", "CaptionedImages"]

BUILT_IN_CHECK = 1_000  # built-in images in the validation set and in each test set
ROUND = 64  # vocabularies are multiples of this, as matrix units want


@dataclass(frozen=True)
class CaptionBatch(Batch):
    """Pixels as they were prepared, what the decoder reads, and what it should write: the same shifted by one."""

    pixels: UInt8[Tensor, "rows channels size size"]
    read: Int[Tensor, "rows target"]
    write: Int[Tensor, "rows target"]
    seeds: Int[Tensor, " rows"]
    """A random number for each example, by which it is augmented; MISSING where a row only fills the batch."""


@dataclass(frozen=True)
class Captioned:
    """The name of an image and its captions."""

    path: str
    captions: tuple[str, ...]


class CaptionedImages(Dataset[ImageFile, CaptionBatch]):
    """Images with one or more captions.

    In training each caption is an example. Its length is that of the caption and of all vectors that an encoder makes
    of an image: `train.batch_tokens` counts both. For a person an image is one example, whose captions are all right.
    """

    tokens: Tokenizer

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.tokens.file is not None:
            raise UserError(f"tokens.file={run.tokens.file}: captions have tokens learned from themselves; leave it "
                            "out")
        self.pixels: dict[str, Pixels] = {}
        self.named: dict[str, Sequence[Captioned]] = {}  # of every split but train
        self.ids: dict[str, Ragged] = {}
        self.image_of: dict[str, NDArray[np.int32]] = {}
        """The number of each caption's image."""

    @property
    def image(self) -> Image:
        assert self.run.model.image is not None
        return self.run.model.image

    # Files -> examples

    def make_data(self, folder: Path) -> dict[str, Any]:
        named = self._read(folder / "data") if self.run.data.paths else self._built_in(folder / "data")
        self._learn_tokens([text for one in named["train"] for text in one.captions])
        self.tokens.save(folder / "tokenizer.json")
        for split, its in named.items():
            cache = folder / "data"
            self._encoded(its, split).save(cache / f"{split}.target")
            with replacing(cache / f"{split}.image_of.npy") as file:
                np.save(file, _image_of(its), allow_pickle=False)
            if split != "train":
                keep_lines(cache / f"{split}.jsonl", ([one.path, one.captions] for one in its))
        first = named["train"][0]
        return {"splits": list(named), "notes": self.notes,
                "first": f"{first.path} → {first.captions[0][:MAX_FIRST_EXAMPLE]}"}

    def _read(self, cache: Path) -> dict[str, list[Captioned]]:
        corpus = read_captioned([Path(path) for path in self.run.data.paths], self._columns(),
                                share=self.run.data.held_out)
        kept = self._store(corpus, {split: cache / f"{split}.pixels.npy" for split in corpus.splits})
        return {split: _named(its) for split, its in kept.items()}

    def _store(self, corpus: ImageCorpus, files: Mapping[str, Path]) -> dict[str, Kept]:
        kept = write_stores(corpus.splits, files, self.image)
        self.notes += [*corpus.notes, *notes_on(kept, have_labels=False)]
        for split, its in kept.items():
            if not its.found:
                raise UserError(f"{split}: none of its images can be read: {its.bad[0][1]}")
        return kept

    def _built_in(self, cache: Path) -> dict[str, list[Captioned]]:
        size, found = self.run.data.built_in_size, dict[str, list[Captioned]]()
        for split in scenes.SPLITS:
            made = scenes.captioned(split, size if split == "train" else min(BUILT_IN_CHECK, size), self.image.size)
            save_pixels(cache / f"{split}.pixels.npy", made.pixels, grey=self.image.grey)
            found[split] = [Captioned(f"{split} {number}", (text,)) for number, text in enumerate(made.captions)]
        return found

    def _columns(self) -> Columns:
        return Columns(self.run.data.source, self.run.data.target, False)

    def _learn_tokens(self, texts: Sequence[str]) -> None:
        how = self.run.tokens
        if how.file is not None:  # of a run whose data is prepared again: its tokens were restored
            return
        self.tokens = tokenizers.train(texts, kind=how.kind, vocabulary=how.vocabulary, lowercase=how.lowercase)

    def _encoded(self, named: Sequence[Captioned], split: str) -> Ragged:
        return self.encode([text for one in named for text in one.captions], "caption", split)

    def encode(self, texts: Sequence[str], thing: str, split: str | None = None) -> Ragged:
        """Ids with the end after them, cut to the longest length."""
        return encoded(self.tokens, texts, longest=self.run.data.max_tokens, notes=self.notes, thing=thing, split=split)

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        return {"targets": -(-len(self.tokens) // ROUND) * ROUND}

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        cache = folder / "data"
        for split in about["splits"]:
            store, ids = load_store(cache / f"{split}.pixels.npy", self.image), Ragged.load(
                cache / f"{split}.target", least=0, below=len(self.tokens))
            image_of = mapped(cache / f"{split}.image_of.npy", np.int32)
            if len(image_of) and not 0 <= image_of.min() <= image_of.max() < len(store):
                raise damaged(cache / f"{split}.image_of.npy", "its captions are not those of the images")
            refuse_uneven(cache / f"{split}.image_of.npy", len(image_of), len(ids))
            self.pixels[split], self.ids[split], self.image_of[split] = store, ids, image_of
            if split != "train":
                file = cache / f"{split}.jsonl"
                self.named[split] = [_line(line, file) for line in kept_lines(file)]
                refuse_uneven(file, len(store), len(self.named[split]))

    def fingerprint(self) -> str:
        return digest_of(self.run, self._columns(), asdict(self.run.tokens))

    # Examples

    def splits(self) -> Sequence[str]:
        return list(self.pixels)

    def lengths(self, split: str) -> NDArray[np.int64]:
        return self.ids[split].lengths + self.image.places

    def of(self, split: str) -> Sequence[Captioned]:
        """The names and captions of a split other than train."""
        if split not in self.named:
            raise no_such_split(split, list(self.named))
        return self.named[split]

    def examples(self, split: str, limit: int | None = None) -> list[Example[ImageFile]]:
        """Images as they were prepared, each with the first of its captions."""
        named = self.of(split)[:limit]
        pixels = self.pixels[split].take(np.arange(len(named)))
        return [Example(ImageFile.of(one.path, its, is_fitted=True), one.captions[0])
                for one, its in zip(named, pixels, strict=True)]

    def regions(self, split: str, limit: int) -> list[Regions] | None:
        """Of the built-in data, which is made with them."""
        if self.run.data.paths or split not in scenes.SPLITS:
            return None
        return [scene.boxes for scene in scenes.scenes(split, min(limit, len(self.of(split))))]

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        own, added = self._columns(), list[str]()
        columns = own._replace(source=source or own.source, target=target or own.target)
        for path in paths:
            corpus = read_captioned_tests(path, columns)
            # Mapped files live until they are closed, also without a name.
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                files = {split: Path(folder, f"{number}.npy") for number, split in enumerate(corpus.splits)}
                for split, its in self._store(corpus, files).items():
                    self.add(split, load_store(files[split], self.image), _named(its))
                    added.append(split)
        return added

    def add(self, name: str, pixels: Pixels, named: Sequence[Captioned]) -> None:
        """Add a split, for the lifetime of this object."""
        self.pixels[name], self.named[name] = pixels, named
        self.ids[name], self.image_of[name] = self._encoded(named, name), _image_of(named)

    # Examples -> batches

    def collate(self, split: str, chosen: BatchSpec) -> CaptionBatch:
        indices = chosen.indices
        return self._padded(
            self.pixels[split].take(self.image_of[split][indices].astype(np.int64)),
            [self.ids[split][place] for place in indices.tolist()], rows=chosen.rows,
            length=max(1, chosen.length - self.image.places), seeds=seeds(self.run.seed, chosen.epoch, indices))

    def batches(self, inputs: Sequence[ImageFile], outputs: Sequence[str], *, rows: int) -> Iterator[CaptionBatch]:
        """Images with the outputs to give to them, a few at a time."""
        targets = list(self.encode(outputs, "output"))
        for start in range(0, len(inputs), rows):
            yield self.batch(inputs[start : start + rows], targets[start : start + rows])

    def batch(self, inputs: Sequence[ImageFile], targets: Sequence[Ids]) -> CaptionBatch:
        return self._padded(self.read(inputs), targets, rows=len(inputs), length=max(map(len, targets)))

    def read(self, inputs: Sequence[ImageFile]) -> UInt8[np.ndarray, "inputs channels size size"]:
        return np.stack([given.pixels(self.image) for given in inputs])

    def _padded(self, pixels: UInt8[np.ndarray, "there channels size size"], targets: Sequence[Ids], *, rows: int,
                length: int, seeds: Int[np.ndarray, " there"] | None = None) -> CaptionBatch:
        there, every = len(pixels), filled(pixels, rows)
        numbers = torch.full((rows,), MISSING)
        numbers[:there] = torch.from_numpy(np.zeros(there, np.int64) if seeds is None else seeds)
        read, write, count = targets_of(targets, tokens=self.tokens, rows=rows, length=length)
        return CaptionBatch({"loss": count, "nll": count}, every, read, write, numbers)


def _image_of(named: Sequence[Captioned]) -> NDArray[np.int32]:
    return np.repeat(np.arange(len(named), dtype=np.int32), [len(one.captions) for one in named])


def _named(kept: Kept) -> list[Captioned]:
    return [Captioned(found.tree.place(found.name), found.texts) for found in kept.found]


def _line(kept: object, path: Path) -> Captioned:
    match kept:
        case [str(name), [*captions]] if captions and all(isinstance(text, str) for text in captions):
            return Captioned(name, tuple(map(str, captions)))
    raise damaged(path, "a line is not an image with its captions")
