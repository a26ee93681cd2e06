"""What attention keeps of the tokens it has seen, so that each new one costs one row and not all of them.

A cache belongs to the caller, never to a layer: the same model can serve many of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["BlockCache", "FixedCache", "GrowingCache", "LayerCache", "Remembered", "Stored"]

NEVER = 2**62  # a position that no query reaches


class Stored(NamedTuple):
    """All keys and values there are, the positions they stand at, and where they lie, if not each in its own row."""

    k: Float[Tensor, "rows groups keys head"]
    v: Float[Tensor, "rows groups keys value"]
    positions: Int[Tensor, "#rows keys"]
    rows: Int[Tensor, "rows keys"] | None = None


class LayerCache:
    """Keys and values of one self-attention, and the positions they stand at."""

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        """Take in the newest keys and values; give back all there are, with their positions."""
        raise NotImplementedError

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Row i becomes what row rows[i] was. There may be fewer rows, or more."""
        raise NotImplementedError

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Forget every position from `length` on, which may be another in each row."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """All that the next step reads or changes."""
        raise NotImplementedError


class GrowingCache(LayerCache):
    """Grows with each token: the least work on a CPU."""

    def __init__(self) -> None:
        self.stored: Stored | None = None

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        if self.stored is None:
            self.stored = Stored(k, v, positions)
        else:
            keys, values, places, _ = self.stored
            rows = max(places.shape[0], positions.shape[0])
            places = torch.cat([places.expand(rows, -1), positions.expand(rows, -1)], dim=1)
            self.stored = Stored(torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2), places)
        return self.stored

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        if self.stored is not None:
            k, v, places, _ = self.stored
            self.stored = Stored(k[rows], v[rows], places if places.shape[0] == 1 else places[rows])

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        if self.stored is not None:
            k, v, places, _ = self.stored
            kept = (places < length).any(0)
            # Rows may stand at different positions: a slot that only some of them keep is out of sight for the others.
            places = torch.where(places < length, places, NEVER)[:, kept]
            self.stored = Stored(k[:, :, kept], v[:, :, kept], places)

    def tensors(self) -> list[Tensor]:
        return [] if self.stored is None else list(self.stored[:3])


class FixedCache(LayerCache):
    """Has a slot for every position from the start, so that no shape changes and a step can be captured whole.

    Slot = position. An empty slot, or one that was truncated, lies after every query: a causal mask hides it.
    Rows that change places leave their keys where they are, and remember where each of them lies.
    """

    def __init__(self, rows: int, groups: int, capacity: int, head: int, *, like: Tensor) -> None:
        self.keys = like.new_zeros(rows, groups, capacity, head)
        self.values = like.new_zeros(rows, groups, capacity, head)
        self.places = torch.arange(capacity, device=like.device)[None]
        self.in_step = True  # all rows have stood at the same positions so far
        self.own: Int[Tensor, "rows 1"] = torch.arange(rows, device=like.device)[:, None]
        self.rows: Int[Tensor, "rows capacity"] | None = None

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        if positions.shape[0] == 1:
            self.keys.index_copy_(2, positions[0], k)
            self.values.index_copy_(2, positions[0], v)
            if self.rows is not None:
                self.rows.index_copy_(1, positions[0], self.own.expand(-1, positions.shape[1]))
        else:
            # Rows at positions of their own would write over slots in which others still have a key.
            self.in_step = False
            self._move()
            slots = positions[:, None, :, None].expand_as(k)
            self.keys.scatter_(2, slots, k)
            self.values.scatter_(2, slots, v)
        return Stored(self.keys, self.values, self.places, self.rows)

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        if self.in_step and rows.shape[0] == self.keys.shape[0]:
            if self.rows is None:
                self.rows = self.own.repeat(1, self.places.shape[1])
            self.rows.copy_(self.rows[rows])  # in place: a captured graph goes on reading the same memory
        else:
            self._move()
            self.keys, self.values = self.keys[rows], self.values[rows]
            self.own = torch.arange(len(rows), device=rows.device)[:, None]

    def _move(self) -> None:
        """Every key into its own row."""
        if self.rows is not None:
            places = self.rows[:, None, :, None].expand_as(self.keys)
            self.keys, self.values = self.keys.gather(0, places), self.values.gather(0, places)
            self.rows = None

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Nothing to do: what lies after the next query is hidden, and overwritten when its turn comes."""

    def tensors(self) -> list[Tensor]:
        # Where each key lies in its own row there is nothing to change; the copy may be written to without harm.
        lying = self.own.repeat(1, self.places.shape[1]) if self.rows is None else self.rows
        return [self.keys, self.values, lying]


@dataclass
class Remembered:
    """Keys and values of a memory (the source sentence), projected once. Several rows may share one of its rows."""

    keys: Float[Tensor, "sources groups keys head"]
    values: Float[Tensor, "sources groups keys value"]

    def reorder(self, sources: Int[Tensor, " kept"]) -> None:
        self.keys, self.values = self.keys[sources], self.values[sources]


@dataclass
class BlockCache:
    """What one block keeps: of its own sequence and, in an encoder-decoder, of the memory."""

    own: LayerCache
    cross: Remembered | None = None
