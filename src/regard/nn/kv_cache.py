"""KV caches: the keys and values of earlier tokens, so that each new token costs one row and not all of them.

A cache belongs to the caller, never to a layer: the same model can serve many of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels.storage import count_on, kept_as, read_often
from regard.nn.mask import AttentionPositions

__all__ = ["BlockCache", "CrossKV", "GrowingCache", "LayerCache", "Stored", "put"]

NEVER = 2**62  # a position that no query reaches
SPARE = 16  # keys for which a growing cache has room, at least


class Stored(NamedTuple):
    """All keys and values there are, the positions they stand at, and where they lie, if not each in its own row."""

    k: Float[Tensor, "rows groups keys head"]
    v: Float[Tensor, "rows groups keys value"]
    positions: Int[Tensor, "#rows keys"]
    rows: Int[Tensor, "rows keys"] | None = None
    in_order: bool = False
    """Key j stands at position j."""
    newest: bool = False
    """The keys that were just taken in are the last of these, one after the other, in every row."""
    visible_keys: Bool[Tensor, "sources 1 size keys"] | None = None
    """Where several rows have their keys in one: which of them each may see."""

    def queries(self, q: Float[Tensor, "rows heads n head"]) -> Float[Tensor, "sources heads queries head"]:
        """Rows that share a store are more queries of it."""
        if self.visible_keys is None:
            return q
        return q.unflatten(0, (len(self.k), -1)).transpose(1, 2).flatten(2, 3)  # type: ignore[no-any-return]

    def places(self, queries: Int[Tensor, "#rows n"]) -> AttentionPositions:
        """For the queries of the tokens that were just taken in."""
        if self.visible_keys is None:
            return AttentionPositions(queries, self.positions, self.rows, self.in_order, self.newest)
        size, n = self.visible_keys.shape[2], queries.shape[1]
        visible_keys = self.visible_keys.repeat_interleave(n, 2)
        return AttentionPositions(queries.repeat(1, size), self.positions, visible_keys=visible_keys)


class LayerCache:
    """Keys and values of one self-attention, and the positions they stand at."""

    is_gapless = True
    """False once `truncate` has dropped a position in some rows but not in others."""

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
        """All tensors that the next step reads or changes."""
        raise NotImplementedError


class GrowingCache(LayerCache):
    """Grows with each token, and keeps room for more: most tokens move no others."""

    def __init__(self) -> None:
        self.keys: Float[Tensor, "rows groups room head"] | None = None
        self.values: Float[Tensor, "rows groups room value"] | None = None
        self.places: Int[Tensor, "#rows keys"] | None = None  # of the keys that are there
        self.in_order = True  # key j stands at position j, in every row

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        start = 0 if self.places is None else self.places.shape[1]
        self.keys, self.values = (put(new, room, start, dtype=kept_as(new))
                                  for new, room in ((k, self.keys), (v, self.values)))
        self.in_order = self.in_order and count_on(positions, start)
        if self.places is None:
            self.places = positions
        else:
            rows = max(self.places.shape[0], positions.shape[0])
            self.places = torch.cat([self.places.expand(rows, -1), positions.expand(rows, -1)], dim=1)
        stop = start + k.shape[2]
        return Stored(self.keys[:, :, :stop], self.values[:, :, :stop], self.places, in_order=self.in_order)

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        if self.keys is not None and self.values is not None and self.places is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
            self.places = self.places if self.places.shape[0] == 1 else self.places[rows]

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        if self.places is not None:
            kept = (self.places < length).any(0).nonzero()
            # Rows may stand at different positions: a slot that only some of them keep is out of sight for the others.
            places = torch.where(self.places < length, self.places, NEVER)
            self.places = places[:, : int(kept[-1]) + 1 if len(kept) else 0]
            self.in_order = self.in_order and isinstance(length, int)
            self.is_gapless = self.is_gapless and isinstance(length, int)

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.keys, self.values, self.places) if tensor is not None]


def put(new: Float[Tensor, "rows groups n head"], room: Float[Tensor, "rows groups room head"] | None, start: int, *,
        dtype: torch.dtype) -> Float[Tensor, "rows groups larger head"]:
    """Write `new` into `room` from index `start`; allocate a larger buffer if it does not fit."""
    stop = start + new.shape[2]
    if room is None or stop > room.shape[2]:
        larger = new.new_empty(*new.shape[:2], stop + stop // 2 + SPARE, new.shape[3], dtype=dtype)
        if room is not None:
            larger[:, :, :start] = room[:, :, :start]
        room = larger
    room.narrow(2, start, new.shape[2]).copy_(new)
    return room


@dataclass
class CrossKV:
    """Keys and values of a memory (the source sentence), projected once. Several rows may share one of its rows."""

    keys: Float[Tensor, "sources groups keys head"]
    values: Float[Tensor, "sources groups keys value"]

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "CrossKV":
        return cls(read_often(keys), read_often(values))

    def reorder(self, sources: Int[Tensor, " kept"]) -> None:
        self.keys, self.values = self.keys[sources], self.values[sources]


@dataclass
class BlockCache:
    """The caches of one block: of its own sequence and, in an encoder-decoder, of the memory."""

    own: LayerCache
    cross: CrossKV | None = None
