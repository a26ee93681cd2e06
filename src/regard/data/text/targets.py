"""Targets: texts as a decoder learns to write them, each token from those before it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.notes import Notes
from regard.data.ragged import Ragged
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import out_of

__all__ = ["Ids", "Targets", "encoded", "targets_of"]

Ids = Sequence[int] | NDArray[np.int32]


class Targets(NamedTuple):
    """The tokens that a decoder reads, those that it should write (the same moved by one), and the number of these."""

    read: Int[Tensor, "rows length"]
    write: Int[Tensor, "rows length"]
    size: int


def encoded(tokens: Tokenizer, texts: Sequence[str], *, longest: int, notes: Notes, thing: str,
            split: str | None = None) -> Ragged:
    """Ids with the end after them, cut to the longest length; the notes say how many were."""
    rows = tokens.encode(texts)
    cut = sum(len(row) > longest - 1 for row in rows)
    of_split = "" if split is None else f" of {split}"
    notes.count_up(thing + of_split, cut, len(rows), lambda part, whole, _: (
        f"{out_of(part, whole, thing)}{of_split} cut to data.max_tokens={longest} tokens"))
    return Ragged.of([*row[: longest - 1], tokens.end] for row in rows)


def targets_of(texts: Sequence[Ids], *, tokens: Tokenizer, rows: int, length: int) -> Targets:
    """Encoded texts, padded to this many rows and this length."""
    target = np.full((rows, length + 1), tokens.pad, dtype=np.int64)
    target[:, 0] = tokens.start
    for row, text in enumerate(texts):
        target[row, 1 : 1 + len(text)] = text
    whole = torch.from_numpy(target)
    return Targets(whole[:, :-1].contiguous(), whole[:, 1:].contiguous(), int((target[:, 1:] != tokens.pad).sum()))
