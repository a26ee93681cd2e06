"""SGD: plain gradient descent, with optional momentum.

torch's SGD has a fused kernel that reads the scale of clipping, but not for sharded weights; and if the gradient of
the first step is not finite, it leaves its momentum unset.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from regard.training.parallel import local

__all__ = ["SGD"]


class SGD(torch.optim.Optimizer):
    """b ← μ b + ∂L/∂u, u ← u − η b (Polyak 1964); without momentum b is the gradient, and there is no state.

    As with torch's fused AdamW, gradients are divided by `grad_scale` as they are read, and where `found_inf` is 1
    nothing changes.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, groups: Iterable[dict[str, Any]], *, rate: float | Tensor, momentum: float = 0.0) -> None:
        # Not a kernel of torch's, but it does the scaling and skipping: the loop checks "fused" for that.
        super().__init__(groups, {"lr": rate, "momentum": momentum, "fused": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._move(parameters, group["lr"], group["momentum"])

    def _move(self, parameters: list[Tensor], rate: Any, momentum: float) -> None:
        weights = [local(p) for p in parameters]
        changes = [local(p.grad) for p in parameters if p.grad is not None]
        if self.grad_scale is not None:
            torch._foreach_div_(changes, self.grad_scale)
        if self.found_inf is not None:
            rate = rate * (1 - self.found_inf)
            for change in changes:  # 0 times infinity would not be 0
                change.masked_fill_(self.found_inf != 0, 0.0)
        if momentum:
            torch._foreach_copy_(changes, self._averaged(parameters, changes, momentum))
        torch._foreach_mul_(changes, -rate)  # in place of the gradients, without more memory
        torch._foreach_add_(weights, changes)

    def _averaged(self, parameters: list[Tensor], gradients: list[Tensor], momentum: float) -> list[Tensor]:
        for p in parameters:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        averages = [local(self.state[p]["momentum"]) for p in parameters]
        skipped = 0 if self.found_inf is None else self.found_inf
        torch._foreach_mul_(averages, momentum + (1 - momentum) * skipped)
        torch._foreach_add_(averages, gradients)
        return averages
