"""What attention keeps of the tokens it has seen, so that each new one costs one row and not all of them.

A cache belongs to the caller, never to a layer: the same model can serve many of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn import few
from regard.nn.mask import Places
from regard.nn.norm import Norm
from regard.nn.product import Slots, project

__all__ = ["BlockCache", "FixedCache", "GrowingCache", "LayerCache", "Lineage", "Remembered", "Stored",
           "kept_as", "put"]

NEVER = 2**62  # a position that no query reaches
SPARE = 16  # keys for which a growing cache has room at the least


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
    lines: Bool[Tensor, "sources 1 size keys"] | None = None
    """Where several rows have their keys in one: which of them each may see."""

    def places(self, queries: Int[Tensor, "#rows n"]) -> Places:
        """For the queries of the tokens that were just taken in."""
        if self.lines is None:
            return Places(queries, self.positions, self.rows, self.in_order, self.newest)
        size, n = self.lines.shape[2], queries.shape[1]
        return Places(queries.repeat(1, size), self.positions, lines=self.lines.repeat_interleave(n, 2))


class LayerCache:
    """Keys and values of one self-attention, and the positions they stand at."""

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        """Take in the newest keys and values; give back all there are, with their positions."""
        raise NotImplementedError

    def project(self, x: Float[Tensor, "rows n width"], layer: nn.Module, *, norm: Norm | None,
                positions: Int[Tensor, "#rows n"]) -> tuple[Float[Tensor, "rows n queries"], Stored] | None:
        """Queries, and all keys and values, the newest among them, where one product can put these into their slots."""
        return None

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
        self.in_order = self.in_order and _follow(positions, start)
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

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.keys, self.values, self.places) if tensor is not None]


def put(new: Float[Tensor, "rows groups n head"], room: Float[Tensor, "rows groups room head"] | None, start: int, *,
        dtype: torch.dtype) -> Float[Tensor, "rows groups larger head"]:
    """The new after the first `start` of those in the room; where they do not fit, in a larger one."""
    stop = start + new.shape[2]
    if room is None or stop > room.shape[2]:
        larger = new.new_empty(*new.shape[:2], stop + stop // 2 + SPARE, new.shape[3], dtype=dtype)
        if room is not None:
            larger[:, :, :start] = room[:, :, :start]
        room = larger
    room.narrow(2, start, new.shape[2]).copy_(new)
    return room


def _follow(positions: Int[Tensor, "#rows n"], start: int) -> bool:
    """Whether the positions count on from `start`. Only a CPU looks: elsewhere it would have to wait."""
    if positions.device.type != "cpu" or positions.shape[0] > 1:
        return False
    return positions[0].tolist() == list(range(start, start + positions.shape[1]))


def kept_as(x: Tensor) -> torch.dtype:
    """The numbers to keep: a CPU attends to bfloat16 several times more slowly than to float32."""
    return torch.float32 if x.device.type == "cpu" and x.dtype == torch.bfloat16 else x.dtype


class Lineage:
    """Where the keys of each row lie. Rows that change places leave them where they are: nothing large is moved.

    One for all layers of a model, whose rows change places together.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self.filled: int | None = 0  # slots, the same in every row, as long as the host counts them
        self.restart(rows)

    def restart(self, rows: int) -> None:
        """Every key lies in its own row."""
        self.own: Int[Tensor, "rows 1"] = torch.arange(rows, device=self.device)[:, None]
        self.rows: Int[Tensor, "rows capacity"] | None = None  # absent: each in its own

    def write(self, positions: Int[Tensor, "#rows n"]) -> None:
        """The keys at these positions, which follow the last, are about to be written, each row's into its own."""
        n = positions.shape[1]
        # A step of one token may be recorded, and replayed where nobody counts.
        self.filled = None if self.filled is None or n == 1 else self.filled + n
        if self.rows is not None:
            assert positions.shape[0] == 1, "rows that have changed places stay in step"
            self.rows.index_copy_(1, positions[0], self.own.expand(-1, positions.shape[1]))

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Positions from `length` on will be written again."""
        self.filled = min(self.filled, length) if self.filled is not None and isinstance(length, int) else None

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        if self.rows is None:
            self.rows = self.own.repeat(1, self.capacity)
        self.rows.copy_(self.rows[rows])  # in place: a captured graph goes on reading the same memory

    def tensors(self) -> list[Tensor]:
        # Where every key lies in its own row there is nothing to change: a copy, that may be written to without harm.
        return [self.own.repeat(1, self.capacity) if self.rows is None else self.rows]


class FixedCache(LayerCache):
    """Has a slot for every position from the start, so that no shape changes and a step can be captured whole.

    Slot = position. An empty slot, or one that was truncated, lies after every query: a causal mask hides it.
    """

    def __init__(self, rows: int, groups: int, capacity: int, head: int, *, like: Tensor,
                 lineage: Lineage | None = None) -> None:
        self.keys = like.new_zeros(rows, groups, capacity, head, dtype=kept_as(like))
        self.values = torch.zeros_like(self.keys)
        self.places = torch.arange(capacity, device=like.device)[None]
        self.lineage = lineage

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        if k.device.type == "cpu":
            return self._append_on_cpu(k.to(self.keys.dtype), v.to(self.keys.dtype), positions)
        if few.stores(k, v):
            few.store(k, v, self.keys, self.values, positions)
        else:
            self._write(k, v, positions)
        if self.lineage is not None and self.lineage.filled:
            return self._stored(self.lineage.filled, newest=True)
        return self._stored(self.places.shape[1], newest=False)

    def _append_on_cpu(self, k: Tensor, v: Tensor, positions: Tensor) -> Stored:
        """A CPU records nothing: it may look where it stands, and pass over the empty slots."""
        filled = int(positions.max()) + 1
        if positions.numel() == 1:  # the same, in half of the time
            self.keys.narrow(2, filled - 1, 1).copy_(k)
            self.values.narrow(2, filled - 1, 1).copy_(v)
        else:
            self._write(k, v, positions)
        return self._stored(filled, newest=False)

    def _write(self, k: Tensor, v: Tensor, positions: Tensor) -> None:
        if positions.shape[0] == 1:
            self.keys.index_copy_(2, positions[0], k)
            self.values.index_copy_(2, positions[0], v)
        else:
            slots = positions[:, None, :, None].expand_as(k)
            self.keys.scatter_(2, slots, k)
            self.values.scatter_(2, slots, v)

    def project(self, x: Float[Tensor, "rows n width"], layer: nn.Module, *, norm: Norm | None,
                positions: Int[Tensor, "#rows n"]) -> tuple[Float[Tensor, "rows n queries"], Stored] | None:
        q = project(x, layer, Slots(self.keys, self.values, positions), norm=norm)
        return None if q is None else (q, self._stored(self.places.shape[1], newest=False))

    def _stored(self, filled: int, *, newest: bool) -> Stored:
        rows = None if self.lineage is None or self.lineage.rows is None else self.lineage.rows.narrow(1, 0, filled)
        keys, values = self.keys.narrow(2, 0, filled), self.values.narrow(2, 0, filled)
        return Stored(keys, values, self.places.narrow(1, 0, filled), rows, in_order=True, newest=newest)

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Moves the keys. Where they need not move, `Lineage.reorder` does instead."""
        if self.lineage is not None and self.lineage.rows is not None:
            lying = self.lineage.rows[:, None, :, None].expand_as(self.keys)
            self.keys, self.values = self.keys.gather(0, lying), self.values.gather(0, lying)
        self.keys, self.values = self.keys[rows], self.values[rows]

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Nothing to do: what lies after the next query is hidden, and overwritten when its turn comes."""

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values]


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
