"""Windowed attention at a cost linear in the length, with tokens that all see (Longformer; Beltagy et al. 2020, 3.1).

The sequence is cut into blocks as long as the window. A block of queries meets its own keys, those of its neighbours,
and the row's global tokens; all blocks of all rows are attended to at once, as the rows of one batch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels.attention_sdpa import mixed
from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel
from regard.kernels.mask_codes import codes
from regard.kernels.window import is_windowed, with_globals
from regard.nn.mask import AttentionPositions, Mask, whole

__all__ = ["KERNEL", "Band", "cut", "join", "stretches"]

MIN_BLOCK = 64  #: for a narrower window many small products cost more than few larger ones
SMALL_MASK = 2**20  # entries


class Band(NamedTuple):
    """Blocks of queries as rows, each with the keys it can reach, and which of them every query may see."""

    q: Float[Tensor, "blocks heads block head"]
    k: Float[Tensor, "blocks groups reach head"]
    v: Float[Tensor, "blocks groups reach value"]
    allowed: Bool[Tensor, "blocks 1 block reach"]
    places: AttentionPositions


def run(call: AttentionCall) -> Tensor:
    """All blocks at once; on a CPU, where nothing is kept for a gradient, some at a time, to save memory."""
    out, batch, call = call, len(call.q), call.scaled
    pieces = []
    at_once = call.q.requires_grad or call.q.device.type != "cpu"
    for start, stop in stretches(call.mask, call.q.shape[2], at_once=at_once):
        part = cut(call.q, call.k, call.v, call.mask, start, stop)
        context = mixed(call._replace(q=part.q, k=part.k, v=part.v), part.allowed, part.places)
        pieces.append(join(context, batch, stop - start))
    context = torch.cat(pieces, dim=2) if len(pieces) > 1 else pieces[0]
    return with_globals(out, context.to(out.q.dtype))


def stretches(mask: Mask, length: int, *, at_once: bool) -> list[tuple[int, int]]:
    """From where to where to `cut` at a time: the whole sequence, or so much that its mask is small."""
    assert mask.window is not None
    block = max(mask.window, MIN_BLOCK)
    step = length if at_once else block * max(1, SMALL_MASK // (3 * block * block))
    return [(start, min(start + step, length)) for start in range(0, length, max(step, 1))]


def cut(q: Float[Tensor, "batch heads length head"], k: Float[Tensor, "batch groups length head"],
        v: Float[Tensor, "batch groups length value"], mask: Mask, start: int, stop: int) -> Band:
    """The queries of a stretch with their windows and the global tokens. That these see all themselves is not in it."""
    assert mask.window is not None
    batch, length, device = len(q), q.shape[2], q.device
    block, ahead = max(mask.window, MIN_BLOCK), 0 if mask.causal else 1
    count = -(-(stop - start) // block)
    chosen = None if mask.globals is None else mask.global_places.expand(batch, -1)

    def asking(x: Tensor) -> Tensor:
        """(batch, length, …) -> (batch, count, block, …)."""
        return _blocks(x, start, count, block)

    def reached(x: Tensor, beyond: int = 0) -> Tensor:
        """(batch, length, …) -> (batch, count, reach, …): the blocks around each one, and the global tokens."""
        around = _blocks(x, start - block, count + 1 + ahead, block, beyond)
        parts = [around[:, side: side + count] for side in range(2 + ahead)]
        if chosen is not None:
            index = chosen.view(*chosen.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
            parts.append(x.gather(1, index)[:, None].expand(-1, count, *[-1] * (x.dim() - 1)))
        return torch.cat(parts, dim=2)

    places = whole(length, device).expand(batch, -1)
    here, there = asking(places), reached(places, beyond=length)
    near = there[:, :, : (2 + ahead) * block]
    # Query minus key: the same in every block, since the first key stands one block before the first query.
    apart = torch.arange(block, device=device)[:, None] + block - torch.arange(near.shape[2], device=device)
    allowed = ((apart.abs() <= mask.window) & (apart >= 0 if mask.causal else True)) & (near < length)[:, :, None]
    if chosen is not None:
        allowed = torch.cat([allowed, _seen_by_all(mask, here, chosen)], dim=3)
    if (coded := codes(mask)) is not None:
        asks, answers = (part.expand(batch, -1) for part in coded)
        allowed = allowed & (asking(asks)[:, :, :, None] == reached(answers)[:, :, None])
    q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in (
        asking(q.transpose(1, 2)), reached(k.transpose(1, 2)), reached(v.transpose(1, 2))))
    return Band(q, k, v, allowed.flatten(0, 1)[:, None], AttentionPositions(here.flatten(0, 1), there.flatten(0, 1)))


def join(context: Float[Tensor, "blocks heads block value"], batch: int,
         length: int) -> Float[Tensor, "batch heads length value"]:
    """The blocks of each row side by side again."""
    rows: Tensor = context.transpose(1, 2).unflatten(0, (batch, -1))
    return rows.flatten(1, 2)[:, :length].transpose(1, 2)


def _seen_by_all(mask: Mask, here: Int[Tensor, "batch count block"],
                 chosen: Int[Tensor, "batch globals"]) -> Bool[Tensor, "batch count block globals"]:
    """The global tokens that a query sees outside its window: one inside the window is already there."""
    assert mask.globals is not None
    assert mask.window is not None
    apart = here[:, :, :, None] - chosen[:, None, None]
    true = mask.globals.expand(len(chosen), -1).gather(1, chosen)[:, None, None]
    return true & (apart > mask.window if mask.causal else apart.abs() > mask.window)


def _blocks(x: Tensor, start: int, count: int, block: int, beyond: int = 0) -> Tensor:
    """(batch, length, …) -> (batch, count, block, …), from a position on that may lie before the first."""
    length, stop = x.shape[1], start + count * block
    inside = x[:, max(start, 0): stop]
    missing = [max(-start, 0), max(stop - length, 0)]
    padded = F.pad(inside, [0] * (2 * (x.dim() - 2)) + missing, value=beyond) if any(missing) else inside
    return padded.unflatten(1, (count, block))  # type: ignore[no-any-return]


KERNEL = Kernel("attention.window_blocks", is_windowed, run)
