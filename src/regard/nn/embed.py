"""From inputs to (batch, length, width)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.kernels.precision import to_product_dtype

__all__ = ["Segments", "Tokens"]


class Tokens(nn.Module):
    """A vector for each token of the vocabulary. √width as a factor is the 2017 paper's (3.4)."""

    def __init__(self, vocabulary: int, width: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.factor = math.sqrt(width) if scaled else 1.0

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        return to_product_dtype(self.table(tokens) * self.factor)


class Segments(nn.Module):
    """A vector for each segment, such as BERT's first and second sentence, added to those of its tokens."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(count, width))

    def forward(
        self, x: Float[Tensor, "batch length width"], segments: Int[Tensor, "batch length"] | None
    ) -> Float[Tensor, "batch length width"]:
        """Absent: all is the first."""
        table = self.table.to(x.dtype)
        return x + (table[0] if segments is None else table[segments])
