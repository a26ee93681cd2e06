"""Values that follow from a frozen one, computed once for all layers that share it."""

from collections.abc import Callable
from typing import TypeVar

import torch

__all__ = ["once"]

Known = TypeVar("Known")


def once(owner: object, name: str, work: Callable[[], Known]) -> Known:
    """work(), remembered on its owner.

    Compiled code must not keep what it makes, and sees for itself what it has done before.
    """
    if torch.compiler.is_compiling():
        return work()
    # A tensor from inference mode cannot be used for a gradient.
    name = f"_{name}_inference" if torch.is_inference_mode_enabled() else f"_{name}"
    known = owner.__dict__  # the owner is frozen
    if name not in known:
        known[name] = work()
    return known[name]  # type: ignore[no-any-return]
