"""A cache for rows that go on from one another, as the beams of a sentence do.

Moving each row's keys when beams are reordered takes longer than attending to them. Here the keys of all rows of a
source lie side by side for every position, and are never moved: each row has a mask of the keys of its own past. So the
rows of a source are queries of one store, several times as long, and each of them masks most of it. That is cheap: the
store is read once for all of them.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.kernels.linear_onednn import knows_bfloat16
from regard.kernels.storage import kept_as
from regard.nn.kv_cache import GrowingCache, LayerCache, Stored, put

__all__ = ["SharedKVCache", "SharedKVIndex", "pays"]


def pays(blocks: nn.ModuleList, like: Tensor) -> bool:
    """Whether beams gain from one store: on a CPU, by a product with keys that no heads share, and with no hooks.

    A hook that looks at a row's attention wants to see that row's own past only.
    """
    attentions = [block.self for block in blocks]
    return (like.device.type == "cpu"
            and all(isinstance(each.attend.scale, float) and each.groups == each.heads for each in attentions)  # type: ignore[union-attr]
            and not any(part._forward_hooks or part._forward_pre_hooks for part in blocks.modules()))


class SharedKVIndex:
    """For every row of a source and every position, which of its siblings wrote what lies there. One for all layers."""

    def __init__(self, sources: int, size: int, filled: int) -> None:
        self.size = size
        # Keys from before the rows were fanned out belong to the first.
        self.line: Int[Tensor, "sources size slots"] = torch.zeros(sources, size, filled, dtype=torch.long)
        self._lines: Bool[Tensor, "sources 1 size keys"] | None = None

    def reach(self, slots: int) -> None:
        """`slots` positions are written; each row writes its own new ones."""
        if (new := slots - self.line.shape[2]) > 0:  # the first layer tells; for the others it is nothing new
            own = torch.arange(self.size)[None, :, None].expand(len(self.line), -1, new)
            self.line, self._lines = torch.cat([self.line, own], dim=2), None

    @property
    def visible_keys(self) -> Bool[Tensor, "sources 1 size keys"]:
        """Which of all keys each row may see."""
        if self._lines is None:
            self._lines = (self.line[..., None] == torch.arange(self.size)).flatten(2)[:, None]
        return self._lines

    def reorder(self, rows: Int[Tensor, " kept"]) -> Int[Tensor, " sources"] | None:
        """Row i continues row rows[i], a sibling. If some sources have ended, only the others."""
        before, places = len(self.line), rows.view(-1, self.size)
        sources = places[:, 0] // self.size
        assert (places // self.size == sources[:, None]).all(), "rows that share a source stay with it"
        self.line = self.line[sources[:, None], places % self.size]
        self._lines = None
        return None if len(sources) == before and torch.equal(sources, torch.arange(before)) else sources

    def truncate(self, length: int) -> None:
        self.line, self._lines = self.line[:, :, :length], None


class SharedKVCache(LayerCache):
    """Keys and values of one self-attention, key j of sibling i at place j · size + i."""

    def __init__(self, index: SharedKVIndex, before: GrowingCache) -> None:
        self.index = index
        self.keys: Float[Tensor, "sources groups room head"] | None = None
        self.values: Float[Tensor, "sources groups room value"] | None = None
        self.places: Int[Tensor, "1 slots"] | None = before.places
        if before.keys is not None and before.values is not None and before.places is not None:
            filled = before.places.shape[1]
            self.keys, self.values = (_of_first(x[:, :, :filled], index.size) for x in (before.keys, before.values))

    def append(self, k: Float[Tensor, "rows groups n head"], v: Float[Tensor, "rows groups n value"], *,
               positions: Int[Tensor, "1 n"]) -> Stored:
        size = self.index.size
        start = 0 if self.places is None else self.places.shape[1]
        dtype = _kept_as(k)
        self.keys, self.values = (
            put(_side_by_side(new, size), None if room is None else room.to(dtype), start * size, dtype=dtype)
            for new, room in ((k, self.keys), (v, self.values)))
        self.places = positions if self.places is None else torch.cat([self.places, positions], dim=1)
        self.index.reach(self.places.shape[1])
        stop = self.places.shape[1] * size
        return Stored(self.keys[:, :, :stop], self.values[:, :, :stop], self.places.repeat_interleave(size, 1),
                      visible_keys=self.index.visible_keys)

    def choose(self, sources: Int[Tensor, " kept"]) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[sources], self.values[sources]

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        if self.places is not None:
            self.places = self.places[:, : int((self.places < length).sum())]

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.keys, self.values, self.places) if tensor is not None]


def _kept_as(x: Tensor) -> torch.dtype:
    """With native bfloat16 products, a CPU attends to a bfloat16 cache twice as fast as to float32."""
    return x.dtype if knows_bfloat16() else kept_as(x)


def _side_by_side(x: Float[Tensor, "rows groups n head"], size: int) -> Float[Tensor, "sources groups keys head"]:
    rows: Tensor = x.unflatten(0, (-1, size))
    return rows.permute(0, 2, 3, 1, 4).flatten(2, 3)


def _of_first(x: Float[Tensor, "sources groups slots head"], size: int) -> Float[Tensor, "sources groups keys head"]:
    """The keys with room next to each for those of its siblings, which no row's past contains."""
    room = x.new_zeros(*x.shape[:3], size, x.shape[3])
    room[:, :, :, 0] = x
    return room.flatten(2, 3)
