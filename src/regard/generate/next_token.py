"""The next token from logits and one uniform number: few operations of fixed shape, on whatever device they are.

Sampling inverts the distribution function: a row's token depends only on its logits and its number, so
it is the same for a single row, in a batch, and in a captured step.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels import sample as sample_kernel

__all__ = ["Drawn", "apply_top_k_top_p", "draw", "largest", "pick"]

COLUMN = 64  # numbers that are first looked at together, by their maximum or their sum
NUCLEUS = 1024  # likeliest tokens among which a nucleus is looked for before all are sorted
COLDEST, HOTTEST = 1e-30, 1e30  # temperatures by which float32 can divide; beyond, nothing would be drawn otherwise


class Drawn(NamedTuple):
    """A token for every row, and its log-probability among what the filters allow, whatever the temperature."""

    tokens: Int[Tensor, " rows"]
    log_probabilities: Float[Tensor, " rows"]


def draw(
    logits: Float[Tensor, "rows vocabulary"], uniform: Float[Tensor, "rows 1"], *, temperature: float = 1.0,
    top_k: int | None = None, top_p: float | None = None, min_p: float | None = None,
) -> Drawn:
    """`uniform` is in [0, 1). A temperature of 0 takes the likeliest token."""
    temperature = 0.0 if temperature < COLDEST else min(temperature, HOTTEST)
    if logits.is_cuda and sample_kernel.serves(logits, top_p):
        return Drawn(*sample_kernel.draw(logits, uniform, temperature=temperature, top_k=top_k, min_p=min_p))
    chances = logits.log_softmax(-1, dtype=torch.float32)
    if temperature == 0:
        tokens = logits.argmax(-1, keepdim=True)
    else:
        weights = chances.exp() if temperature == 1 else (chances / temperature).softmax(-1)
        tokens = pick(apply_top_k_top_p(weights, top_k=top_k, top_p=top_p, min_p=min_p), uniform)
    return Drawn(tokens[:, 0], chances.gather(1, tokens)[:, 0])


def apply_top_k_top_p(
    weights: Float[Tensor, "rows vocabulary"], *, top_k: int | None = None, top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "rows vocabulary"]:
    """The probabilities after top-k, top-p and min-p, up to a factor; the others become 0. The highest always stays.

    The rules apply one after the other: `top_p` is a share of the mass that `top_k` left (Holtzman et al. 2020, 3.1),
    `min_p` a share of the highest probability (Nguyen et al. 2024).
    """
    everything, tokens = weights, None
    if top_k is not None and top_k < weights.shape[1]:
        weights, tokens = largest(weights, top_k)
    if top_p is not None and top_p < 1:
        if tokens is None:
            weights, tokens = _ordered(weights, top_p)
        else:
            weights = weights / weights.sum(-1, keepdim=True)
        before = weights.cumsum(-1) - weights
        weights = weights.masked_fill(before >= top_p, 0.0)
    if min_p is not None:
        weights = weights.masked_fill(weights < min_p * weights.amax(-1, keepdim=True), 0.0)
    # In the vocabulary's order again: what is drawn must not depend on how the likeliest were found.
    return weights if tokens is None else torch.zeros_like(everything).scatter(1, tokens, weights)


def _ordered(weights: Float[Tensor, "rows vocabulary"], top_p: float) -> tuple[Tensor, Tensor]:
    """The likeliest first; on a CPU, which may look before it goes on, no more of them than it takes."""
    if weights.device.type == "cpu" and weights.shape[1] > NUCLEUS:
        some = weights.topk(NUCLEUS)
        if bool((some.values.sum(-1) >= top_p).all()):
            return some.values, some.indices
    ordered = weights.sort(descending=True)
    return ordered.values, ordered.indices


def largest(
    numbers: Float[Tensor, "rows size"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The largest numbers of each row, the largest first, and where they stand."""
    rows, size = numbers.shape
    if size < 2 * COLUMN * count:
        found = numbers.topk(count)
        return found.values, found.indices
    # They are all in the columns with the largest maxima: the rest is looked at once.
    columns = F.pad(numbers, (0, -size % COLUMN), value=-math.inf).view(rows, COLUMN, -1)
    chosen = columns.amax(1).topk(count).indices
    inside = columns.gather(2, chosen[:, None].expand(-1, COLUMN, -1)).flatten(1)  # (rows, COLUMN * count)
    values, best = inside.topk(count)
    return values, best // count * columns.shape[2] + chosen.gather(1, best % count)


def pick(weights: Float[Tensor, "rows size"], uniform: Float[Tensor, "rows 1"]) -> Int[Tensor, "rows 1"]:
    """The place at which the running sum of a row's weights passes the share `uniform` of their whole.

    The sums have the precision of `uniform`. A weight of 0 is never picked.
    """
    rows, size = weights.shape
    if size <= COLUMN**2:
        ends = weights.cumsum(-1, dtype=uniform.dtype)
        return _passed(ends, uniform * ends[:, -1:])
    # In two strides: the block in which it lies, then the place in the block.
    blocks = F.pad(weights, (0, -size % COLUMN)).view(rows, -1, COLUMN)
    ends = blocks.sum(-1, dtype=uniform.dtype).cumsum(-1)
    target = uniform * ends[:, -1:]
    block = _passed(ends, target)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, COLUMN))[:, 0].cumsum(-1, dtype=uniform.dtype)
    before = ends.gather(1, block) - inside[:, -1:]
    return block * COLUMN + _passed(inside, target - before)


def _passed(ends: Float[Tensor, "rows size"], target: Float[Tensor, "rows 1"]) -> Int[Tensor, "rows 1"]:
    return (ends[:, :-1] <= target).sum(-1, keepdim=True)
