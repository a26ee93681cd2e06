"""AdamW, and how its rate changes over a run."""

import math

import torch
from torch import nn

from regard.settings.schema import Train

__all__ = ["adamw", "rate"]


def adamw(model: nn.Module, how: Train, *, device: torch.device) -> torch.optim.AdamW:
    """Fused AdamW. Matrices are decayed; biases and norms, whose size carries no waste, are not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": how.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    # A captured step reads the rate from memory: there it must be a tensor.
    first = torch.tensor(how.rate, device=device) if device.type == "cuda" else how.rate
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=first, betas=(how.beta1, how.beta2),
                             eps=how.epsilon, fused=device.type != "mps", capturable=device.type == "cuda")


def rate(step: int, how: Train) -> float:
    """The rate of the update that follows `step` others.

    >>> how = Train(rate=1.0, warmup=4, steps=100)
    >>> [round(rate(step, how), 2) for step in (0, 1, 3, 15, 99)]
    [0.25, 0.5, 1.0, 0.5, 0.2]
    """
    if step < how.warmup:
        return how.rate * (step + 1) / how.warmup
    match how.schedule:
        case "inverse-sqrt":  # Vaswani et al. 2017, eq. 3, with the peak given instead of the width
            return how.rate * math.sqrt(max(how.warmup, 1) / (step + 1))
        case "cosine":
            return how.rate * (1 + math.cos(math.pi * (step - how.warmup) / max(1, how.steps - how.warmup))) / 2
        case "stable-decay":
            return how.rate * min(1.0, (how.steps - step) / max(1.0, how.decay * how.steps))
        case _:
            return how.rate
