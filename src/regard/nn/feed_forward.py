"""FeedForward: what a block does to each token separately."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels import table as kernels
from regard.kernels.calls import ActivatedLinearCall
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear

__all__ = ["Activation", "FeedForward"]

QUICK = 1.702  # with which x σ(1.702 x) is near GELU (Hendrycks and Gimpel 2016, 2)
GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


class Activation(nn.Module):
    """φ(x); gated: φ of the first half of x, times the second half (Shazeer 2020)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.gated = name in GATES
        self.name = GATES.get(name, name)

    def forward(self, x: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch out"]:
        if self.gated:
            x, value = x.chunk(2, dim=-1)
            return self.bend(x) * value
        return self.bend(x)

    def bend(self, x: Tensor) -> Tensor:
        match self.name:
            case "relu":
                return F.relu(x)
            case "silu":
                return F.silu(x)
            case "quick-gelu":
                return x * torch.sigmoid(QUICK * x)
            case _:
                return F.gelu(x, approximate="tanh" if self.name == "gelu-tanh" else "none")


class FeedForward(nn.Module):
    """φ(x W₁) W₂ for each token; gated: (φ(x W₁) ⊙ x V) W₂ (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, *, activation: str = "relu", bias: bool = True,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = Activation(activation)
        self.up = Linear(width, 2 * hidden if self.activation.gated else hidden, bias=bias)
        self.down = Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        return self.down(self.dropout(self.hidden(x)))  # type: ignore[no-any-return]

    def hidden(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length hidden"]:
        h = kernels.activated_linear(ActivatedLinearCall(x, self.up, self.activation))
        return self.activation(self.up(x)) if h is None else h
