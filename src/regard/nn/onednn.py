"""The products of a linear layer on a CPU by oneDNN: forth and, where it learns, back to its inputs.

It lays the weights out anew for every product, and still takes seven eighths of the time of torch's own products of
float32 numbers; with few rows and many outputs, half. Where many products are made with the same weights, `lasting`
keeps them laid out: a tenth faster again. The gradient of the weights stays with torch's own, which are faster there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["Layouts", "knows_bfloat16", "lasting", "linear", "serves", "times"]

ROWS = 512  # from which on it pays to lay out weights that learn
FEW, WORK = 8, 1 << 23  # else: rows at the least, and multiplications
MANY = 1_024  # rows that a layout is chosen for
ENDS = {"": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"),
        "silu": ("swish", "")}
"""Nonlinearities that a product can end with, by their names there."""

Layouts = dict[int, tuple[Tensor, Tensor]]
"""By their identity: weights, and the same as a product reads them."""

_layouts: ContextVar[Layouts | None] = ContextVar("layouts", default=None)


@contextmanager
def lasting(layouts: Layouts) -> Iterator[None]:
    """While this lasts no weight changes: what is laid out in this thread goes to `layouts`, and is found there."""
    before = _layouts.set(layouts)
    try:
        yield
    finally:
        _layouts.reset(before)


def serves(layer: nn.Module, x: Tensor) -> TypeGuard[nn.Linear]:
    """Whether to multiply so: enough rows, weights that are whole and here, and nobody who wants to be told."""
    if x.device.type != "cpu" or type(layer) is not nn.Linear:
        return False
    rows, learns = x.numel() // x.shape[-1], torch.is_grad_enabled()
    if rows < (ROWS if learns else FEW) or not (learns or rows * layer.weight.numel() >= WORK):
        return False
    return (type(layer.weight) is nn.Parameter and _can(x, layer.weight) and (x.dtype == torch.float32 or not learns)
            and not layer._forward_hooks and not layer._forward_pre_hooks)


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b where no gradient is wanted, by whichever is the faster."""
    if len(x) >= FEW and len(x) * weight.numel() >= WORK and _can(x, weight):
        return _product(x, weight, bias)
    return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)


def _can(x: Tensor, weight: Tensor) -> bool:
    # In this order: what compiles cannot see into the rest, and without oneDNN there is nobody to ask.
    return (x.device.type == "cpu" and x.dtype == weight.dtype and not torch.compiler.is_compiling()
            and not torch.is_autocast_enabled("cpu") and torch.backends.mkldnn.is_available()
            and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and knows_bfloat16())))


@cache
def knows_bfloat16() -> bool:
    """Whether this machine multiplies such numbers itself."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(x: Tensor, layer: nn.Linear, *, bend: str = "") -> Tensor:
    """The layer's product; where no gradient is wanted it may end with one of `ENDS`."""
    if torch.is_grad_enabled():
        assert not bend, "the gradient is that of the product alone"
        return _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-any-return, no-untyped-call]
    return _product(x, _laid_out(layer.weight), layer.bias, bend)


def _laid_out(weight: Tensor) -> Tensor:
    """The weights as the product reads them, where they last."""
    if (layouts := _layouts.get()) is None:
        return weight
    if (found := layouts.get(id(weight))) is None:
        found = layouts[id(weight)] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach(), MANY)
    return found[1]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (_product(grad, weight.T) if to_x else None, rows.T @ x.flatten(0, -2) if to_weight else None,
                rows.sum(0) if to_bias else None)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, bend: str = "") -> Tensor:
    name, kind = ENDS[bend]
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, name, [], kind)  # type: ignore[no-any-return]
