"""Muon: the update of a matrix is its orthogonalized momentum, so that no direction is favoured (Jordan et al. 2024).

torch has an optimizer of this name since 2.9, but it reads the rate on the host, which a captured step cannot, does
not check for gradients that are not finite, and processes one matrix after the other. Here matrices of one shape are
stacked: twelve layers take as many kernels as one.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.training.parallel import Deal

__all__ = ["Muon", "operations", "orthogonal", "orthogonals"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024: they lift small singular values the fastest
ITERATIONS = 5  # after which all but the very smallest are between 0.7 and 1.2
TINY = 1e-7  # a gradient of zeros stays one


class Muon(torch.optim.Optimizer):
    """Muon for matrices and AdamW for everything else, as one optimizer.

    `parts` says for each matrix how many rows belong together: queries, keys and values lie in one weight, but are
    three matrices. As with torch's fused AdamW, gradients are divided by `grad_scale` as they are read, and where
    `found_inf` is 1 nothing changes.

    If weights are sharded, so are the moments, and `deal` assigns each whole matrix to a process that orthogonalizes
    it.

    An update is √max(1, rows/columns) times an orthogonal matrix: it then changes the matrix's output by
    the rate, for any shape (Bernstein and Newhouse 2024). The other common scale, 0.2 √max(rows, columns), lets
    Muon share AdamW's rate; here it has its own.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, matrices: Sequence[Tensor], parts: Sequence[tuple[int, ...]], others: torch.optim.AdamW, *,
                 rate: float | Tensor, momentum: float, weight_decay: float, precision: torch.dtype,
                 ratio: float = 1.0, deal: Deal | None = None) -> None:
        self.parts, self.others, self.precision = dict(zip(matrices, parts, strict=True)), others, precision
        self.deal = deal
        group = {"params": list(matrices), "lr": rate, "momentum": momentum, "weight_decay": weight_decay,
                 "ratio": ratio}
        super().__init__([group], {"fused": others.defaults["fused"]})
        self.param_groups += others.param_groups
        self._share()

    def _share(self) -> None:
        """Share one state and one list of groups, so that saving and loading see a single optimizer."""
        self.others.state, self.others.param_groups = self.state, self.param_groups[1:]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        weights = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        for p in weights:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        if self.deal is None:
            self._move_stacks(weights)
        elif weights:
            self._move_dealt(weights, self.deal)
        self.others.grad_scale, self.others.found_inf = self.grad_scale, self.found_inf  # type: ignore[attr-defined]
        self.others.step()

    def _move_stacks(self, weights: Sequence[Any]) -> None:
        stacks: dict[torch.Size, list[tuple[Tensor, ...]]] = {}
        for p in weights:
            whole = p, p.grad, self.state[p]["momentum"]
            for pieces in zip(*(tensor.split(self.parts[p]) for tensor in whole), strict=True):
                stacks.setdefault(pieces[0].shape, []).append(pieces)
        for (rows, columns), stack in stacks.items():
            matrices, gradients, averages = map(list, zip(*stack, strict=True))
            average = torch.stack(averages)
            ahead = self._ahead(torch.stack(gradients), average)
            torch._foreach_copy_(averages, average.unbind())
            change = orthogonal(ahead.to(self.precision)).to(average.dtype) * (self._rate() * -_scale(rows, columns))
            self._add(matrices, list(change))

    def _move_dealt(self, weights: Sequence[Tensor], deal: Deal) -> None:
        """All shapes at once: each process has few rows, and should not wait for the others at every shape."""
        places = deal.places(weights)
        ahead = [self._ahead(place.of(place.weight.grad), place.of(self.state[place.weight]["momentum"]))
                 for place in places]
        changes = deal.work(orthogonals, places, ahead, precision=self.precision)
        torch._foreach_mul_(changes, [-_scale(*place.shape) for place in places])
        torch._foreach_mul_(changes, self._rate())
        self._add([place.of(place.weight) for place in places], changes)

    def _ahead(self, gradient: Tensor, average: Tensor) -> Tensor:
        """Update the momentum with the gradient, and overwrite the gradient with Nesterov's momentum."""
        share = 1 - self.param_groups[0]["momentum"]
        if self.grad_scale is not None:
            gradient /= self.grad_scale
        if self.found_inf is not None:
            gradient.masked_fill_(self.found_inf != 0, 0.0)
            share = share * (1 - self.found_inf)
        return gradient.lerp_(average.lerp_(gradient, share), self.param_groups[0]["momentum"])

    def _rate(self) -> Any:
        rate = self.param_groups[0]["lr"]
        return rate if self.found_inf is None else rate * (1 - self.found_inf)

    def _add(self, matrices: list[Tensor], changes: list[Tensor]) -> None:
        torch._foreach_mul_(matrices, 1 - self._rate() * self.param_groups[0]["weight_decay"])
        torch._foreach_add_(matrices, changes)


def _scale(rows: int, columns: int) -> float:
    return math.sqrt(max(1.0, rows / columns))


def orthogonal(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """Approximately U Vᵀ of each matrix U S Vᵀ, with only matrix products: an odd polynomial, applied five times."""
    a, b, c = COEFFICIENTS
    length = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True, dtype=torch.float32)
    x: Tensor = matrices / (length + TINY).to(matrices.dtype)
    is_tall = x.shape[1] > x.shape[2]  # the smaller square is the cheaper one
    for _ in range(ITERATIONS):
        square = x.mT @ x if is_tall else x @ x.mT
        inner = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, x, inner, beta=a) if is_tall else torch.baddbmm(x, inner, x, beta=a)
    return x


def orthogonals(matrices: Sequence[Tensor]) -> list[Tensor]:
    """The same for matrices of any shapes."""
    stacks: dict[torch.Size, list[int]] = {}
    for number, matrix in enumerate(matrices):
        stacks.setdefault(matrix.shape, []).append(number)
    found: dict[int, Tensor] = {}
    for numbers in stacks.values():
        found |= zip(numbers, orthogonal(torch.stack([matrices[number] for number in numbers])), strict=True)
    return [found[number] for number in range(len(matrices))]


def operations(rows: int, columns: int) -> int:
    """Floating-point operations that make one matrix orthogonal."""
    small, large = sorted((rows, columns))
    return ITERATIONS * (4 * small**2 * large + 2 * small**3)
