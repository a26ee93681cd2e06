"""Norm: a token's numbers brought to one size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels import table as kernels
from regard.kernels.calls import NormCall

__all__ = ["Norm"]


class Norm(nn.Module):
    """LayerNorm, (x − μ) / σ · γ + β; or RMSNorm, which neither centres nor shifts.

    In mixed precision it gives back the kind of number it was given: the sums inside are float32 all the same,
    and the stream between the blocks, which everything reads and writes, stays half as large.
    """

    def __init__(self, width: int, *, kind: str = "layer", epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.kind, self.epsilon = kind, epsilon
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias and kind == "layer" else None

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        y = kernels.norm(self.call(x))
        return self.definition(x) if y is None else y

    def call(self, x: Tensor) -> NormCall:
        """A call of a norm, for kernels."""
        return NormCall(x, self.weight, self.bias, self.kind, self.epsilon, self.definition)

    def definition(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        weight, bias = self.weight.to(x.dtype), self.bias
        if self.kind == "rms":
            return F.rms_norm(x, weight.shape, weight, self.epsilon)
        return F.layer_norm(x, weight.shape, weight, None if bias is None else bias.to(x.dtype), self.epsilon)
