"""rows: raw text, cut into rows of equal length without regard for where a document ends."""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.checkpoint import read_json, write_json
from regard.data import tokenizer as tokenizers
from regard.data.batch import Batch, Chosen
from regard.data.builtin import standard_library
from regard.data.corpus import Corpus, Found, Text, find_texts, pieces, read_corpus
from regard.data.progress import progress
from regard.data.shards import Counts, Shards, write_shards
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks.base import Example, Sizes, Task, no_such_split

__all__ = ["IGNORED", "RowBatch", "Rows"]

KEY = "key.json"  # of the cache: what it was made from
LEARN_FROM = 1 << 27  # characters that tokens are learned from, at the most: more text would not give others
IGNORED = -1  # a target that counts nothing
CONTEXT, WANTED = 48, 8  # tokens of an example: what is read, and what is to follow
BROKEN = "\ufffd"  # what part of a character is decoded to


@dataclass(frozen=True)
class RowBatch(Batch):
    """What the decoder reads, and what it should write: the same shifted by one."""

    read: Int[Tensor, "rows length"]
    write: Int[Tensor, "rows length"]


class Rows(Task[RowBatch]):
    """A task whose examples are places in a long text: the half of it that is about files, ids and rows."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.ids: dict[str, Shards] = {}
        self.counts: dict[str, Counts] = {}

    # Files -> ids

    def prepare(self, folder: Path) -> Sizes:
        cache = folder / "data"
        found = self._files()
        key = _digest(self.run, found)
        if (cache / KEY).exists() and read_json(cache / KEY)["key"] == key:
            return self.restore(folder)
        if (folder / "checkpoints").exists():
            raise UserError(f"{folder}: the data has changed since this run began; train anew with --out DIR")
        corpus = read_corpus(found, key=self.run.data.source or "text", held_out=self.run.data.held_out)
        self.notes += corpus.notes
        self.tokens = self._tokens(corpus.splits["train"])
        cache.mkdir(parents=True, exist_ok=True)
        for old in [cache / KEY, *cache.glob("*.npy")]:
            old.unlink(missing_ok=True)
        self.tokens.save(folder / "tokenizer.json")
        self._write(corpus, cache)
        # Last: where it is, the cache is whole.
        write_json(cache / KEY, {"key": key, "splits": {name: asdict(counts) for name, counts in self.counts.items()},
                                 "notes": self.notes})
        return self._sizes()

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        if (folder / "data" / KEY).exists():
            about = read_json(folder / "data" / KEY)
            self.notes = about["notes"]
            self.counts = {split: Counts(**counts) for split, counts in about["splits"].items()}
            self.ids = {split: Shards.load(folder / "data" / split, each.ids) for split, each in self.counts.items()}
        return self._sizes()

    def splits(self) -> Sequence[str]:
        return list(self.ids)

    def _files(self) -> list[Found]:
        data = self.run.data
        if data.paths:
            return find_texts([Path(path) for path in data.paths])
        return [Found(file) for file in standard_library.files(data.built_in_size)]

    def _tokens(self, text: Text) -> Tokenizer:
        how = self.run.tokens
        if how.file is not None:
            return Tokenizer.load(Path(how.file))
        every = math.ceil(text.characters / LEARN_FROM)
        parts = (piece for document in text.documents() for piece in pieces(document))
        with progress("learning the tokens", text.characters // every) as tell:
            learned = tokenizers.train(_told(itertools.islice(parts, 0, None, every), tell), kind=how.kind,
                                       vocabulary=how.vocabulary, lowercase=how.lowercase)
        if len(learned) < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{len(learned)} tokens are used")
        return learned

    def _write(self, corpus: Corpus, cache: Path) -> None:
        total = sum(text.characters for text in corpus.splits.values())
        with progress("encoding the text", total) as tell:
            for split, text in corpus.splits.items():
                self.counts[split] = write_shards(cache / split, text.documents(), self.tokens, tell)
                self.ids[split] = Shards.load(cache / split, self.counts[split].ids)

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"vocabulary": -(-len(self.tokens) // 64) * 64}

    # Ids -> rows

    def lengths(self, split: str) -> NDArray[np.int64]:
        whole, length = len(self.ids[split]), self._length(split)
        return np.full(-(-whole // length), length)

    def _length(self, split: str) -> int:
        """Of a row; a text that is shorter is one row by itself."""
        return min(self.run.data.longest, len(self.ids[split]))

    def collate(self, split: str, chosen: Chosen) -> RowBatch:
        """Rows of the ring that the split is. The last goes on past where the first began; there, nothing counts."""
        ids, length = self.ids[split], self._length(split)
        first = self._offset(chosen.epoch, length)
        whole = np.full((chosen.rows, chosen.length + 1), self.tokens.start, dtype=np.int64)
        write = np.full((chosen.rows, chosen.length), IGNORED, dtype=np.int64)
        for row, index in enumerate(chosen.indices.tolist()):
            whole[row, : length + 1] = ids.around(first + index * length, length + 1)
            once = min(length, len(ids) - index * length)
            write[row, :once] = whole[row, 1 : once + 1]
        if self.tokens.start != self.tokens.end:
            write[write == self.tokens.start] = IGNORED  # what follows an end is no news, and no text
        count = int((write != IGNORED).sum())
        return RowBatch({"loss": count, "nll": count}, torch.from_numpy(whole[:, :-1].copy()), torch.from_numpy(write))

    def _offset(self, epoch: int, length: int) -> int:
        """Where the first row of an epoch begins: at the beginning of the text, and then elsewhere each time."""
        order = np.random.default_rng(self.run.seed).permutation(length)
        return int(order[epoch % length] - order[0]) % length

    # Ids -> texts

    def examples(self, split: str, limit: int | None = None) -> list[Example]:
        """From the beginning of each row some text, and what follows it. The training's text is no example."""
        others = [name for name in self.ids if name != "train"]
        if split not in others:
            raise no_such_split(split, others)
        every = (self._example(split, place) for place in range(0, len(self.ids[split]), self._length(split)))
        found = list(itertools.islice((example for example in every if example is not None), limit))
        if not found:
            raise UserError(f"{split}: its text is too short for an example")
        return found

    def _example(self, split: str, place: int) -> Example | None:
        """Of one document; None where one ends just there, or a character is cut in two."""
        ids = self.ids[split].around(place, CONTEXT + WANTED).tolist()
        ends = [i for i, id in enumerate(ids) if id in (self.tokens.start, self.tokens.end)]
        begin = max((i + 1 for i in ends if i < CONTEXT), default=0)
        end = min((i for i in ends if i >= CONTEXT), default=len(ids))
        text, wanted = self.tokens.decode([ids[begin:CONTEXT]])[0], self._added(ids[begin:CONTEXT], ids[CONTEXT:end])
        is_whole = text.strip() and wanted.strip() and BROKEN not in text + wanted
        return Example(text, wanted) if is_whole else None

    def _added(self, before: Sequence[int], new: Sequence[int]) -> str:
        """What the new tokens add to a text: by themselves, they might lose a space at their beginning."""
        text, whole = self.tokens.decode([list(before), [*before, *new]])
        return whole[len(text) :]


def _told(texts: Iterator[str], tell: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        yield text
        tell(len(text))


def _digest(run: Run, found: Sequence[Found]) -> str:
    """Changes when the files or what is made of them change."""
    digest = hashlib.sha256(json.dumps([asdict(run.data), asdict(run.tokens)]).encode())
    published = [] if run.tokens.file is None else find_texts([Path(run.tokens.file)])
    for text in [*found, *published]:
        digest.update(f"{text.path.name}\0{text.split}".encode(errors="surrogateescape"))
        if os.access(text.path, os.R_OK):  # else it will be left out with a note
            with open(text.path, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
