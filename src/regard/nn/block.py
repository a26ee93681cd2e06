"""Block: one layer of any transformer."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, CrossAttention, Memory
from regard.nn.dropout import Dropout
from regard.nn.feed_forward import FeedForward
from regard.nn.global_attention import GlobalAttention
from regard.nn.kv_cache import BlockCache
from regard.nn.mask import Mask
from regard.nn.norm import Norm
from regard.nn.positions import Positions
from regard.settings.schema import Tower

__all__ = ["Block", "LayerScale", "PostNormBlock", "norm"]


def norm(tower: Tower) -> Norm:
    return Norm(tower.width, kind=tower.norm, epsilon=tower.norm_epsilon, bias=tower.bias)


class LayerScale(nn.Module):
    """A learned factor for each number of a vector (Touvron et al. 2021b, eq. 4)."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.factors = nn.Parameter(torch.empty(width))

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return x * self.factors.to(x.dtype)

    def settle(self) -> None:
        nn.init.constant_(self.factors, self.start)


class Block(nn.Module):
    """Self-attention, then attention to a memory if there is one, then the feed-forward; a residual around each.

    Pre-norm, x + part(norm(x)), trains without care (Xiong et al. 2020).
    """

    post = False
    """Whether the norms come after the residual sums."""

    def __init__(self, tower: Tower, *, positions: Positions, memory_width: int | None = None) -> None:
        super().__init__()
        assert (tower.norm_place == "post") == self.post, "PostNormBlock is the one whose norms come after"
        widths = tower.widths_of_heads
        self_attention = GlobalAttention if tower.global_projections else Attention
        self.self = self_attention(
            tower.width, heads=tower.heads, kv_heads=tower.kv_heads, head_widths=widths, bias=tower.bias,
            score=tower.score, temperature=tower.temperature, dropout=tower.attention_dropout, positions=positions,
            qk_norm=tower.qk_norm, norm_epsilon=tower.norm_epsilon)
        self.self_norm = norm(tower)
        self.cross: CrossAttention | None = None
        if memory_width is not None:
            self.cross = CrossAttention(
                tower.width, heads=tower.heads, memory_width=memory_width, kv_heads=tower.kv_heads,
                head_widths=widths, bias=tower.bias, score=tower.score, temperature=tower.temperature,
                dropout=tower.attention_dropout)
            self.cross_norm = norm(tower)
        self.feed_forward = FeedForward(
            tower.width, tower.ffn_width or 4 * tower.width, activation=tower.activation, bias=tower.bias,
            dropout=tower.ffn_dropout)
        self.feed_forward_norm = norm(tower)
        scale = tower.layer_scale
        self.self_scale = nn.Identity() if scale is None else LayerScale(tower.width, scale)
        self.feed_forward_scale = nn.Identity() if scale is None else LayerScale(tower.width, scale)
        self.dropout = Dropout(tower.dropout)

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask,
        positions: Int[Tensor, "#batch length"] | None = None, cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch length width"]:
        own, remembered = (None, None) if cache is None else (cache.own, cache.cross)
        seen = self.self(self.self_norm(x), mask=mask, positions=positions, cache=own)
        x = x + self.dropout(self.self_scale(seen))
        if self.cross is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            x = x + self.dropout(self.cross(self.cross_norm(x), memory, cache=remembered))
        changed = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(self.feed_forward_scale(changed))  # type: ignore[no-any-return]


class PostNormBlock(Block):
    """norm(x + part(x)), as in Vaswani et al. 2017, 3.1."""

    post = True

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask,
        positions: Int[Tensor, "#batch length"] | None = None, cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch length width"]:
        own, remembered = (None, None) if cache is None else (cache.own, cache.cross)
        seen = self.self(x, mask=mask, positions=positions, cache=own)
        x = self.self_norm(x + self.dropout(self.self_scale(seen)))
        if self.cross is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            x = self.cross_norm(x + self.dropout(self.cross(x, memory, cache=remembered)))
        changed = self.feed_forward_scale(self.feed_forward(x))
        return self.feed_forward_norm(x + self.dropout(changed))  # type: ignore[no-any-return]
