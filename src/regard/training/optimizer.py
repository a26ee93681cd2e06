"""The optimizers, the weights that each of them updates, and the learning-rate schedule."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.device import fast_bfloat16
from regard.settings.errors import UserError
from regard.settings.schema import Train
from regard.training.muon import Muon, operations
from regard.training.parallel import deal
from regard.training.sgd import SGD
from regard.training.trainable import level

__all__ = ["adamw", "layer_ratios", "make_optimizer", "muon", "muon_matrices", "rate", "sgd"]

MUON_MOMENTUM = 0.95  # Jordan et al. 2024


def make_optimizer(model: nn.Module, how: Train, *, device: torch.device) -> torch.optim.Optimizer:
    return {"adamw": adamw, "muon": muon, "sgd": sgd}[how.optimizer](model, how, device=device)


def adamw(model: nn.Module, how: Train, *, device: torch.device) -> torch.optim.AdamW:
    """Fused AdamW. Weight decay applies to matrices, not to biases and norms."""
    return _adamw(dict(model.named_parameters()), how, device)


def muon(model: nn.Module, how: Train, *, device: torch.device) -> Muon:
    """Muon for the blocks' matrices; AdamW for tokens, output, positions, norms and biases."""
    matrices = muon_matrices(model)
    if not matrices:
        raise UserError("train.optimizer=muon: this model has no separate matrices in its blocks for Muon to update; "
                        "take adamw")
    others = _adamw({name: p for name, p in model.named_parameters() if p not in matrices}, how, device)
    half = how.precision != "float32" and fast_bfloat16(device)
    momentum = MUON_MOMENTUM if how.momentum is None else how.momentum
    return Muon(
        list(matrices), list(matrices.values()), others, rate=_first(how.muon_learning_rate, device), momentum=momentum,
        weight_decay=how.weight_decay, ratio=how.muon_learning_rate / how.learning_rate,
        precision=torch.bfloat16 if half else torch.float32, deal=deal(matrices, cost=operations))


def sgd(model: nn.Module, how: Train, *, device: torch.device) -> SGD:
    """Gradient descent for all weights, without weight decay."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    groups: dict[float, list[Tensor]] = {}
    for name, ratio in layer_ratios(learning, how.layer_decay).items():
        groups.setdefault(ratio, []).append(learning[name])
    return SGD([{"params": params, "ratio": ratio, "lr": _first(how.learning_rate * ratio, device)}
                for ratio, params in groups.items()],
               rate=_first(how.learning_rate, device), momentum=how.momentum or 0.0)


def _adamw(parameters: Mapping[str, Tensor], how: Train, device: torch.device) -> torch.optim.AdamW:
    """One group for all weights with the same rate and decay. Frozen weights are in none."""
    learning = {name: p for name, p in parameters.items() if p.requires_grad}
    ratios = layer_ratios(learning, how.layer_decay)
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for name, p in sorted(learning.items(), key=lambda item: item[1].ndim < 2):  # matrices first; else in order
        groups.setdefault((ratios[name], p.ndim >= 2), []).append(p)
    return torch.optim.AdamW(
        [{"params": params, "weight_decay": how.weight_decay if is_matrix else 0.0, "ratio": ratio,
          "lr": _first(how.learning_rate * ratio, device)} for (ratio, is_matrix), params in groups.items()],
        lr=_first(how.learning_rate, device), betas=(how.beta1, how.beta2), eps=how.epsilon, fused=device.type != "mps",
        capturable=device.type == "cuda")


def layer_ratios(names: Iterable[str], decay: float) -> dict[str, float]:
    """The factor of each parameter's learning rate: 1 for the head, times `decay` for each level below.

    Lower blocks are more general and should change less (Howard and Ruder 2018, 3.2; Clark et al. 2020, A).

    >>> names = ["tokens.table.weight", "blocks.0.self.out.bias", "blocks.1.self.out.bias", "head.output.bias"]
    >>> list(layer_ratios(names, 0.5).values())
    [0.125, 0.25, 0.5, 1.0]
    """
    levels = {name: level(name) for name in names}
    top = 1 + max((found for found in levels.values() if found is not None), default=0)
    return {name: decay ** (0 if found is None else top - found) for name, found in levels.items()}


def _first(value: float, device: torch.device) -> float | Tensor:
    """The rate as a tensor for a captured step, which reads it from memory; else as a number."""
    return torch.tensor(value, device=device) if device.type == "cuda" else value


def muon_matrices(model: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """The matrices of the blocks, each with the rows of the matrices that lie side by side in it."""
    towers = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, nn.ModuleList))
    products = {name: part for name, part in model.named_modules()
                if isinstance(part, nn.Linear) and name.startswith(towers) and part.weight.requires_grad}
    return {part.weight: _rows(name.split(".")[-1], part.out_features, model.get_submodule(name.rpartition(".")[0]))
            for name, part in products.items()}


def _rows(name: str, rows: int, owner: Any) -> tuple[int, ...]:
    match name:
        case "qkv" | "global_qkv":
            return owner.query_width, owner.key_width, owner.value_width
        case "kv":
            return owner.key_width, owner.value_width
        case "up" if owner.activation.gated:
            return rows // 2, rows // 2
        case _:
            return (rows,)


def rate(step: int, how: Train) -> float:
    """The learning rate of the update after `step` others.

    >>> how = Train(learning_rate=1.0, warmup=4, steps=100)
    >>> [round(rate(step, how), 2) for step in (0, 1, 3, 15, 99)]
    [0.25, 0.5, 1.0, 0.5, 0.2]
    """
    if step < how.warmup:
        return how.learning_rate * (step + 1) / how.warmup
    match how.schedule:
        case "inverse-sqrt":  # Vaswani et al. 2017, eq. 3, with the peak given instead of the width
            return how.learning_rate * math.sqrt(max(how.warmup, 1) / (step + 1))
        case "cosine":
            done = (step - how.warmup) / max(1, how.steps - how.warmup)
            return how.learning_rate * (1 + math.cos(math.pi * done)) / 2
        case "stable-decay":
            return how.learning_rate * min(1.0, (how.steps - step) / max(1.0, how.decay * how.steps))
        case _:
            return how.learning_rate
