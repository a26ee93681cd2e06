"""Where a model runs."""

import torch

from regard.settings.errors import UserError

__all__ = ["choose_device"]


def choose_device(name: str) -> torch.device:
    """`auto`: the best there is. A device that is not there is an error that says what is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, is_there in there.items() if is_there)
    if not there.get(name):
        others = ", ".join(device for device, is_there in there.items() if is_there)
        raise UserError(f"device={name}: not available here; there is: {others}")
    return torch.device(name)
