"""Which optimiser moves which weights, and how its rate changes over a run."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.settings.schema import Train
from regard.tasks.device import fast_bfloat16
from regard.training.muon import Muon

__all__ = ["adamw", "make_optimizer", "muon", "muon_matrices", "rate"]


def make_optimizer(model: nn.Module, how: Train, *, device: torch.device) -> torch.optim.Optimizer:
    return (muon if how.optimizer == "muon" else adamw)(model, how, device=device)


def adamw(model: nn.Module, how: Train, *, device: torch.device) -> torch.optim.AdamW:
    """Fused AdamW. Matrices are decayed; biases and norms, whose size carries no waste, are not."""
    return _adamw(model.parameters(), how, device)


def muon(model: nn.Module, how: Train, *, device: torch.device) -> Muon:
    """Muon for the blocks' matrices; AdamW for tokens, output, positions, norms and biases."""
    matrices = muon_matrices(model)
    others = _adamw([p for p in model.parameters() if p not in matrices], how, device)
    half = how.precision != "float32" and fast_bfloat16(device)
    return Muon(
        list(matrices), list(matrices.values()), others, rate=_first(how.matrix_rate, device), momentum=how.momentum,
        weight_decay=how.weight_decay, ratio=how.matrix_rate / how.rate,
        precision=torch.bfloat16 if half else torch.float32)


def _adamw(parameters: Iterable[Tensor], how: Train, device: torch.device) -> torch.optim.AdamW:
    found = list(parameters)
    matrices, vectors = [p for p in found if p.ndim >= 2], [p for p in found if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": how.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=_first(how.rate, device),
                             betas=(how.beta1, how.beta2), eps=how.epsilon, fused=device.type != "mps",
                             capturable=device.type == "cuda")


def _first(value: float, device: torch.device) -> float | Tensor:
    """A captured step reads the rate from memory: there it must be a tensor."""
    return torch.tensor(value, device=device) if device.type == "cuda" else value


def muon_matrices(model: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """The weights of the blocks' products, each with the rows of the matrices that lie side by side in it."""
    towers = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, nn.ModuleList))
    products = {name: part for name, part in model.named_modules()
                if isinstance(part, nn.Linear) and name.startswith(towers)}
    return {part.weight: _rows(name.split(".")[-1], part.out_features, model.get_submodule(name.rpartition(".")[0]))
            for name, part in products.items()}


def _rows(name: str, rows: int, owner: Any) -> tuple[int, ...]:
    match name:
        case "qkv":
            return owner.query_width, owner.key_width, owner.key_width
        case "kv":
            return owner.key_width, owner.key_width
        case "up" if owner.activation.gated:
            return rows // 2, rows // 2
        case _:
            return (rows,)


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
