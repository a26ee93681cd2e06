"""Attention: project, split heads, position, cache, attend, merge."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attend import AttentionPositions
from regard.nn.kv_cache import CrossKV, LayerCache
from regard.nn.linear import Linear
from regard.nn.mask import Mask, whole
from regard.nn.norm import Norm
from regard.nn.positions import Positions
from regard.nn.score import SCORES

__all__ = ["Attention", "CrossAttention", "Memory"]


@dataclass(frozen=True)
class Memory:
    """The memory of cross-attention: the states of a source, and which of them are not padding."""

    states: Float[Tensor, "sources keys memory"]
    mask: Mask = Mask()


class Heads(nn.Module):
    """Shared by self- and cross-attention: the score, the split into heads, and the output [Z₁ … Z_H] W_O.

    `head_widths` may differ from head to head; narrower heads are padded with zeros, which no score sees.
    `value_widths` are those of the values, where they differ from the keys'.
    """

    def __init__(self, width: int, *, heads: int, kv_heads: int | None = None,
                 head_widths: tuple[int, ...] | None = None, value_widths: tuple[int, ...] | None = None,
                 bias: bool = True, score: str = "scaled-dot", temperature: float = 1.0,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.widths = head_widths or (width // heads,) * heads
        self.value_widths = value_widths or self.widths
        if len(self.value_widths) != len(self.widths):
            raise ValueError(f"value_widths: {len(self.value_widths)} widths for {len(self.widths)} heads")
        self.heads, self.groups, self.head = len(self.widths), kv_heads or len(self.widths), max(self.widths)
        self.equal = len({*self.widths, *self.value_widths}) == 1
        if not self.equal and self.groups != self.heads:
            raise ValueError("heads of unequal widths cannot share keys")
        self.query_width, self.merged_width = sum(self.widths), sum(self.value_widths)
        self.key_width = self.groups * self.head if self.equal else self.query_width
        self.value_width = self.key_width if self.equal else self.merged_width
        self.attend = SCORES[score](self.widths, temperature=temperature, dropout=dropout)
        self.out = Linear(self.merged_width, width, bias=bias)

    def split(self, x: Float[Tensor, "batch length features"]) -> Float[Tensor, "batch heads length head"]:
        if self.equal:
            batch, length, _ = x.shape
            return x.view(batch, length, -1, self.head).transpose(1, 2)
        return _padded(x, self.widths)

    def split_unequal(
        self, kv: Float[Tensor, "batch length features"]
    ) -> tuple[Float[Tensor, "batch heads length head"], Float[Tensor, "batch heads length value"]]:
        """Keys and values of unequal widths."""
        k, v = kv.split([self.key_width, self.value_width], dim=-1)
        return _padded(k, self.widths), _padded(v, self.value_widths)

    def merge(self, x: Float[Tensor, "batch heads length head"]) -> Float[Tensor, "batch length features"]:
        if self.equal:
            return x.transpose(1, 2).flatten(2)
        parts = zip(x.unbind(1), self.value_widths, strict=True)
        return torch.cat([part[..., :width] for part, width in parts], dim=-1)


def _padded(x: Float[Tensor, "batch length features"],
            widths: tuple[int, ...]) -> Float[Tensor, "batch heads length widest"]:
    """The heads side by side, as wide as the widest."""
    parts = [nn.functional.pad(part, (0, max(widths) - part.shape[-1])) for part in x.split(widths, dim=-1)]
    return torch.stack(parts, dim=1)


class Attention(Heads):
    """Self-attention: queries, keys and values from one sequence, in one product (Vaswani et al. 2017, 3.2.2)."""

    def __init__(self, width: int, *, heads: int, kv_heads: int | None = None,
                 head_widths: tuple[int, ...] | None = None, value_widths: tuple[int, ...] | None = None,
                 bias: bool = True, score: str = "scaled-dot", temperature: float = 1.0, dropout: float = 0.0,
                 positions: Positions | None = None, qk_norm: bool = False, norm_epsilon: float = 1e-5) -> None:
        super().__init__(width, heads=heads, kv_heads=kv_heads, head_widths=head_widths, value_widths=value_widths,
                         bias=bias, score=score, temperature=temperature, dropout=dropout)
        self.positions = positions or Positions()
        self.qkv = Linear(width, self.query_width + self.key_width + self.value_width, bias=bias)
        if qk_norm and len(set(self.widths)) > 1:
            raise ValueError("heads of unequal widths have no norm in common")
        self.qk_norm = qk_norm
        # Scores then cannot grow without bound, however large the rate (Henry et al. 2020; Dehghani et al. 2023).
        self.query_norm = Norm(self.head, kind="rms", epsilon=norm_epsilon) if qk_norm else nn.Identity()
        self.key_norm = Norm(self.head, kind="rms", epsilon=norm_epsilon) if qk_norm else nn.Identity()
        # Keys can then go into a cache as they come out of the product.
        self.stores_plain_keys = self.equal and not qk_norm and type(self.positions).rotate is Positions.rotate

    def forward(
        self, x: Float[Tensor, "batch length width"], *, mask: Mask,
        positions: Int[Tensor, "#batch length"] | None = None, cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """`positions` absent: the whole sequence is here, from position 0 on."""
        here = whole(x.shape[1], x.device) if positions is None else positions
        places = None if positions is None else AttentionPositions(here, here)
        q, k, v = self.projected(self.qkv(x), here)
        if cache is not None:
            stored = cache.append(k, v, positions=here)
            q, k, v, places = stored.queries(q), stored.k, stored.v, stored.places(here)
        context = self.attend(q, k, v, mask=mask, positions=places, bias=self.positions.bias()).context
        return self.out(self.merge(context).view(*x.shape[:2], -1))  # type: ignore[no-any-return]

    def projected(self, qkv: Float[Tensor, "batch length features"],
                  here: Int[Tensor, "#batch length"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, normed and turned by their positions where that is asked for."""
        if self.equal:
            heads = self.split(qkv).split([self.heads, self.groups, self.groups], dim=1)
        else:
            query, others = qkv.split([self.query_width, self.key_width + self.value_width], dim=-1)
            heads = (self.split(query), *self.split_unequal(others))
        q, k, v = self.query_norm(heads[0]), self.key_norm(heads[1]), heads[2]
        return self.positions.rotate(q, here), self.positions.rotate(k, here), v


class CrossAttention(Heads):
    """Queries from one sequence, keys and values from a memory, whose width may be another."""

    def __init__(self, width: int, *, heads: int, memory_width: int | None = None, kv_heads: int | None = None,
                 head_widths: tuple[int, ...] | None = None, value_widths: tuple[int, ...] | None = None,
                 bias: bool = True, score: str = "scaled-dot", temperature: float = 1.0,
                 dropout: float = 0.0) -> None:
        super().__init__(width, heads=heads, kv_heads=kv_heads, head_widths=head_widths, value_widths=value_widths,
                         bias=bias, score=score, temperature=temperature, dropout=dropout)
        self.q = Linear(width, self.query_width, bias=bias)
        self.kv = Linear(memory_width or width, self.key_width + self.value_width, bias=bias)

    def remember(self, states: Float[Tensor, "sources keys memory"]) -> CrossKV:
        """Project the memory: once for a whole sentence, however many tokens and beams look at it."""
        if self.equal:
            keys, values = self.split(self.kv(states)).chunk(2, dim=1)
        else:
            keys, values = self.split_unequal(self.kv(states))
        return CrossKV.of(keys, values)

    def forward(
        self, x: Float[Tensor, "rows length width"], memory: Memory, *, cache: CrossKV | None = None,
    ) -> Float[Tensor, "rows length width"]:
        """With a cache, `memory` gives its mask only. Where there are more rows than sources, neighbours share one."""
        known = cache or self.remember(memory.states)
        rows, sources = x.shape[0], known.keys.shape[0]
        # Rows that share a source become more queries of it: its keys and values are never copied.
        q = self.split(self.q(x).reshape(sources, -1, self.query_width))
        attended = self.attend(q, known.keys, known.values, mask=memory.mask)
        return self.out(self.merge(attended.context).reshape(rows, -1, self.merged_width))  # type: ignore[no-any-return]
