"""Dropout that costs little on a CPU too."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Dropout", "dropped"]


class Dropout(nn.Module):
    """Sets each number to zero with probability p while the model learns, and scales the others: the mean stays."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.p) if self.training else x


def dropped(x: Tensor, p: float) -> Tensor:
    """The same for one who learns.

    On a CPU torch draws one float for each number, which takes longer than the layer around it. Here four
    numbers share one 64-bit draw: p is then exact to 1/65,536, five times as fast.
    """
    if p == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    # As whole numbers, for torch takes twice as long to choose between two numbers as to multiply by 0 or 1.
    return x * (_kept(x.shape, p).view(torch.int8) * (1 / (1 - p))).to(x.dtype)


def _kept(shape: torch.Size, p: float) -> Tensor:
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    lots = draws.view(torch.int16)[:count].view(shape)
    return lots >= round(p * 2**16) - 2**15
