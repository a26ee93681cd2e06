"""The examples of each batch: a pure function of the seed and the step.

So a place in the data is one integer, ranks can share a batch, and a run can resume with another number of ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["IGNORED", "Batch", "BatchSampler", "BatchSpec"]

IGNORED = -1  # a target that counts nothing
MOST_LENGTHS = 512  # different lengths that the dynamic program considers


B = TypeVar("B", bound="Batch")  # not Self: the tests' shape checker does not support it yet


@dataclass(frozen=True)
class Batch:
    """The tensors of a batch, and the count for each term of the loss. Tasks add their fields."""

    counts: dict[str, int]

    def ready(self: B, device: torch.device) -> B:
        """The batch in pinned memory, so that its copy to the device overlaps with computation."""
        return self.map(Tensor.pin_memory) if device.type == "cuda" else self

    def to(self: B, device: torch.device) -> B:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def map(self: B, function: Callable[[Tensor], Tensor]) -> B:
        changed: dict[str, Any] = {name: function(tensor) for name, tensor in self.tensors().items()}
        return replace(self, **changed)

    def tensors(self) -> dict[str, Tensor]:
        named = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in named if isinstance(value, Tensor)}

    def pieces(self: B, count: int) -> list[B]:
        """The same rows in `count` parts of nearly equal size. Their counts are those of the whole batch."""
        count = min(count, min(len(tensor) for tensor in self.tensors().values()))
        parts = {name: tensor.tensor_split(count) for name, tensor in self.tensors().items()}
        chosen: list[dict[str, Any]] = [{name: part[i] for name, part in parts.items()} for i in range(count)]
        return [replace(self, **part) for part in chosen]


@dataclass(frozen=True)
class BatchSpec:
    """The examples of one batch and the shape they are padded to: `rows` × `length`; missing rows stay empty."""

    indices: NDArray[np.int64]
    rows: int
    length: int
    epoch: int = 0
    """The epoch: rows of a long text are cut at other places in each epoch."""

    def share(self, rank: int, size: int) -> "BatchSpec":
        """The part of one rank of `size`."""
        return replace(self, indices=self.indices[rank::size], rows=-(-self.rows // size))


class BatchSampler:
    """Batches of about `tokens` tokens in a few fixed shapes, every example once an epoch.

    >>> plan = BatchSampler(np.array([3, 5, 9, 12, 4]), tokens=32, seed=0, length_buckets=2)
    >>> [(c.rows, c.length, sorted(c.indices.tolist())) for c in sorted((plan[0], plan[1]), key=lambda c: c.length)]
    [(5, 6, [0, 1, 4]), (2, 12, [2, 3])]
    """

    def __init__(self, lengths: NDArray[np.int64], *, tokens: int, seed: int, length_buckets: int = 6) -> None:
        self.seed = seed
        self.buckets = _buckets(lengths, tokens, length_buckets)
        self.steps_per_epoch = sum(-(-len(bucket.members) // bucket.rows) for bucket in self.buckets)
        self._epoch = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> BatchSpec:
        epoch, place = divmod(step, self.steps_per_epoch)
        return self._epoch(epoch)[place]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        return [(bucket.rows, bucket.length) for bucket in self.buckets]

    def _shuffle(self, epoch: int) -> list[BatchSpec]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        batches = []
        for bucket in self.buckets:
            order = bucket.members[random.permutation(len(bucket.members))]
            batches += [BatchSpec(order[i : i + bucket.rows], bucket.rows, bucket.length, epoch)
                        for i in range(0, len(order), bucket.rows)]
        return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class _Bucket:
    length: int
    rows: int
    members: NDArray[np.int64]


def _buckets(lengths: NDArray[np.int64], tokens: int, count: int) -> list[_Bucket]:
    """Examples by the length they are padded to."""
    buckets, low = [], -1
    for bound in _bounds(lengths, count):
        members = np.flatnonzero((lengths > low) & (lengths <= bound))
        rows = max(1, tokens // bound)
        rows -= rows % 8 if rows > 8 else 0  # matrix units want multiples of 8
        buckets.append(_Bucket(bound, min(rows, -(-len(members) // 8) * 8), members))
        low = bound
    return buckets


def _bounds(lengths: NDArray[np.int64], count: int) -> list[int]:
    """The `count` lengths (even ones) that waste the least padding, found by dynamic programming.

    >>> _bounds(np.array([3, 3, 4, 9, 10, 30]), 2), _bounds(np.array([3, 3, 4, 9, 10, 30]), 3)
    ([10, 30], [4, 10, 30])
    """
    padded, counts = np.unique(np.minimum(lengths + lengths % 2, lengths.max()), return_counts=True)
    if len(padded) > MOST_LENGTHS:  # very long texts: merge similar lengths
        padded = padded[np.linspace(0, len(padded) - 1, MOST_LENGTHS).astype(int)]
        counts = np.histogram(lengths, bins=[0, *(padded + 1)])[0]
    below = np.concatenate([[0], np.cumsum(counts)])
    # cost[i]: the least padded tokens of all examples up to padded[i - 1]; back[k][i]: where the last bucket begins
    cost, back = np.where(np.arange(len(padded) + 1) == 0, 0.0, np.inf), []
    for _ in range(min(count, len(padded))):
        with_last = cost[:, None] + (below[None, 1:] - below[:, None]) * padded[None, :]
        with_last[np.arange(len(cost))[:, None] > np.arange(len(padded))[None, :]] = np.inf
        back.append(with_last.argmin(0))
        cost = np.concatenate([[np.inf], with_last.min(0)])
    bounds, end = [], len(padded)
    for begins in reversed(back):
        bounds.append(int(padded[end - 1]))
        end = int(begins[end - 1])
    return bounds[::-1]
