"""One new token of each row through the blocks of a decoder, on a CPU.

There a product with one row takes some 50 µs. Around its products a block has to do with any mask, any cache and any
number of tokens, and what Python spends on these choices takes nearly as long again. For one token that sees all
that came before, nothing is left to choose.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn import onednn
from regard.nn.block import Block
from regard.nn.cache import BlockCache, LayerCache

__all__ = ["OneToken"]


class OneToken:
    """Blocks laid out flat: where it `fits`, calling it is calling one block after the other."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        self.blocks = blocks
        self.layers = [_Layer(block) for block in blocks if _is_plain(block)]  # type: ignore[arg-type]
        # Whoever looks into a module, or changes what it gives, does so by a hook; here none would be called.
        self.hooks = [hooks for part in blocks.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]

    def fits(self, x: Float[Tensor, "rows length width"]) -> bool:
        return (
            x.shape[1] == 1 and x.device.type == "cpu" and len(self.layers) == len(self.blocks)
            and not self.blocks.training and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            and not any(self.hooks))

    def __call__(
        self, x: Float[Tensor, "rows 1 width"], *, positions: Int[Tensor, "1 1"], caches: Sequence[BlockCache]
    ) -> Float[Tensor, "rows 1 width"]:
        """`positions`: the same in all rows, and the last in the caches."""
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, positions, cache.own)
        return x


def _is_plain(block: Block) -> bool:
    """Whether a token sees nothing but its past, by a fused kernel, and without a bias."""
    attention = block.self
    return (block.cross is None and attention.equal and attention.attend.factor is not None
            and attention.positions.bias() is None)


def _times(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    if type(layer) is not nn.Linear:  # its weights are packed, or otherwise its own affair
        return layer.forward
    return lambda x: onednn.linear(x, layer) if onednn.serves(layer, x) else layer.forward(x)


class _Layer:
    """What a block does, with its parts at hand."""

    def __init__(self, block: Block) -> None:
        attention, feed_forward = block.self, block.feed_forward
        self.post, self.attention = block.post, attention
        self.self_norm, self.feed_norm = block.self_norm.normed, block.feed_forward_norm.normed
        self.qkv, self.out = _times(attention.qkv), _times(attention.out)
        self.up, self.bend, self.down = _times(feed_forward.up), feed_forward.activation, _times(feed_forward.down)
        self.heads, self.head = [attention.heads, attention.groups, attention.groups], attention.head
        self.shared, self.factor = attention.heads != attention.groups, attention.attend.factor
        self.rotate, self.qk_norm = attention.positions.rotate, attention.qk_norm

    def __call__(self, x: Tensor, positions: Tensor, cache: LayerCache) -> Tensor:
        if self.post:
            x = self.self_norm(x + self.attend(x, positions, cache))
            return self.feed_norm(x + self.feed(x))
        x = x + self.attend(self.self_norm(x), positions, cache)
        return x + self.feed(self.feed_norm(x))

    def attend(self, x: Tensor, positions: Tensor, cache: LayerCache) -> Tensor:
        rows = x.shape[0]
        heads = self.qkv(x).view(rows, -1, 1, self.head)  # of one token: nothing has to change places
        q, k, v = heads.split_with_sizes(self.heads, 1)
        if self.qk_norm:
            q, k = self.attention.query_norm(q), self.attention.key_norm(k)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        k, v, *_ = cache.append(k, v, positions=positions)
        context = F.scaled_dot_product_attention(q.to(k.dtype), k, v, scale=self.factor, enable_gqa=self.shared)
        return self.out(context.view(rows, 1, -1).to(x.dtype))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(self.bend(self.up(x)))
