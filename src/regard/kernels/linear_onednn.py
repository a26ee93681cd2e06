"""The products of a linear layer on a CPU by oneDNN: forward and, in training, back to its inputs.

It packs the weights again for every product, and still takes only seven eighths of the time of torch's own products of
float32 numbers; with few rows and many outputs, half. Where many products are made with the same weights, `lasting`
keeps them laid out: a tenth faster again, and with a few rows, as where texts are written, up to twice as fast. The
gradient of the weights stays with torch's own, which are faster there.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.kernels.calls import ActivatedLinearCall, LinearCall
from regard.kernels.kernel import Choices, Kernel, caching_choices
from regard.kernels.memory import free_memory

__all__ = ["ACTIVATED", "KERNEL", "Layouts", "knows_bfloat16", "lasting", "layouts_in_use", "times"]

ROWS = 512  # from which on it pays to lay out weights that learn
# Else: rows, and multiplications, from which on it pays to lay out weights for them only.
MIN_ROWS, MIN_MULTIPLICATIONS = 8, 1 << 23
MIN_ROWS_LAID_OUT = {torch.float32: 4, torch.bfloat16: 1}  # rows, if the weights are already packed
MIN_WEIGHTS = 1 << 17  # weights; a smaller product with few rows is mostly call overhead, and torch's own is faster
LAYOUT_ROWS = 1_024  # rows that a packed layout is chosen for
ENDS = {"": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"),
        "silu": ("swish", "")}
"""Nonlinearities that a product can end with, by their names there."""


class Layouts:
    """Weights as a product reads them, as many as `room` bytes hold: a copy of each."""

    def __init__(self, room: int | None = None) -> None:
        self.room = free_memory() // 2 if room is None else room
        self.made: dict[int, tuple[Tensor, Tensor]] = {}  # by the identity of the weights, which are kept as well
        self.choices = Choices()
        self.lock = Lock()

    def takes(self, weight: Tensor) -> bool:
        """Whether it is here, or has room."""
        return id(weight) in self.made or weight.nbytes <= self.room

    def of(self, weight: Tensor) -> Tensor:
        with self.lock:  # several threads may ask for the same
            if (found := self.made.get(id(weight))) is not None:
                return found[1]
            if weight.nbytes > self.room:
                self.choices.forget()  # of two matrices of one shape one may be here, and the other have no room
                return weight
            self.room -= weight.nbytes
            laid: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), LAYOUT_ROWS)
            self.made[id(weight)] = weight, laid
            return laid


_layouts: ContextVar[Layouts | None] = ContextVar("layouts", default=None)


@contextmanager
def lasting(layouts: Layouts) -> Iterator[None]:
    """While this lasts no weight changes: what is laid out in this thread goes to `layouts`, and is found there.

    So do the choices of kernels.
    """
    before = _layouts.set(layouts)
    try:
        with caching_choices(layouts.choices):
            yield
    finally:
        _layouts.reset(before)


def layouts_in_use() -> Layouts | None:
    return _layouts.get()


def serves(call: LinearCall) -> bool:
    """oneDNN is faster here, and the weight is a plain local parameter."""
    x, weight = call.x, call.weight
    if not _can(x, weight) or type(weight) is not nn.Parameter:
        return False
    rows = x.numel() // x.shape[-1]
    return rows >= ROWS and x.dtype == torch.float32 if torch.is_grad_enabled() else _pays(rows, weight)


def serves_activated(call: ActivatedLinearCall) -> bool:
    layer = call.layer
    return (not torch.is_grad_enabled() and call.can_be_fused and call.activation.name in ENDS
            and serves(LinearCall(call.x, layer.weight, layer.bias)))  # type: ignore[arg-type]


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b where no gradient is wanted, by whichever is the faster."""
    if _can(x, weight) and _pays(len(x), weight):
        return _product(x, weight, bias)
    return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)


def _pays(rows: int, weight: Tensor) -> bool:
    if rows >= MIN_ROWS and rows * weight.numel() >= MIN_MULTIPLICATIONS:
        return True
    if weight.numel() < MIN_WEIGHTS:
        return False
    if weight.dtype == torch.float32 and _is_amd():  # torch's own reads the weights with only one thread there
        return True
    layouts = _layouts.get()
    return layouts is not None and rows >= MIN_ROWS_LAID_OUT.get(weight.dtype, MIN_ROWS) and layouts.takes(weight)


@cache
def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "AuthenticAMD" in platform.processor()


def _can(x: Tensor, weight: Tensor) -> bool:
    # In this order: the compiler cannot trace the rest, and without oneDNN its functions are missing.
    return (x.device.type == "cpu" and x.dtype == weight.dtype and not torch.compiler.is_compiling()
            and not torch.is_autocast_enabled("cpu") and torch.backends.mkldnn.is_available()
            and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and knows_bfloat16())))


@cache
def knows_bfloat16() -> bool:
    """Whether this machine multiplies such numbers itself."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def run(call: LinearCall) -> Tensor:
    if torch.is_grad_enabled():
        return _Linear.apply(*call)  # type: ignore[no-any-return, no-untyped-call]
    return _without_gradient(call, "")


def run_activated(call: ActivatedLinearCall) -> Tensor:
    layer = call.layer
    plain = LinearCall(call.x, layer.weight, layer.bias)  # type: ignore[arg-type]
    return _without_gradient(plain, call.activation.name)  # type: ignore[arg-type]


def _without_gradient(call: LinearCall, activation: str) -> Tensor:
    layouts, x, weight = _layouts.get(), call.x, call.weight
    # A single row of float32 is read as fast from weights as they are.
    if layouts is not None and (x.dtype != torch.float32 or x.numel() > x.shape[-1]):
        weight = layouts.of(weight)
    return _product(x, weight, call.bias, activation)


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


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "") -> Tensor:
    name, kind = ENDS[activation]
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, name, [], kind)  # type: ignore[no-any-return]


KERNEL = Kernel("linear.onednn", serves, run, device="cpu")
ACTIVATED = Kernel("activated_linear.onednn", serves_activated, run_activated, device="cpu")
