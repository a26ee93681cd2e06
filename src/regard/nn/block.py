"""FeedForward, Block: one layer of any transformer."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, CrossAttention, Memory
from regard.nn.cache import BlockCache
from regard.nn.dropout import Dropout
from regard.nn.mask import Mask
from regard.nn.norm import Norm
from regard.nn.positions import Positions
from regard.nn.product import Activation, product
from regard.settings.schema import Tower

__all__ = ["Block", "FeedForward", "norm"]

Part = Callable[[Tensor, Norm | None, Tensor | None], Tensor]
"""What a block does to its input, given the norm that comes before and what is added after."""

GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


def norm(tower: Tower) -> Norm:
    return Norm(tower.width, kind=tower.norm, epsilon=tower.norm_epsilon, bias=tower.bias)


class FeedForward(nn.Module):
    """φ(x W₁) W₂ for each token alone; gated: (φ(x W₁) ⊙ x V) W₂ (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, *, activation: str = "relu", bias: bool = True,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = Activation(GATES.get(activation, activation), gated=activation in GATES)
        self.up = nn.Linear(width, 2 * hidden if self.activation.gated else hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch length width"], *, norm: Norm | None = None, add: Tensor | None = None
    ) -> Float[Tensor, "batch length width"]:
        """`norm` comes before it, and `add` is added to what comes out."""
        x = product(x, self.up, norm=norm, activation=self.activation)
        return product(self.dropout(x), self.down, add=add)


class Block(nn.Module):
    """Self-attention, then attention to a memory if there is one, then the feed-forward; a residual around each.

    Post-norm is the 2017 paper's `norm(x + part(x))`; pre-norm, `x + part(norm(x))`, trains without care.
    """

    def __init__(self, tower: Tower, *, positions: Positions, memory_width: int | None = None) -> None:
        super().__init__()
        self.post = tower.norm_place == "post"
        widths = (tower.head_width or tower.width // tower.heads,) * tower.heads
        self.self = Attention(
            tower.width, heads=tower.heads, key_heads=tower.key_heads, head_widths=widths, bias=tower.bias,
            score=tower.score, temperature=tower.temperature, dropout=tower.attention_dropout, positions=positions,
            qk_norm=tower.qk_norm, norm_epsilon=tower.norm_epsilon, global_projections=tower.global_projections)
        self.self_norm = norm(tower)
        self.cross: CrossAttention | None = None
        if memory_width is not None:
            self.cross = CrossAttention(
                tower.width, heads=tower.heads, memory_width=memory_width, key_heads=tower.key_heads,
                head_widths=widths, bias=tower.bias, score=tower.score, temperature=tower.temperature,
                dropout=tower.attention_dropout)
            self.cross_norm = norm(tower)
        self.feed_forward = FeedForward(
            tower.width, tower.hidden_width or 4 * tower.width, activation=tower.activation, bias=tower.bias,
            dropout=tower.hidden_dropout)
        self.feed_forward_norm = norm(tower)
        self.dropout = Dropout(tower.dropout)

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask,
        positions: Int[Tensor, "#batch length"] | None = None, cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch length width"]:
        own = cache.own if cache is not None else None
        x = self.residual(x, self.self_norm, lambda h, norm, add: self.self(
            h, mask=mask, positions=positions, cache=own, norm=norm, add=add))
        if (cross := self.cross) is not None:
            assert memory is not None, "a block with cross-attention needs a memory"
            remembered = cache.cross if cache is not None else None
            x = self.residual(x, self.cross_norm, lambda h, norm, add: cross(
                h, memory, cache=remembered, norm=norm, add=add))
        return self.residual(x, self.feed_forward_norm, lambda h, norm, add: self.feed_forward(h, norm=norm, add=add))

    def residual(self, x: Tensor, norm: Norm, part: Part) -> Tensor:
        if self.post:
            return norm.of_sum(x, self.dropout(part(x, None, None)))
        if self.training:
            return x + self.dropout(part(norm(x), None, None))  # type: ignore[no-any-return]
        return part(x, norm, x)  # the same without dropout, where norm and sum can join the products beside them
