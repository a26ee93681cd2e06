"""From inputs to (batch, length, width)."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["Tokens"]


class Tokens(nn.Module):
    """A vector for each token of the vocabulary. √width as a factor is the 2017 paper's (3.4)."""

    def __init__(self, vocabulary: int, width: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.factor = math.sqrt(width) if scaled else 1.0

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        return self.table(tokens) * self.factor  # type: ignore[no-any-return]
