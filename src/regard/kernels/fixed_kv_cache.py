"""A key-value cache whose shapes never change, so that a step can be recorded as one CUDA graph.

Rows that change places, as beams do, leave their keys where they are: `BeamAncestry` says in which row each lies.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels import attention_decode
from regard.kernels.storage import kept_as
from regard.nn.kv_cache import LayerCache, Stored

__all__ = ["BeamAncestry", "FixedCache"]


class BeamAncestry:
    """Where the keys of each row lie. Rows that change places leave them where they are: nothing large is moved.

    One for all layers of a model, whose rows change places together.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self.filled: int | None = 0  # slots, the same in every row, as long as the host counts them
        self.stop: int | None = None  # on a CPU, the position after the newest
        self.restart(rows)

    def restart(self, rows: int) -> None:
        """Every key lies in its own row."""
        self.own: Int[Tensor, "rows 1"] = torch.arange(rows, device=self.device)[:, None]
        self.rows: Int[Tensor, "rows capacity"] | None = None  # absent: each in its own

    def write(self, positions: Int[Tensor, "#rows n"]) -> None:
        """The keys at these positions, which follow the last, are about to be written, each row's into its own."""
        n = positions.shape[1]
        # A step of one token may be replayed from a graph, which does not count.
        self.filled = None if self.filled is None or n == 1 else self.filled + n
        # A CPU records nothing, and may look.
        self.stop = int(positions.max()) + 1 if positions.device.type == "cpu" else None
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
                 ancestry: BeamAncestry | None = None) -> None:
        self.keys = like.new_zeros(rows, groups, capacity, head, dtype=kept_as(like))
        self.values = torch.zeros_like(self.keys)
        self.places = torch.arange(capacity, device=like.device)[None]
        self.ancestry = ancestry

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "#rows n"]) -> Stored:
        if k.device.type == "cpu":
            return self._append_on_cpu(k.to(self.keys.dtype), v.to(self.keys.dtype), positions)
        if attention_decode.stores(k, v):
            attention_decode.store(k, v, self.keys, self.values, positions)
        else:
            self._write(k, v, positions)
        if self.ancestry is not None and self.ancestry.filled:
            return self._stored(self.ancestry.filled, newest=True)
        return self._stored(self.places.shape[1], newest=False)

    def _append_on_cpu(self, k: Tensor, v: Tensor, positions: Tensor) -> Stored:
        """A CPU may look where it stands, and pass over the empty slots."""
        filled = None if self.ancestry is None else self.ancestry.stop  # it has looked once for all layers
        filled = int(positions.max()) + 1 if filled is None else filled
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

    def stored(self) -> Stored:
        """All slots, after something else has written into them."""
        return self._stored(self.places.shape[1], newest=False)

    def _stored(self, filled: int, *, newest: bool) -> Stored:
        rows = None if self.ancestry is None or self.ancestry.rows is None else self.ancestry.rows.narrow(1, 0, filled)
        keys, values = self.keys.narrow(2, 0, filled), self.values.narrow(2, 0, filled)
        return Stored(keys, values, self.places.narrow(1, 0, filled), rows, in_order=True, newest=newest)

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Moves the keys. Where they need not move, `BeamAncestry.reorder` does instead."""
        if self.ancestry is not None and self.ancestry.rows is not None:
            lying = self.ancestry.rows[:, None, :, None].expand_as(self.keys)
            self.keys, self.values = self.keys.gather(0, lying), self.values.gather(0, lying)
        self.keys, self.values = self.keys[rows], self.values[rows]

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Nothing to do: what lies after the next query is hidden, and overwritten when its turn comes."""

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values]
