"""One function initialises every parameter, so that a model's beginning is readable in one place."""

from typing import Protocol, runtime_checkable

import torch
from torch import nn

from regard.nn.attention import Attention
from regard.nn.attention_init import look_at_neighbours, mimic

__all__ = ["initialize"]

RESIDUAL = ("out.weight", "down.weight")  # the last matrix before a residual sum
ONES = ("norm.weight", "mix.scale")
# Also an adapter's second matrix, so that it adds nothing at first; and the scores of the layer mix, equal at first.
ZEROS = ("bias", "bias_ih_l0", "bias_hh_l0", ".b", "mix.scores")


@runtime_checkable
class Settles(Protocol):
    """A part that knows a better beginning for some of its numbers than a name tells."""

    def settle(self) -> None: ...


@torch.no_grad()
def initialize(model: nn.Module, *, seed: int, attention: str = "plain") -> None:
    """Matrices keep the variance of their input; additions to the residual stream start small.

    The blocks of a tower each add two or three parts: with std / √(2 · blocks) their sum stays of the order of one
    part (Radford et al. 2019, 2.3). Drawn on the CPU, so that a seed gives the same model on any device. `attention` is
    the beginning of self-attention: see `attention_init.py`.
    """
    depths = {f"{name}.": len(part) for name, part in model.named_modules() if isinstance(part, nn.ModuleList)}
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith(ZEROS):
            parameter.zero_()
        elif name.endswith(ONES):
            parameter.fill_(1.0)
        else:
            depth = next((depth for tower, depth in depths.items() if name.startswith(tower)), 1)
            std = _std(name, parameter) / ((2 * depth) ** 0.5 if name.endswith(RESIDUAL) else 1)
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
    parts = list(model.modules())
    for part in parts:
        if isinstance(part, Settles):
            part.settle()
    if attention != "plain":
        for layer, part in enumerate(part for part in parts if isinstance(part, Attention)):
            if attention == "mimetic":
                mimic(part, generator=generator)
            else:
                look_at_neighbours(part, layer=layer)


def _std(name: str, parameter: torch.Tensor) -> float:
    if name.endswith("table.weight"):  # tokens: √width times this is 1, and tied logits begin near 0
        return float(parameter.shape[1] ** -0.5)
    if name.endswith(("table", "class_token", "pool.query", "head.output.weight")):
        # Positions, segments; attention that pools evenly, and labels that are equally likely, at first.
        return 0.02
    if parameter.ndim == 4:  # a convolution, followed by a relu: (out, in, height, width) (He et al. 2015, eq. 10)
        return float((2 / parameter[0].numel()) ** 0.5)
    if "attend." in name:  # a score's own weights multiply from the left: (heads, in, out)
        return float(parameter.shape[-2] ** -0.5)
    return float(parameter.shape[-1] ** -0.5)
