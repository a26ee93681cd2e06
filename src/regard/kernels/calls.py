"""Calls of kernels: the arguments of a definition, as one value.

`cache_key` contains everything that the `serves` of any CPU kernel reads, as a hashable value; None if it reads numbers
that change from call to call. A kernel that reads more must add it there.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from torch import Tensor, nn

from regard.nn.mask import AttentionPositions, Mask, whole

__all__ = ["ActivatedLinearCall", "AttentionCall", "Bias", "CrossEntropyCall", "LinearCall", "NormCall", "from_zero"]

Bias = Callable[[Tensor, Tensor], Tensor]
"""From the positions of queries and keys to numbers that are added to the scores."""


class AttentionCall(NamedTuple):
    """softmax((scale · q kᵀ + bias) / temperature) v, where the mask allows it."""

    q: Tensor  # (batch, heads, queries, head)
    k: Tensor  # (batch, groups, keys, head)
    v: Tensor  # (batch, groups, keys, value)
    mask: Mask
    positions: AttentionPositions | None
    bias: Bias | None
    scale: float | Tensor
    temperature: float
    dropout: float
    attend: "Callable[[AttentionCall], Tensor]"
    """Answers a call by whichever way serves it: for a kernel that is left with a smaller one."""

    @property
    def scaled(self) -> "AttentionCall":
        """With queries as the kernels take them: in the keys' precision, and one scale for all heads."""
        q, k = self.q, self.k
        if isinstance(self.scale, Tensor):  # heads of unequal widths: a kernel takes one number only
            return self._replace(q=(q * self.scale.to(q.dtype)).to(k.dtype), scale=1.0)
        return self._replace(q=q.to(k.dtype))  # a cache may keep its keys in more than they came in

    @property
    def factor(self) -> float:
        """The one number that the scores are multiplied with, once the call is `scaled`."""
        assert not isinstance(self.scale, Tensor)
        return self.scale / self.temperature

    @property
    def cache_key(self) -> Hashable:
        q, k, v, mask, places = self.q, self.k, self.v, self.mask, self.positions
        if mask.window is not None:  # with a cache, what it reaches depends on where the queries stand
            return None
        return (q.shape, k.shape, v.shape, q.dtype, k.dtype, q.requires_grad, self.bias is None,
                isinstance(self.scale, Tensor), mask.causal, mask.documents is None, mask.blind is None,
                places is None, places is None or places.visible_keys is None)

    @property
    def places(self) -> AttentionPositions:
        """The positions of queries and keys; where none are given, both count from 0."""
        return self.positions or from_zero(self.q, self.k)


def from_zero(q: Tensor, k: Tensor) -> AttentionPositions:
    return AttentionPositions(whole(q.shape[2], q.device), whole(k.shape[2], k.device))


class LinearCall(NamedTuple):
    """x Wᵀ + b."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    @property
    def cache_key(self) -> Hashable:
        """The weights that are laid out have choices of their own (`linear_onednn.Layouts`)."""
        return self.x.shape, self.x.dtype, self.weight.shape, self.weight.dtype, type(self.weight)


class ActivatedLinearCall(NamedTuple):
    """φ(x Wᵀ + b); gated: φ of the first half of the outputs, times the second half."""

    x: Tensor
    layer: nn.Module
    activation: nn.Module  # has a `name`, and is `gated` or not

    @property
    def can_be_fused(self) -> bool:
        """A plain layer and one nonlinearity, with no hook that would not be called."""
        hooks = [part for module in (self.layer, self.activation)
                 for part in (module._forward_hooks, module._forward_pre_hooks)]
        return not self.activation.gated and getattr(self.layer, "is_plain", False) and not any(hooks)

    @property
    def cache_key(self) -> Hashable:
        if not self.can_be_fused:
            return False
        return LinearCall(self.x, self.layer.weight, None).cache_key  # type: ignore[arg-type]


class CrossEntropyCall(NamedTuple):
    """The loss of logits = states weightᵀ + bias, as `regard.nn.loss` defines it."""

    states: Tensor  # (rows, width)
    weight: Tensor  # (vocabulary, width)
    bias: Tensor | None
    targets: Tensor  # (rows)
    ignore: int
    smoothing: float


class NormCall(NamedTuple):
    """LayerNorm or RMSNorm of the last axis."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    kind: str
    epsilon: float
    definition: Callable[[Tensor], Tensor]

    @property
    def cache_key(self) -> Hashable:
        return ()
