"""Which examples make up which batch: a pure function of the seed and the step.

So a place in the data is one integer, ranks can share a batch, and a run can go on with other ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Batch", "Chosen", "Plan"]

LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)


B = TypeVar("B", bound="Batch")  # not Self: the shape checker of the tests does not know it yet


@dataclass(frozen=True)
class Batch:
    """Tensors of one shape each, and how many things each term of the loss counts. Tasks add their fields."""

    counts: dict[str, int]

    def ready(self: B, device: torch.device) -> B:
        """The same batch where a copy to the device can run beside the work."""
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
        """The same rows in so many parts, as equal as can be. Their counts are those of the whole."""
        count = min(count, min(len(tensor) for tensor in self.tensors().values()))
        parts = {name: tensor.tensor_split(count) for name, tensor in self.tensors().items()}
        chosen: list[dict[str, Any]] = [{name: part[i] for name, part in parts.items()} for i in range(count)]
        return [replace(self, **part) for part in chosen]


@dataclass(frozen=True)
class Chosen:
    """The examples of one batch and the shape they are padded to: `rows` × `length`, whoever is missing left empty."""

    indices: NDArray[np.int64]
    rows: int
    length: int

    def share(self, rank: int, size: int) -> "Chosen":
        """The part of one rank of `size`."""
        return Chosen(self.indices[rank::size], -(-self.rows // size), self.length)


class Plan:
    """Batches of about `tokens` tokens in a few fixed shapes, every example once an epoch.

    >>> plan = Plan(np.array([3, 5, 9, 12, 4]), tokens=32, seed=0)
    >>> [(c.rows, c.length, sorted(c.indices.tolist())) for c in sorted((plan[0], plan[1]), key=lambda c: c.length)]
    [(4, 8, [0, 1, 4]), (2, 16, [2, 3])]
    """

    def __init__(self, lengths: NDArray[np.int64], *, tokens: int, seed: int) -> None:
        self.seed = seed
        self.buckets = _buckets(lengths, tokens)
        self.steps_per_epoch = sum(-(-len(bucket.members) // bucket.rows) for bucket in self.buckets)
        self._epoch = lru_cache(maxsize=2)(self._shuffle)

    def __getitem__(self, step: int) -> Chosen:
        epoch, place = divmod(step, self.steps_per_epoch)
        return self._epoch(epoch)[place]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        return [(bucket.rows, bucket.length) for bucket in self.buckets]

    def _shuffle(self, epoch: int) -> list[Chosen]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        batches = []
        for bucket in self.buckets:
            order = bucket.members[random.permutation(len(bucket.members))]
            batches += [Chosen(order[i : i + bucket.rows], bucket.rows, bucket.length)
                        for i in range(0, len(order), bucket.rows)]
        return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class _Bucket:
    length: int
    rows: int
    members: NDArray[np.int64]


def _buckets(lengths: NDArray[np.int64], tokens: int) -> list[_Bucket]:
    """Examples by padded length. Those too few for half a batch go up to the next length: fewer shapes."""
    longest = int(lengths.max())
    bounds = [bound for bound in LENGTHS if bound < longest]
    bounds.append(next((bound for bound in LENGTHS if bound >= longest), longest))
    buckets: list[_Bucket] = []
    waiting, low = np.zeros(0, dtype=np.int64), -1
    for bound in bounds:
        members = np.concatenate([waiting, np.flatnonzero((lengths > low) & (lengths <= bound))])
        rows = max(1, tokens // bound)
        rows -= rows % 8 if rows > 8 else 0  # matrix units want multiples of 8
        low = bound
        if len(members) < rows // 2 and bound != bounds[-1]:
            waiting = members
        elif len(members):
            waiting = np.zeros(0, dtype=np.int64)
            buckets.append(_Bucket(bound, min(rows, -(-len(members) // 8) * 8), members))
    return buckets
