"""Self-attention whose global tokens have projections of their own, as in Longformer."""

from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.attend import AttentionPositions
from regard.nn.attention import Attention
from regard.nn.kv_cache import LayerCache
from regard.nn.linear import Linear
from regard.nn.mask import Mask, whole
from regard.nn.positions import Positions
from regard.nn.score import SCORES

__all__ = ["GlobalAttention"]


class GlobalAttention(Attention):
    """The global tokens of the mask look at all, and are looked at, by projections of their own.

    Beltagy et al. 2020, 3.1. Without global tokens it is plain self-attention.
    """

    def __init__(self, width: int, *, heads: int, kv_heads: int | None = None,
                 head_widths: tuple[int, ...] | None = None, value_widths: tuple[int, ...] | None = None,
                 bias: bool = True, score: str = "scaled-dot", temperature: float = 1.0, dropout: float = 0.0,
                 positions: Positions | None = None, qk_norm: bool = False, norm_epsilon: float = 1e-5) -> None:
        super().__init__(width, heads=heads, kv_heads=kv_heads, head_widths=head_widths, value_widths=value_widths,
                         bias=bias, score=score, temperature=temperature, dropout=dropout, positions=positions,
                         qk_norm=qk_norm, norm_epsilon=norm_epsilon)
        self.global_qkv = Linear(width, self.query_width + self.key_width + self.value_width, bias=bias)
        self.global_attend = SCORES[score](self.widths, temperature=temperature, dropout=dropout)

    def forward(
        self, x: Float[Tensor, "batch length width"], *, mask: Mask,
        positions: Int[Tensor, "#batch length"] | None = None, cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch length width"]:
        if mask.globals is None:
            return super().forward(x, mask=mask, positions=positions, cache=cache)
        assert cache is None, "global tokens see the whole sequence, which a cache has in part"
        here = whole(x.shape[1], x.device) if positions is None else positions
        places = None if positions is None else AttentionPositions(here, here)
        q, k, v = self.projected(self.qkv(x), here)
        context = self.attend(q, k, v, mask=mask.apart[0], positions=places, bias=self.positions.bias()).context
        context = self.with_globals(context, self.global_qkv(x), mask, positions)
        return self.out(self.merge(context))  # type: ignore[no-any-return]

    def with_globals(
        self, context: Float[Tensor, "batch heads length head"], qkv: Float[Tensor, "batch length features"],
        mask: Mask, positions: Int[Tensor, "#batch length"] | None,
    ) -> Float[Tensor, "batch heads length head"]:
        """The contexts, with those of the global tokens, which look at all."""
        here = whole(qkv.shape[1], qkv.device) if positions is None else positions
        q, k, v = self.projected(qkv, here)
        index = (mask.global_places if positions is None else mask.find_globals(positions)).expand(len(q), -1)
        there = index[:, None, :, None].expand(-1, self.heads, -1, -1)
        asked, answered = (there.expand(-1, -1, -1, x.shape[-1]) for x in (q, context))
        places = AttentionPositions(here.expand(len(q), -1).gather(1, index), here)
        seen = self.global_attend(q.gather(2, asked), k, v, mask=mask.apart[1], positions=places,
                                  bias=self.positions.bias())
        # Each token gets its output from one of the two attentions; the other leaves it at zero.
        return context.scatter(2, answered, context.gather(2, answered) + seen.context)
