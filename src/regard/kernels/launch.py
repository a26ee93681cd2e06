"""Checks before the launch of a Triton kernel."""

import torch
from torch import Tensor

__all__ = ["on_gpu", "starts_early"]


def on_gpu(x: Tensor) -> bool:
    return x.device.type == "cuda"


def starts_early(x: Tensor) -> bool:
    """Whether a kernel may begin while the one before it still runs, up to where it says that it needs its result."""
    return torch.cuda.get_device_capability(x.device) >= (9, 0)
