"""Rows of token ids: how an encoder reads texts, and which of them it reads together."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.notes import Notes
from regard.data.tokenizer import Tokenizer
from regard.nn.mask import Mask
from regard.settings.errors import out_of

__all__ = ["RowBatch", "by_length", "encoder_mask", "padded", "rows_of"]

MAX_GPU_TOKENS = 1 << 14  # tokens that are read at once on a GPU
# On a CPU: enough to keep it busy, and so few that they stay in its caches.
MIN_CPU_TOKENS, MAX_CPU_TOKENS = 1 << 8, 1 << 10


class RowBatch(NamedTuple):
    """Rows of like lengths, and the places that they had among all."""

    places: list[int]
    tokens: Int[Tensor, "rows length"]


def rows_of(tokens: Tokenizer, texts: Sequence[str], *, longest: int,
            notes: Notes | None = None) -> list[list[int]]:
    """Each text between its start and its end, cut so that both are there; the notes say how many were."""
    encoded = tokens.encode(texts)
    cut = sum(len(ids) > longest - 2 for ids in encoded)
    if notes is not None:
        notes.count_up("texts", cut, len(texts), lambda part, whole, _: (
            f"{out_of(part, whole, 'text')} cut to data.max_tokens={longest} tokens"))
    return [[tokens.start, *ids[: longest - 2], tokens.end] for ids in encoded]


def padded(rows: Sequence[Sequence[int]], *, pad: int,
           shape: tuple[int, int] | None = None) -> Int[Tensor, "rows length"]:
    """In a tensor as long as the longest, or of a given shape; what is missing is padding."""
    whole = np.full(shape or (len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for place, row in zip(whole, rows, strict=False):
        place[: len(row)] = row
    return torch.from_numpy(whole)


def by_length(rows: Sequence[Sequence[int]], *, pad: int, device: torch.device) -> Iterator[RowBatch]:
    """All rows, the longest first, in batches with next to no padding."""
    order, at = sorted(range(len(rows)), key=lambda i: -len(rows[i])), 0
    while at < len(order):
        length = len(rows[order[at]])
        count = max(1, (MAX_CPU_TOKENS if device.type == "cpu" else MAX_GPU_TOKENS) // length)
        if device.type == "cpu":  # which reads small batches as fast: others join those of one length if these are few
            same = sum(len(rows[i]) == length for i in order[at : at + count])
            count = max(same, -(-MIN_CPU_TOKENS // length))
        some = order[at : at + count]
        at += count
        yield RowBatch(some, padded([rows[i] for i in some], pad=pad).to(device))


def encoder_mask(tokens: Int[Tensor, "rows length"], *, pad: int, window: int | None) -> Mask:
    """Padding is not looked at. Beside a window, the first token sees all and is seen by all: it stands for them."""
    real = tokens != pad
    if window is None:
        # A CPU can look whether there is any; without a mask its attention is faster. In training, what is done must
        # not depend on it: a step may be compiled, or only traced.
        can_look = real.device.type == "cpu" and not torch.is_grad_enabled()
        return Mask() if can_look and bool(real.all()) else Mask(keys=real)
    first = torch.zeros_like(real)
    first[:, 0] = True
    # At most one, stated here: counting them would wait for the GPU.
    return Mask(keys=real, globals=first & real, most_globals=1)
