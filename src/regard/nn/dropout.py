"""Dropout."""

from torch import Tensor, nn

from regard.kernels.dropout import dropped

__all__ = ["Dropout", "dropped"]


class Dropout(nn.Module):
    """Sets each number to zero with probability p while the model learns, and scales the others: the mean stays."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.p) if self.training else x
