"""Norm: a token's numbers brought to one size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Norm"]


class Norm(nn.Module):
    """LayerNorm, or RMSNorm, which neither centres nor shifts.

    In mixed precision it gives back the kind of number it was given: the sums inside are float32 all the same,
    and the stream between the blocks, which everything reads and writes, stays half as large.
    """

    def __init__(self, width: int, *, kind: str = "layer", epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.kind, self.epsilon = kind, epsilon
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias and kind == "layer" else None

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        shape, weight = self.weight.shape, self.weight.to(x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            if self.kind == "rms":
                return F.rms_norm(x, shape, weight, self.epsilon)
            return F.layer_norm(x, shape, weight, None if self.bias is None else self.bias.to(x.dtype), self.epsilon)
