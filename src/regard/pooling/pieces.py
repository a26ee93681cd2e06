"""Attention in chunks for many keys, without all scores in memory, for scores that fall with the distance.

The keys are cut into boxes of neighbours. Queries go through the boxes from the nearest on, with a running maximum,
sum and mix (an online softmax: Milakov & Gimelshein 2018, algorithm 3), and stop where what is left weighs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.attend import Attend
from regard.pooling.kernels import EDGE

__all__ = ["Boxes", "Pooled", "Values", "pool", "weights"]

KEYS, QUERIES = 2048, 128  # of a piece: its scores nearly stay in a core's cache
NEGLIGIBLE = 50.0  # e^-50 from each of a million keys is less than a double can tell from nothing

Values = Callable[[slice | Tensor], Float[Tensor, "keys value"]]
"""The values of some keys, counted as they lie in their boxes."""


@dataclass(frozen=True)
class Boxes:
    """Points in an order in which neighbours lie together, and the boxes around them."""

    points: Float[Tensor, "points features"]
    order: Int[Tensor, " points"]
    """Which point came to lie here."""
    edges: tuple[int, ...]
    """Box i holds the points from edge i up to edge i + 1."""
    low: Float[Tensor, "boxes features"]
    high: Float[Tensor, "boxes features"]

    @classmethod
    def cut(cls, points: Float[np.ndarray, "points features"], size: int = KEYS) -> "Boxes":
        """Halves across the longest side, until no box holds more than `size` points."""
        lying, order = points.copy(), np.arange(len(points))
        edges, ends = [0], [len(points)]  # what lies before the last edge is done; the nearest end comes last
        while ends:
            part = slice(edges[-1], ends[-1])
            if part.stop - part.start <= size:
                edges.append(ends.pop())
                continue
            inside, middle = lying[part], (part.stop - part.start) // 2
            halves = np.argpartition(inside[:, np.ptp(inside, axis=0).argmax()], middle)
            lying[part], order[part] = inside[halves], order[part][halves]
            ends.append(part.start + middle)
        low, high = (torch.from_numpy(extreme.reduceat(lying, edges[:-1])) for extreme in (np.minimum, np.maximum))
        return cls(torch.from_numpy(lying), torch.from_numpy(order), tuple(edges), low, high)

    def __len__(self) -> int:
        return len(self.low)

    def part(self, box: int) -> slice:
        return slice(self.edges[box], self.edges[box + 1])

    def distances(self, low: Float[Tensor, " features"],
                  high: Float[Tensor, " features"]) -> Float[Tensor, " boxes"]:
        """How far each box is from another one, at its nearest."""
        return torch.maximum(self.low - high, low - self.high).clamp(min=0.0).square().sum(-1).sqrt()


class Pooled(NamedTuple):
    """The mixed values of each query, and its best score: that of the key that weighs most, before the temperature."""

    context: Float[Tensor, "queries value"]
    best: Float[Tensor, " queries"]


@torch.no_grad()
def weights(attend: Attend, queries: Float[Tensor, "queries features"],
            keys: Float[Tensor, "keys features"]) -> Float[Tensor, "queries keys"]:
    """softmax(scores / T), held whole."""
    scores = attend.scores(queries[None, None], keys[None, None])[0, 0]
    return _scaled(attend, scores, scores.amax(-1, keepdim=True)).softmax(-1)


@torch.no_grad()
def pool(attend: Attend, queries: Float[Tensor, "queries features"], keys: Boxes, values: Values, *,
         without: Int[Tensor, " queries"] | None = None) -> Pooled:
    """softmax(scores) · values for each query, in memory that does not grow with queries times keys.

    `without` names a key for each query that it does not see, counted as it lies in its box: a point asks by it what
    all others say of it.
    """
    asked = Boxes.cut(queries.numpy(), QUERIES)
    hidden = None if without is None else without[asked.order]
    parts = []
    for box in range(len(asked)):
        part = asked.part(box)
        reach = _reach(attend, keys.distances(asked.low[box], asked.high[box]))
        parts.append(_pooled(attend, asked.points[part], keys, values, reach, None if hidden is None else hidden[part]))
    back = asked.order.argsort()
    return Pooled(*(torch.cat(column)[back] for column in zip(*parts, strict=True)))


def _reach(attend: Attend, distances: Float[Tensor, " boxes"]) -> Float[Tensor, " boxes"]:
    """The best score that a key can have at these distances, or a hair nearer: rounding must not lose one."""
    keys = distances[None, None, :, None] / EDGE
    return attend.scores(torch.zeros_like(keys[:, :, :1]), keys).flatten()


def _scaled(attend: Attend, scores: Float[Tensor, "queries keys"],
            best: Float[Tensor, "queries 1"]) -> Float[Tensor, "queries keys"]:
    """By the temperature after the best is taken off, in place: divided by a tiny one, all scores could be -inf."""
    return scores.sub_(best).div_(attend.temperature)


def _pooled(attend: Attend, q: Float[Tensor, "queries features"], keys: Boxes, values: Values,
            reach: Float[Tensor, " boxes"], hidden: Int[Tensor, " queries"] | None) -> Pooled:
    best = q.new_full((len(q), 1), torch.finfo(q.dtype).min)  # not -inf, whose difference to itself is not a number
    total, context = torch.zeros_like(best), torch.zeros_like(best)
    for box in reach.argsort(descending=True, stable=True).tolist():
        if reach[box] < best.min() - NEGLIGIBLE * attend.temperature:
            break
        part = keys.part(box)
        scores = attend.scores(q[None, None], keys.points[part][None, None])[0, 0]
        if hidden is not None:
            own = (hidden >= part.start) & (hidden < part.stop)
            scores[own, hidden[own] - part.start] = -torch.inf
        before, best = best, torch.maximum(best, scores.amax(-1, keepdim=True))
        shares, kept = _scaled(attend, scores, best).exp_(), _scaled(attend, before, best).exp_()
        total = total * kept + shares.sum(-1, keepdim=True)
        context = context * kept + shares @ values(part)
    return Pooled(context / total, best.squeeze(-1))
