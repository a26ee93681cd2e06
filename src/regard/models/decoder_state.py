"""The state of a decoder between two tokens: its caches, the memory, and its position."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.kernels.decode_step import DecodePlan
from regard.kernels.fixed_kv_cache import BeamAncestry
from regard.kernels.shared_kv_cache import SharedKVCache, SharedKVIndex
from regard.nn.attention import Memory
from regard.nn.kv_cache import BlockCache, GrowingCache
from regard.nn.mask import Mask

__all__ = ["DecoderState"]


@dataclass
class DecoderState:
    """The state of a decoder between two steps: the caches, the memory, and the position of the next token."""

    caches: list[BlockCache]
    plan: DecodePlan
    memory: Memory | None
    position: Int[Tensor, "#rows 1"]
    rows: int
    ancestry: BeamAncestry | None = None
    may_share: bool = False
    """Whether rows that fan out may have their keys in one store."""
    shared_kv: SharedKVIndex | None = None
    before: int = 0
    """Places that were read at the beginning and are no tokens; nothing forgets them."""

    @property
    def in_order(self) -> bool:
        """Whether all rows stand at one position, and the keys of each lie in its own row, or in one that it shares."""
        return (self.position.shape[0] == 1 and (self.ancestry is None or self.ancestry.rows is None)
                and all(cache.own.is_gapless for cache in self.caches))

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Row i continues the old row rows[i]. Rows that share a source must stay with it."""
        # Rows at positions of their own would write over slots in which others still have a key.
        in_step = self.position.shape[0] == 1
        self.rows = len(rows)
        if self.shared_kv is not None:
            if (sources := self.shared_kv.reorder(rows)) is not None:
                for cache in self.caches:
                    assert isinstance(cache.own, SharedKVCache)
                    cache.own.choose(sources)
            return
        if self.ancestry is not None and in_step and len(rows) == len(self.ancestry.own):
            self.ancestry.reorder(rows)
            return
        for cache in self.caches:
            cache.own.reorder(rows)
        if self.ancestry is not None:
            self.ancestry.restart(len(rows))
        if not in_step:
            self.position = self.position[rows]

    def fan_out(self, size: int) -> None:
        """Each row becomes `size` neighbours, which from then on are reordered only among themselves."""
        if not self.may_share or self.position.shape[0] > 1 or size == 1:
            self.reorder(torch.arange(self.rows, device=self.position.device).repeat_interleave(size))
            return
        self.shared_kv = shared_kv = SharedKVIndex(self.rows, size, int(self.position))
        for cache in self.caches:
            assert isinstance(cache.own, GrowingCache)
            cache.own = SharedKVCache(shared_kv, cache.own)
        self.rows *= size

    def choose(self, sources: Int[Tensor, " kept"]) -> None:
        """Keep these sources only; `reorder` does the same for the rows."""
        for cache in self.caches:
            if cache.cross is not None:
                cache.cross.reorder(sources)
        if self.memory is not None:
            keys = self.memory.mask.keys
            self.memory = Memory(self.memory.states[sources], Mask(keys=None if keys is None else keys[sources]))

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Forget every token from `length` on, which may be another in each row."""
        length = length + self.before
        if self.shared_kv is not None:
            assert isinstance(length, int), "rows of a shared cache stay in step"
            self.shared_kv.truncate(length)
        for cache in self.caches:
            cache.own.truncate(length)
        if self.ancestry is not None:
            self.ancestry.truncate(length)
        self.position = self.position.clamp(max=length)

    def tensors(self) -> list[Tensor]:
        """All that the next step reads or changes."""
        found = [self.position, *(self.ancestry.tensors() if self.ancestry is not None else [])]
        for cache in self.caches:
            found += cache.own.tensors()
            found += [] if cache.cross is None else [cache.cross.keys, cache.cross.values]
        if self.memory is not None and self.memory.mask.keys is not None:
            found.append(self.memory.mask.keys)
        return found
