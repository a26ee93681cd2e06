"""Windowed attention at a cost linear in the length, with tokens that all see (Longformer; Beltagy et al. 2020, 3.1).

The sequence is cut into blocks as long as the window. A block of queries meets its own keys, those of its neighbours,
and the row's global tokens; all blocks of all rows are attended to at once, as the rows of one batch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.mask import Mask, Places, whole

__all__ = ["Band", "codes", "cut", "join"]

SHORTEST = 64  # of a block: for a narrower window many small products cost more than few larger ones
NOBODY = -(2**31)  # the code of a key that no query sees
BLIND = NOBODY + 1  # and of a query that sees no key


class Band(NamedTuple):
    """Blocks of queries as rows, each with the keys it can reach, and which of them every query may see."""

    q: Float[Tensor, "blocks heads block head"]
    k: Float[Tensor, "blocks groups reach head"]
    v: Float[Tensor, "blocks groups reach value"]
    allowed: Bool[Tensor, "blocks 1 block reach"]
    places: Places


def cut(q: Float[Tensor, "batch heads length head"], k: Float[Tensor, "batch groups length head"],
        v: Float[Tensor, "batch groups length value"], mask: Mask) -> Band:
    """Every query with its window and the global tokens. That these see all themselves is not in it."""
    assert mask.window is not None
    batch, length, device = len(q), q.shape[2], q.device
    block, sides = max(mask.window, SHORTEST), 1 if mask.causal else 2
    chosen = None if mask.globals is None else mask.find_globals(whole(length, device)).expand(batch, -1)
    here, there = _blocks(whole(length, device), block), _around(whole(length, device), block, sides, beyond=length)
    # Query minus key: the same in every block, since the first key stands one block before the first query.
    apart = torch.arange(block, device=device)[:, None] + block - torch.arange(there.shape[2], device=device)
    allowed = ((apart.abs() <= mask.window) & (apart >= 0 if mask.causal else True)) & (there < length)[:, :, None]
    if chosen is not None:
        seen_by_all = _seen_by_all(mask, here, chosen)
        allowed = torch.cat([allowed.expand(batch, -1, -1, -1), seen_by_all], dim=3)
        there = torch.cat([there.expand(batch, -1, -1), chosen[:, None].expand(-1, here.shape[1], -1)], dim=2)

    def reached(x: Tensor) -> Tensor:
        """(batch, length, …) -> (batch, count, reach, …)."""
        near = _around(x, block, sides)
        if chosen is None:
            return near
        index = chosen.view(*chosen.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
        return torch.cat([near, x.gather(1, index)[:, None].expand(-1, near.shape[1], *[-1] * (x.dim() - 1))], dim=2)

    if (known := codes(mask, batch)) is not None:
        asks, answers = _blocks(known[0], block), reached(known[1])
        allowed = allowed & (asks[:, :, :, None] == answers[:, :, None])
    rows = [_blocks(q.transpose(1, 2), block), reached(k.transpose(1, 2)), reached(v.transpose(1, 2))]
    return Band(*(x.flatten(0, 1).transpose(1, 2) for x in rows),
                allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None],
                Places(here.expand(batch, -1, -1).flatten(0, 1), there.expand(batch, -1, -1).flatten(0, 1)))


def join(context: Float[Tensor, "blocks heads block value"], batch: int,
         length: int) -> Float[Tensor, "batch heads length value"]:
    """The blocks of each row side by side again."""
    return context.transpose(1, 2).unflatten(0, (batch, -1)).flatten(1, 2)[:, :length].transpose(1, 2)


def codes(mask: Mask, batch: int) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]] | None:
    """A number for each token as a query and one as a key: a query sees no key of another number. None: it sees all."""
    known = [part for part in (mask.keys, mask.documents, mask.blind) if part is not None]
    if not known:
        return None
    text = torch.zeros_like(known[0], dtype=torch.long) if mask.documents is None else mask.documents
    asks = text if mask.blind is None else text.masked_fill(mask.blind, BLIND)
    answers = text if mask.keys is None else text.masked_fill(~mask.keys, NOBODY)
    return asks.expand(batch, -1), answers.expand(batch, -1)


def _seen_by_all(mask: Mask, here: Int[Tensor, "1 count block"],
                 chosen: Int[Tensor, "batch globals"]) -> Bool[Tensor, "batch count block globals"]:
    """Which global tokens a query sees besides its window: one inside it is there already."""
    assert mask.globals is not None
    assert mask.window is not None
    apart = here[:, :, :, None] - chosen[:, None, None]
    true = mask.globals.expand(len(chosen), -1).gather(1, chosen)[:, None, None]
    return true & (apart > mask.window if mask.causal else apart.abs() > mask.window)


def _blocks(x: Tensor, block: int) -> Tensor:
    """(batch, length, …) -> (batch, count, block, …), filled up with zeros."""
    return _padded(x, 0, -x.shape[1] % block, 0).unflatten(1, (-1, block))


def _around(x: Tensor, block: int, sides: int, beyond: int = 0) -> Tensor:
    """(batch, length, …) -> (batch, count, block · (1 + sides), …): each block between its neighbours."""
    blocks = _padded(x, block, -x.shape[1] % block + (sides - 1) * block, beyond).unflatten(1, (-1, block))
    count = blocks.shape[1] - sides
    return torch.cat([blocks[:, side: side + count] for side in range(1 + sides)], dim=2)


def _padded(x: Tensor, before: int, after: int, value: int) -> Tensor:
    return F.pad(x, [0] * (2 * (x.dim() - 2)) + [before, after], value=value) if before or after else x
