"""From inputs to (batch, length, width)."""

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.kernels.precision import to_product_dtype
from regard.nn.linear import Linear

__all__ = ["PatchEmbedding", "Segments", "TokenEmbedding", "patches"]


class TokenEmbedding(nn.Module):
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


class PatchEmbedding(nn.Module):
    """A vector for each patch of an image: one matrix for all of them (Dosovitskiy et al. 2021, eq. 1: E).

    16 × 16 pixels in three colours are 768 numbers. A convolution whose kernel and stride are a patch is the same.
    """

    def __init__(self, patch: int, width: int, *, channels: int = 3, bias: bool = True) -> None:
        super().__init__()
        self.patch = patch
        self.matrix = Linear(channels * patch * patch, width, bias=bias)

    def forward(
        self, pixels: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch patches features"]:
        return self.matrix(patches(pixels, self.patch))  # type: ignore[no-any-return]


def patches(
    pixels: Shaped[Tensor, "batch channels height width"], size: int
) -> Shaped[Tensor, "batch patches numbers"]:
    """Squares, row after row. The numbers of each are sorted by channel, row and column.

    >>> patches(torch.arange(16).view(1, 1, 4, 4), 2)[0]
    tensor([[ 0,  1,  4,  5],
            [ 2,  3,  6,  7],
            [ 8,  9, 12, 13],
            [10, 11, 14, 15]])
    """
    x = pixels.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (batch, channels, rows, size, columns, size)
    return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # type: ignore[no-any-return]
