"""Scores: what a query and a key are compared by. The table `SCORES` at the end names them.

A new one is a class with its `score` (and `project_keys`, where the keys are projected first) and a line there.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels.precision import exact_rsqrt
from regard.nn.attend import Attend

__all__ = ["SCORES", "AdditiveAttend", "BilinearAttend", "DistanceAttend", "DotAttend", "ScaledDotAttend"]


class DotAttend(Attend):
    """q·k (Luong et al. 2015, "dot"): the one score for which there are fused kernels."""

    @property
    def scale(self) -> float | Tensor:
        return 1.0

    def score(self, q: Tensor, projected_keys: Tensor) -> Tensor:
        scale = self.scale
        scaled = q * (scale.to(q.dtype) if isinstance(scale, Tensor) else scale)
        return scaled.to(projected_keys.dtype) @ projected_keys.mT


class ScaledDotAttend(DotAttend):
    """q·k / √d_k (Vaswani et al. 2017, eq. 1), d_k being each head's own width."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        # Whole numbers, which stay exact whatever a model is cast to: 1/√d_k is worked out where it is used.
        unequal = torch.tensor(widths)[:, None, None] if len(set(widths)) > 1 else None
        self.register_buffer("unequal", unequal, persistent=False)

    @property
    def scale(self) -> float | Tensor:
        widths: Tensor | None = self._buffers["unequal"]
        return 1 / math.sqrt(self.width) if widths is None else exact_rsqrt(widths)


class BilinearAttend(Attend):
    """qᵀ W k, W learned for each head (Luong et al. 2015, "general"). With W = 1 it is the dot product."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        self.weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))

    def project_keys(self, k: Tensor) -> Tensor:
        return k @ _own(self.weight).mT

    def score(self, q: Tensor, projected_keys: Tensor) -> Tensor:
        return q @ projected_keys.mT


class AdditiveAttend(Attend):
    """w₂ᵀ tanh(W₁[k, q]) (Bahdanau et al. 2015, A.1.2), written as w₂ᵀ tanh(W k + U q), the same."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        self.key_weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))
        self.query_weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))
        self.out_weight = nn.Parameter(torch.empty(self.heads, self.width, 1))

    def project_keys(self, k: Tensor) -> Tensor:
        return k @ _own(self.key_weight)

    def score(self, q: Tensor, projected_keys: Tensor) -> Tensor:
        asked = q @ _own(self.query_weight)
        return _Met.apply(asked, projected_keys.to(asked.dtype), self.out_weight.to(asked.dtype))  # type: ignore[no-any-return,no-untyped-call]


class _Met(torch.autograd.Function):
    """w₂ᵀ tanh(k + q) of every query with every key.

    The gradient works the tanh out once more: a decoder that asks once for each of its words would otherwise keep as
    many tensors of the size of all keys.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, weight)
        return (_met(q, k) @ _own(weight[:, None])).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, weight = ctx.saved_tensors
        met = _met(q, k)
        by_head = (0, 2, 3)
        weight_grad = (
            grad.flatten() @ met.flatten(0, -2) if len(weight) == 1 else (grad[..., None] * met).sum(by_head))
        # 1 − tanh², times what comes from above
        grad = torch.ops.aten.tanh_backward(grad[..., None] * weight[:, None, None, :, 0], met)
        return grad.sum(3), grad.sum(2) if q.shape[2] > 1 else grad.squeeze(2), weight_grad.view_as(weight)


def _met(q: Tensor, k: Tensor) -> Float[Tensor, "batch heads queries keys head"]:
    """Every query meets every key before the nonlinearity."""
    return (q[:, :, :, None] + k[:, :, None]).tanh_()


class DistanceAttend(Attend):
    """−‖q − k‖² / 2σ²: the Gaussian kernel. The temperature plays the part of σ², so σ = 1 here."""

    def score(self, q: Tensor, projected_keys: Tensor) -> Tensor:
        squares = q.square().sum(-1, keepdim=True) + projected_keys.square().sum(-1)[:, :, None]
        return q @ projected_keys.mT - squares / 2


def _own(weight: Float[Tensor, "heads *n"]) -> Tensor:
    """Each head's matrix; for one head a single matrix, so that all rows are one product."""
    return weight if len(weight) > 1 else weight.view(weight.shape[-2:])


SCORES: dict[str, type[Attend]] = {
    "scaled-dot": ScaledDotAttend,
    "dot": DotAttend,
    "bilinear": BilinearAttend,
    "additive": AdditiveAttend,
    "distance": DistanceAttend,
}
