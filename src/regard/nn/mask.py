"""Mask: which keys a query may see, described, not encoded."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.kernels.once import once

__all__ = ["AttentionPositions", "Mask", "whole"]


def whole(length: int, device: torch.device) -> Int[Tensor, "1 length"]:
    """The positions of a sequence that is there from its first token to its last."""
    return torch.arange(length, device=device)[None]


class AttentionPositions(NamedTuple):
    """The positions of the queries and of the keys. Where it is absent, both count 0, 1, 2 …"""

    queries: Int[Tensor, "#batch queries"]
    keys: Int[Tensor, "#batch keys"]
    rows: Int[Tensor, "batch keys"] | None = None
    """In which row of k and v each key lies, and its value. Absent: in the query's own."""
    in_order: bool = False
    """Key j stands at position j."""
    newest: bool = False
    """The queries stand at the last of these keys, one after the other, in every row."""
    visible_keys: Bool[Tensor, "batch 1 queries keys"] | None = None
    """Which keys each query may see, in addition to the mask: other rows' keys lie among its own."""

    def part(self, low: int, high: int) -> "AttentionPositions":
        """The same queries with the keys from `low` up to `high`."""
        rows = None if self.rows is None else self.rows[:, low:high]
        return AttentionPositions(self.queries, self.keys[:, low:high], rows, in_order=self.in_order and low == 0)


@dataclass(frozen=True)
class Mask:
    """A description of who may look at whom; `dense` turns it into True and False for given positions.

    The tensors say something about the token at each *position* of the keys' sequence, so that a cache, a
    chunk, or one chosen row are resolved in the same way.

    >>> Mask(causal=True).dense(whole(3, torch.device("cpu")), whole(3, torch.device("cpu")))[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    causal: bool = False
    """A query sees no later position."""
    keys: Bool[Tensor, "batch length"] | None = None
    """The real tokens; padding is False, and no query sees it."""
    window: int | None = None
    """A query sees this many positions to either side of its own, and no further."""
    globals: Bool[Tensor, "batch length"] | None = None
    """Tokens that lift the window: they see all, and all see them."""
    spans: Int[Tensor, "batch length"] | None = None
    """Tokens of one span (0: of none) see each other both ways, causal or not, as an image inside a text."""
    documents: Int[Tensor, "batch length"] | None = None
    """Texts packed into one row do not see each other."""
    blind: Bool[Tensor, "batch length"] | None = None
    """Tokens that ask nothing here: as queries they see no key."""
    most_globals: int | None = None
    """No row has more global tokens than this. Absent: they are counted, for which a GPU has to be waited for."""

    @property
    def global_count(self) -> int:
        """For how many global tokens there has to be room in each row."""
        if self.globals is None or self.most_globals is not None:
            return self.most_globals or 0
        whole = self.globals
        return once(self, "count", lambda: int(whole.sum(1).max()))

    @property
    def global_places(self) -> Int[Tensor, "rows count"]:
        """Where each row's global tokens stand, in order. Rows with fewer of them end with tokens that are not."""
        assert self.globals is not None
        whole = self.globals
        return once(self, "places", lambda: _first(whole, self.global_count))

    @property
    def apart(self) -> tuple["Mask", "Mask"]:
        """The masks of the other tokens and of the global tokens, if these have separate projections."""
        assert self.globals is not None
        assert self.blind is None, "who sees nothing is not asked"
        whole = self.globals
        return once(self, "apart", lambda: (replace(self, blind=whole), replace(self, blind=~whole, window=None)))

    def find_globals(self, positions: Int[Tensor, "#batch length"]) -> Int[Tensor, "rows count"]:
        """`global_places`, in a sequence that stands at these positions."""
        assert self.globals is not None
        return _first(_at(self.globals, positions), self.global_count)

    @property
    def only_causal(self) -> bool:
        """Whether the mask is only causal: every fused kernel has this case built in."""
        return self.causal and self.only_near and self.window is None

    @property
    def only_near(self) -> bool:
        """Whether nothing but positions decides: causality and the window."""
        return all(part is None for part in (self.keys, self.globals, self.spans, self.documents, self.blind))

    def dense(
        self, queries: Int[Tensor, "#batch queries"], keys: Int[Tensor, "#batch keys"]
    ) -> Bool[Tensor, "#batch 1 #queries keys"] | None:
        """True where the query at a position may see the key at a position. None: everywhere."""
        q, k = queries[:, None, :, None], keys[:, None, None, :]
        allowed = None
        if self.causal:
            allowed = k <= q
        if self.window is not None:
            near = (q - k).abs() <= self.window
            if self.globals is not None:
                near = near | _at(self.globals, queries)[:, None, :, None] | _at(self.globals, keys)[:, None, None, :]
            allowed = near if allowed is None else allowed & near
        if self.spans is not None and allowed is not None:
            q_span, k_span = _at(self.spans, queries)[:, None, :, None], _at(self.spans, keys)[:, None, None, :]
            allowed = allowed | ((q_span == k_span) & (q_span != 0))
        if self.documents is not None:
            same = _at(self.documents, queries)[:, None, :, None] == _at(self.documents, keys)[:, None, None, :]
            allowed = same if allowed is None else allowed & same
        if self.keys is not None:
            real = _at(self.keys, keys)[:, None, None, :]
            allowed = real if allowed is None else allowed & real
        if self.blind is not None:
            asks = ~_at(self.blind, queries)[:, None, :, None]
            allowed = (asks if allowed is None else allowed & asks).expand(-1, -1, -1, keys.shape[1])
        return allowed


def _at(what: Tensor, positions: Tensor) -> Tensor:
    """The values of `what` at these positions; a cache's empty slots lie beyond the end, and are clamped."""
    rows = max(len(what), len(positions))
    return what.expand(rows, -1).gather(1, positions.clamp(max=what.shape[1] - 1).expand(rows, -1))


def _first(chosen: Bool[Tensor, "rows length"], count: int) -> Int[Tensor, "rows count"]:
    """Where the first ones of each row are that are true; then, where there are fewer, of those that are not."""
    length = chosen.shape[1]
    # No ties, whose order would be anybody's.
    order = chosen * length + torch.arange(length, 0, -1, device=chosen.device)
    return order.topk(min(count, length), dim=1).indices
