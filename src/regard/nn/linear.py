"""Linear: x Wᵀ + b."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels import table as kernels
from regard.kernels.calls import LinearCall

__all__ = ["Linear"]


class Linear(nn.Linear):
    """x Wᵀ + b, by a kernel where one serves."""

    is_plain = True
    """Its output is exactly x Wᵀ + b: a kernel may fuse it with its neighbours."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        y = kernels.linear(LinearCall(x, self.weight, self.bias))
        return F.linear(x, self.weight, self.bias) if y is None else y
