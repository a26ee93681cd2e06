"""Muon: a matrix is moved by its momentum made orthogonal, so that no direction is favoured (Jordan et al. 2024).

torch has an optimiser of this name since 2.9, but it reads the rate on the host, which a captured step cannot, knows
nothing of gradients that are not finite, and works off one matrix after the other. Here matrices of one shape are
stacked: twelve layers take as many kernels as one.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Muon", "operations", "orthogonal"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024: they lift small singular values the fastest
ITERATIONS = 5  # after which all but the very smallest are between 0.7 and 1.2
TINY = 1e-7  # a gradient of zeros stays one


class Muon(torch.optim.Optimizer):
    """Muon for matrices, and beside it an AdamW for everything else, as one optimiser.

    `parts` says for each matrix how many rows belong together: queries, keys and values lie in one weight, but are
    three matrices. As with torch's fused AdamW, gradients are divided by `grad_scale` as they are read, and where
    `found_inf` is 1 nothing changes at all.

    An update is √max(1, rows/columns) times an orthogonal matrix: it then changes what a matrix does to a vector by
    the rate, whatever its shape (Bernstein and Newhouse 2024). The other scale in use, 0.2 √max(rows, columns), lets
    Muon share AdamW's rate; here it has its own.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, matrices: Sequence[Tensor], parts: Sequence[tuple[int, ...]], others: torch.optim.AdamW, *,
                 rate: float | Tensor, momentum: float, weight_decay: float, precision: torch.dtype,
                 ratio: float = 1.0) -> None:
        self.parts, self.others, self.precision = dict(zip(matrices, parts, strict=True)), others, precision
        group = {"params": list(matrices), "lr": rate, "momentum": momentum, "weight_decay": weight_decay,
                 "ratio": ratio}
        super().__init__([group], {"fused": others.defaults["fused"]})
        self.param_groups += others.param_groups
        self._share()

    def _share(self) -> None:
        """One state and one list of groups, so that saving and loading see a single optimiser."""
        self.others.state, self.others.param_groups = self.state, self.param_groups[1:]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        stacks: dict[torch.Size, list[tuple[Tensor, ...]]] = {}
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                continue
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
            whole = p, p.grad, self.state[p]["momentum"]
            for pieces in zip(*(tensor.split(self.parts[p]) for tensor in whole), strict=True):
                stacks.setdefault(pieces[0].shape, []).append(pieces)
        for stack in stacks.values():
            self._move(*map(list, zip(*stack, strict=True)))
        self.others.grad_scale, self.others.found_inf = self.grad_scale, self.found_inf  # type: ignore[attr-defined]
        self.others.step()

    def _move(self, matrices: list[Tensor], gradients: list[Tensor], averages: list[Tensor]) -> None:
        """All of one shape."""
        group = self.param_groups[0]
        rate, share, gradient = group["lr"], 1 - group["momentum"], torch.stack(gradients)
        if self.grad_scale is not None:
            gradient /= self.grad_scale
        if self.found_inf is not None:
            gradient = gradient.where(self.found_inf == 0, 0.0)
            rate, share = rate * (1 - self.found_inf), share * (1 - self.found_inf)
        average = torch.stack(averages).lerp_(gradient, share)
        torch._foreach_copy_(averages, average.unbind())
        ahead = gradient.lerp_(average, group["momentum"])  # Nesterov's
        scale = math.sqrt(max(1.0, gradient.shape[1] / gradient.shape[2]))
        change = orthogonal(ahead.to(self.precision)).to(average.dtype) * (rate * -scale)
        torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
        torch._foreach_add_(matrices, change.unbind())


def orthogonal(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """Near U Vᵀ of each matrix U S Vᵀ, by products alone: an odd polynomial, five times, drives S towards 1."""
    a, b, c = COEFFICIENTS
    length = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True, dtype=torch.float32)
    x: Tensor = matrices / (length + TINY).to(matrices.dtype)
    is_tall = x.shape[1] > x.shape[2]  # the smaller square is the cheaper one
    for _ in range(ITERATIONS):
        square = x.mT @ x if is_tall else x @ x.mT
        inner = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, x, inner, beta=a) if is_tall else torch.baddbmm(x, inner, x, beta=a)
    return x


def operations(rows: int, columns: int) -> int:
    """Floating-point operations that make one matrix orthogonal."""
    small, large = sorted((rows, columns))
    return ITERATIONS * (4 * small**2 * large + 2 * small**3)
