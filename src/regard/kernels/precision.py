"""Mixed precision: casts that autocast does not do."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

__all__ = ["exact_rsqrt", "in_own_dtype", "to_product_dtype"]


def to_product_dtype(x: Tensor) -> Tensor:
    """As the products around it will want it: autocast turns their inputs, but not a table's rows."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def exact_rsqrt(x: Tensor) -> Tensor:
    """1/√x of whole numbers, in the most digits that the device has."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64).rsqrt()


def in_own_dtype(x: Tensor) -> AbstractContextManager[None]:
    """Inside, products are in the precision of their inputs."""
    return torch.autocast(x.device.type, enabled=False)
