"""The layout of keys and values in memory: precision and order."""

import torch
from torch import Tensor

__all__ = ["count_on", "kept_as", "read_often"]


def kept_as(x: Tensor) -> torch.dtype:
    """The dtype of a cache: a CPU attends to bfloat16 several times more slowly than to float32."""
    return torch.float32 if x.device.type == "cpu" and x.dtype == torch.bfloat16 else x.dtype


def read_often(x: Tensor) -> Tensor:
    """Keys or values that every later token reads: on a CPU contiguous, or each of these reads would copy them."""
    return x.contiguous() if x.device.type == "cpu" and not x.requires_grad else x


def count_on(positions: Tensor, start: int) -> bool:
    """Whether the positions count on from `start`. Only a CPU looks: elsewhere it would have to wait."""
    if positions.device.type != "cpu" or positions.shape[0] > 1:
        return False
    return positions[0].tolist() == list(range(start, start + positions.shape[1]))
