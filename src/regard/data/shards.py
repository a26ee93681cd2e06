"""Documents become ids, one after the other in flat files that are mapped, never read whole.

A document is `start`, its ids, and `end` where that is another token (GPT-2 has one for both): so the text of a split
is a ring, in which every document is followed by its end or by the start of the next, and the last by the first.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Document, pieces
from regard.data.ragged import damaged, mapped
from regard.data.tokenizer import Tokenizer
from regard.settings.opening import replacing

__all__ = ["Counts", "Shards", "write_shards"]

SHARD = 1 << 24  # ids in a file: 32 MB of 16-bit ids
# Characters to encode at once, in pieces that the library spreads over the cores; each character takes about 200 bytes.
CHARACTERS_AT_ONCE = (1 << 17) * min(32, os.cpu_count() or 1)

Ids = NDArray[np.integer[Any]]


@dataclass
class Counts:
    """The size of a split: its documents, the bytes of their text in UTF-8, and the ids, special ones included."""

    documents: int = 0
    bytes: int = 0
    ids: int = 0


def write_shards(path: Path, documents: Iterable[Document], tokens: Tokenizer,
                 tell: Callable[[int], None] = lambda characters: None) -> Counts:
    """Write `path-00000.npy` and so on. `tell` gets the number of finished characters."""
    counts, number = Counts(), 0
    kind: type[np.integer[Any]] = np.uint16 if len(tokens) <= 2**16 else np.uint32
    held, length = list[Ids](), 0
    for batch in _batches(_stream(documents, tokens, counts)):
        held.append(_encoded(batch, tokens).astype(kind))
        length += len(held[-1])
        while length >= SHARD:
            flat = np.concatenate(held)
            _save(path, number, flat[:SHARD])
            held, length, number = [flat[SHARD:]], length - SHARD, number + 1
        tell(sum(len(part) for part in batch if isinstance(part, str)))
    _save(path, number, np.concatenate([np.zeros(0, kind), *held]))
    counts.ids = number * SHARD + length
    return counts


def _stream(documents: Iterable[Document], tokens: Tokenizer, counts: Counts) -> Iterator[str | int]:
    """Texts to be encoded, and special ids."""
    for document in documents:
        yield tokens.start
        # If a token may span several words, the text cannot be encoded in parts.
        parts = pieces(document) if tokens.cuts_at_spaces else ["".join(document)]
        for number, piece in enumerate(parts):
            counts.bytes += len(piece.encode())
            yield tokens.after_space(piece) if number else piece
        if tokens.end != tokens.start:
            yield tokens.end
        counts.documents += 1


def _batches(stream: Iterable[str | int]) -> Iterator[list[str | int]]:
    batch, characters = list[str | int](), 0
    for part in stream:
        batch.append(part)
        characters += len(part) if isinstance(part, str) else 1
        if characters >= CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    yield batch


def _encoded(batch: Sequence[str | int], tokens: Tokenizer) -> NDArray[np.int64]:
    rows = iter(tokens.encode([part for part in batch if isinstance(part, str)]))
    return np.array([id for part in batch for id in (next(rows) if isinstance(part, str) else (part,))], np.int64)


def _save(path: Path, number: int, ids: Ids) -> None:
    with replacing(_file(path, number)) as file:
        np.save(file, ids, allow_pickle=False)


class Shards:
    """The ids of a split, as one circular array.

    >>> Shards([np.array([5, 6, 7]), np.array([8, 9])]).around(3, 4).tolist()
    [8, 9, 5, 6]
    """

    def __init__(self, parts: Sequence[Ids]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def around(self, start: int, count: int) -> NDArray[np.int64]:
        """`count` ids from `start` on; after the end comes the beginning."""
        found = np.empty(count, np.int64)
        done, place = 0, start % len(self)
        while done < count:
            part = int(np.searchsorted(self.ends, place, side="right"))
            inside = place - (int(self.ends[part - 1]) if part else 0)
            some = self.parts[part][inside : inside + count - done]
            found[done : done + len(some)] = some
            done, place = done + len(some), (place + len(some)) % len(self)
        return found

    @classmethod
    def load(cls, path: Path, count: int, *, below: int) -> "Shards":
        """The shards that `write_shards` wrote; the ids must be less than `below`."""
        files = list(itertools.takewhile(Path.exists, (_file(path, number) for number in itertools.count())))
        parts = [mapped(file, np.uint16, np.uint32) for file in files]
        if not count or (found := sum(map(len, parts))) != count:
            raise damaged(_file(path, 0), f"{found if count else 0:,} of {count:,} ids are there")
        for file, part in zip(files, parts, strict=True):
            if len(part) and part.max() >= below:
                raise damaged(file, f"it has ids above {below - 1}")
        return cls([part for part in parts if len(part)])


def _file(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}-{number:05}.npy")
