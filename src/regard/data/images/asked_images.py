"""AskedImages: questions about images and their answers become examples and batches of mixed sequences."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from regard.data import tokenizer as tokenizers
from regard.data.batch import IGNORED, Batch, BatchSpec
from regard.data.builtin import scenes
from regard.data.dataset import MAX_FIRST_EXAMPLE, Dataset, Example, Regions, Sizes, no_such_split
from regard.data.images.decode import ImageFile
from regard.data.images.digest import digest_of
from regard.data.images.files import ImageCorpus, read_asked, read_asked_tests
from regard.data.images.image_question import MARK, ImageQuestion
from regard.data.images.pixels import filled
from regard.data.images.seeds import MISSING, seeds
from regard.data.images.store import Kept, Pixels, load_store, notes_on, save_pixels, write_stores
from regard.data.labelled import Columns
from regard.data.prepared import keep_lines, kept_lines, refuse_uneven
from regard.data.ragged import Ragged, damaged, mapped
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError, out_of
from regard.settings.opening import replacing
from regard.settings.schema import Image, Run

__all__ = ["Asked", "AskedImages", "MixedBatch", "MixedRow"]

BUILT_IN_CHECK = 1_000  # built-in questions in the validation set and in each test set
BUILT_IN_EACH = 5  # questions about a built-in training image
ROUND = 64  # vocabularies are multiples of this, as matrix units want


@dataclass(frozen=True)
class MixedBatch(Batch):
    """Sequences with one image in each."""

    pixels: UInt8[Tensor, "rows channels size size"]
    read: Int[Tensor, "rows length"]
    """Tokens; those in the places of an image mean nothing."""
    spans: Int[Tensor, "rows length"]
    """1 where the patches of the image stand, 0 for text."""
    write: Int[Tensor, "rows length"]
    """The next token of each place of an answer; IGNORED at the others."""
    seeds: Int[Tensor, " rows"]
    """A random number for each example, by which it is augmented; MISSING where a row only fills the batch."""


class Asked(NamedTuple):
    """A question about an image, by the image's number, and its answer."""

    path: str
    image: int
    question: str
    answer: str


class MixedRow(NamedTuple):
    """A sequence of text, and the place in it where the image stands."""

    ids: Sequence[int]
    image_at: int


class AskedImages(Dataset[ImageQuestion, MixedBatch]):
    """Images with questions and answers.

    In training all questions about an image that fit into `data.max_tokens` are one sequence, one after the other; a
    test asks each of them separately. A question, the start token, its answer and the end token follow each other. The
    length of a sequence is that of its text and of all vectors that are made of an image.
    """

    tokens: Tokenizer

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.tokens.file is not None:
            raise UserError(f"tokens.file={run.tokens.file}: questions have tokens learned from themselves; leave it "
                            "out")
        self.pixels: dict[str, Pixels] = {}
        self.asked: dict[str, Sequence[Asked]] = {}  # of every split but train
        self.ids: dict[str, Ragged] = {}
        """The text of each example; one more number than there are tokens stands for its image."""
        self.image_of: dict[str, NDArray[np.int32]] = {}

    @property
    def image(self) -> Image:
        assert self.run.model.image is not None
        return self.run.model.image

    # Files -> examples

    def make_data(self, folder: Path) -> dict[str, Any]:
        cache = folder / "data"
        asked = self._read(cache) if self.run.data.paths else self._built_in(cache)
        how = self.run.tokens
        self.tokens = tokenizers.train(
            (text.replace(MARK, " ") for one in asked["train"] for text in (one.question, one.answer)),
            kind=how.kind, vocabulary=how.vocabulary, lowercase=how.lowercase)
        self.tokens.save(folder / "tokenizer.json")
        asked["train"] = _shuffled(asked["train"])
        for split, its in asked.items():
            ids, image_of = self._sequences(its, split)
            ids.save(cache / f"{split}.text")
            with replacing(cache / f"{split}.image_of.npy") as file:
                np.save(file, image_of, allow_pickle=False)
            if split != "train":
                keep_lines(cache / f"{split}.jsonl", map(list, its))
        first = asked["train"][0]
        return {"splits": list(asked), "notes": self.notes,
                "first": f"{first.path}: {first.question} → {first.answer}"[:MAX_FIRST_EXAMPLE]}

    def _read(self, cache: Path) -> dict[str, list[Asked]]:
        corpus = read_asked([Path(path) for path in self.run.data.paths], self._columns(),
                            share=self.run.data.held_out)
        kept = self._store(corpus, {split: cache / f"{split}.pixels.npy" for split in corpus.splits})
        return {split: _asked(its) for split, its in kept.items()}

    def _store(self, corpus: ImageCorpus, files: Mapping[str, Path]) -> dict[str, Kept]:
        kept = write_stores(corpus.splits, files, self.image)
        self.notes += [*corpus.notes, *notes_on(kept, have_labels=False)]
        for split, its in kept.items():
            if not its.found:
                raise UserError(f"{split}: none of its images can be read: {its.bad[0][1]}")
            for found in its.found:
                if any(question.count(MARK) > 1 for question in found.texts[::2]):
                    raise UserError(f"{found.place}: {MARK} stands in a question twice; a question is about one image")
        return kept

    def _built_in(self, cache: Path) -> dict[str, list[Asked]]:
        size, found = self.run.data.built_in_size, dict[str, list[Asked]]()
        for split in scenes.SPLITS:
            is_train = split == "train"
            made = scenes.asked_often(split, size if is_train else min(BUILT_IN_CHECK, size), self.image.size,
                                      most=BUILT_IN_EACH if is_train else 1)
            save_pixels(cache / f"{split}.pixels.npy", made.pixels, grey=self.image.grey)
            found[split] = [Asked(f"{split} {number}", number, each.text, each.answer)
                            for number, its in enumerate(made.questions) for each in its]
        return found

    def _columns(self) -> Columns:
        return Columns(self.run.data.source, self.run.data.target, False)

    def _sequences(self, asked: Sequence[Asked], split: str) -> tuple[Ragged, NDArray[np.int32]]:
        """Texts and the numbers of their images."""
        whole, image_of = list[list[int]](), list[int]()
        longest = self.run.data.max_tokens if split == "train" else 0
        for one, row in zip(asked, self.rows([each.question for each in asked], [each.answer for each in asked], split),
                            strict=True):
            text = list(row.ids)
            if image_of and image_of[-1] == one.image and len(whole[-1]) + len(text) <= longest + 1:
                whole[-1] += text
            else:
                text.insert(row.image_at, len(self.tokens))
                whole.append(text)
                image_of.append(one.image)
        return Ragged.of(whole), np.array(image_of, np.int32)

    def rows(self, questions: Sequence[str], answers: Sequence[str], split: str | None = None) -> list[MixedRow]:
        """A question, the start, its answer and the end; the parts are cut so that these fit."""
        longest = max(1, self.run.data.max_tokens // 2 - 1)
        before, after = (self.tokens.encode([_part(text, side) for text in questions]) for side in (0, 1))
        found, cut = list[MixedRow](), 0
        for head, tail, answer in zip(before, after, self.tokens.encode(list(answers)), strict=True):
            question = [*head, *tail]
            cut += len(question) > longest or len(answer) > longest
            found.append(MixedRow([*question[:longest], self.tokens.start, *answer[:longest], self.tokens.end],
                                  min(len(head), longest)))
        of_split = "" if split is None else f" of {split}"
        self.notes.count_up("question" + of_split, cut, len(found), lambda part, every, _: (
            f"{out_of(part, every, 'question')}{of_split} cut: a question and an answer may each have half of "
            f"data.max_tokens={self.run.data.max_tokens} tokens"))
        return found

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        return {"vocabulary": -(-len(self.tokens) // ROUND) * ROUND}

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        cache = folder / "data"
        for split in about["splits"]:
            store = load_store(cache / f"{split}.pixels.npy", self.image)
            ids = Ragged.load(cache / f"{split}.text", least=0, below=len(self.tokens) + 1)
            image_of = mapped(cache / f"{split}.image_of.npy", np.int32)
            if len(image_of) and not 0 <= image_of.min() <= image_of.max() < len(store):
                raise damaged(cache / f"{split}.image_of.npy", "its questions are not those of the images")
            refuse_uneven(cache / f"{split}.image_of.npy", len(image_of), len(ids))
            if int((ids.flat == len(self.tokens)).sum()) != len(ids):
                raise damaged(cache / f"{split}.text.ids.npy", "a row has not one place for its image")
            self.pixels[split], self.ids[split], self.image_of[split] = store, ids, image_of
            if split != "train":
                file = cache / f"{split}.jsonl"
                self.asked[split] = [_line(line, file) for line in kept_lines(file)]
                refuse_uneven(file, len(ids), len(self.asked[split]))

    def fingerprint(self) -> str:
        return digest_of(self.run, self._columns(), asdict(self.run.tokens))

    # Examples

    def splits(self) -> Sequence[str]:
        return list(self.pixels)

    def lengths(self, split: str) -> NDArray[np.int64]:
        return self.ids[split].lengths - 2 + self.image.places  # the last token is not read

    def of(self, split: str) -> Sequence[Asked]:
        """The questions of a split other than train."""
        if split not in self.asked:
            raise no_such_split(split, list(self.asked))
        return self.asked[split]

    def examples(self, split: str, limit: int | None = None) -> list[Example[ImageQuestion]]:
        """Questions about images as they were prepared."""
        asked = self.of(split)[:limit]
        pixels = self.pixels[split].take(np.array([one.image for one in asked], np.int64))
        return [Example(ImageQuestion(ImageFile.of(one.path, its, is_fitted=True), one.question), one.answer)
                for one, its in zip(asked, pixels, strict=True)]

    def regions(self, split: str, limit: int) -> list[Regions] | None:
        """Of the built-in data, which is made with them."""
        if self.run.data.paths or split not in scenes.SPLITS:
            return None
        asked = scenes.asked_often(split, min(limit, len(self.of(split))), 1, most=1)
        return [question.boxes for its in asked.questions for question in its]

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        own, added = self._columns(), list[str]()
        columns = own._replace(source=source or own.source, target=target or own.target)
        for path in paths:
            corpus = read_asked_tests(path, columns)
            # Mapped files live until they are closed, also without a name.
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                files = {split: Path(folder, f"{number}.npy") for number, split in enumerate(corpus.splits)}
                for split, its in self._store(corpus, files).items():
                    self.add(split, load_store(files[split], self.image), _asked(its))
                    added.append(split)
        return added

    def add(self, name: str, pixels: Pixels, asked: Sequence[Asked]) -> None:
        """Add a split, for the lifetime of this object."""
        self.pixels[name], self.asked[name] = pixels, asked
        self.ids[name], self.image_of[name] = self._sequences(asked, name)

    # Examples -> batches

    def collate(self, split: str, chosen: BatchSpec) -> MixedBatch:
        indices = chosen.indices
        rows = [self._row(self.ids[split][place]) for place in indices.tolist()]
        pixels = self.pixels[split].take(self.image_of[split][indices].astype(np.int64))
        return self.padded(rows, pixels, rows=chosen.rows, length=chosen.length,
                           seeds=seeds(self.run.seed, chosen.epoch, indices))

    def _row(self, text: NDArray[np.int32]) -> MixedRow:
        ids = text.tolist()
        at = ids.index(len(self.tokens))
        return MixedRow([*ids[:at], *ids[at + 1 :]], at)

    def batches(self, inputs: Sequence[ImageQuestion], outputs: Sequence[str], *, rows: int) -> Iterator[MixedBatch]:
        """Questions with the answers to give to them, a few at a time."""
        every = self.rows([given.question for given in inputs], outputs)
        for start in range(0, len(inputs), rows):
            yield self.batch(inputs[start : start + rows], every[start : start + rows])

    def batch(self, inputs: Sequence[ImageQuestion], rows: Sequence[MixedRow]) -> MixedBatch:
        length = max(len(row.ids) for row in rows) - 1 + self.image.places
        return self.padded(rows, self.read(inputs), rows=len(rows), length=length)

    def read(self, inputs: Sequence[ImageQuestion]) -> UInt8[np.ndarray, "inputs channels size size"]:
        return np.stack([given.image.pixels(self.image) for given in inputs])

    def padded(self, texts: Sequence[MixedRow], pixels: UInt8[np.ndarray, "there channels size size"], *, rows: int,
               length: int, seeds: Int[np.ndarray, " there"] | None = None) -> MixedBatch:
        """Sequences of this length; those that are missing have an image at their beginning, and count nothing."""
        there, places, tokens = len(pixels), self.image.places, self.tokens
        ids = np.full((rows, length + 1), tokens.pad, np.int64)
        spans = np.zeros((rows, length), np.int64)
        for row in range(rows):
            text, at = texts[row] if row < there else MixedRow((), 0)
            ids[row, : at] = text[:at]
            spans[row, at : at + places] = 1
            ids[row, at + places : len(text) + places] = text[at:]
        # A place is part of an answer if there are more starts up to it than ends.
        answers = (np.cumsum(ids == tokens.start, 1) > np.cumsum(ids == tokens.end, 1))[:, :-1]
        write = np.where(answers, ids[:, 1:], IGNORED)
        numbers = torch.full((rows,), MISSING)
        numbers[:there] = torch.from_numpy(np.zeros(there, np.int64) if seeds is None else seeds)
        count = int(answers.sum())
        return MixedBatch({"loss": count, "nll": count}, filled(pixels, rows), torch.from_numpy(ids[:, :-1].copy()),
                          torch.from_numpy(spans), torch.from_numpy(write), numbers)


def _part(question: str, side: int) -> str:
    """The text before the image, or after it. Without a mark all of it comes after.

    >>> [_part("a <image> b", side) for side in (0, 1)], [_part("b", side) for side in (0, 1)]
    (['a', 'b'], ['', 'b'])
    """
    before, mark, after = question.partition(MARK)
    return (before.strip(), after.strip())[side] if mark else ("", question)[side]


def _asked(kept: Kept) -> list[Asked]:
    return [Asked(found.tree.place(found.name), number, question, answer) for number, found in enumerate(kept.found)
            for question, answer in zip(found.texts[::2], found.texts[1::2], strict=True)]


def _shuffled(asked: Sequence[Asked]) -> list[Asked]:
    """The questions about each image in an order of their own: a model must not learn that of the file."""
    order = [hashlib.blake2b(f"{one.image}\0{one.question}".encode(), digest_size=8).digest() for one in asked]
    return [asked[place] for place in sorted(range(len(asked)), key=lambda place: (asked[place].image, order[place]))]


def _line(kept: object, path: Path) -> Asked:
    match kept:
        case [str(name), int(image), str(question), str(answer)]:
            return Asked(name, image, question, answer)
    raise damaged(path, "a line is not a question about an image")
