"""A linear layer fused with its neighbours in a block: the norm before, the nonlinearity and the residual sum after.

Where a GPU writes token by token, a product has one row or a few, and takes as long as its weights take to arrive. Each
launch costs as much again, so all of it is one kernel, which asks for its weights before the input is even there.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.kernels import launch
from regard.kernels.calls import LinearCall, NormCall
from regard.kernels.kernel import Kernel

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["ACTIVATIONS", "KERNEL", "Slots", "Weights", "few_rows", "fused_linear", "projected_into_cache",
           "weights_of"]

MAX_ROWS = 4  # with more rows, the library's products are as fast
TILE = 16_384  # weights that one program holds in its registers, at most
NORMS = {"layer": 1, "rms": 2}
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu")


class Weights(NamedTuple):
    """x Wᵀ + b; the weights may be whole numbers of 8 bits, each output's with a scale."""

    weight: Tensor
    scales: Tensor | None
    bias: Tensor | None


class Slots(NamedTuple):
    """Where the keys and values of one new token of each row go: (rows, groups, capacity, head), at its position."""

    keys: Tensor
    values: Tensor
    positions: Tensor  # (rows or 1, 1)


def weights_of(layer: nn.Module) -> Weights | None:
    """The weight of a plain linear layer, or of a quantized one on a GPU; None: the layer computes its own product."""
    if hasattr(layer, "whole"):
        return Weights(layer.whole, layer.scales, layer.bias)  # type: ignore[arg-type]
    if getattr(layer, "is_plain", False):
        return Weights(layer.weight, None, layer.bias)  # type: ignore[arg-type]
    return None


def few_rows(x: Tensor, weights: Weights) -> bool:
    """A few rows, no gradient, numbers of one kind or whole ones with a scale."""
    weight, scales, _ = weights
    return (triton is not None and launch.on_gpu(x) and x.numel() <= MAX_ROWS * x.shape[-1]
            and not torch.is_grad_enabled() and (scales is not None or weight.dtype == x.dtype)
            and weight.is_contiguous() and x.is_contiguous() and x.shape[-1] <= TILE // 2
            and not torch.is_autocast_enabled("cuda") and not torch.compiler.is_compiling())


def fused_linear(x: Tensor, weights: Weights, *, norm: NormCall | None = None, activation: str | None = None,
                 gated: bool = False, add: Tensor | None = None) -> Tensor:
    """add + activation(norm(x) Wᵀ + b), whichever of them there are, of `few_rows`."""
    return _launched(x, weights, norm, activation, gated, add)


def projected_into_cache(x: Tensor, weights: Weights, slots: Slots, *, norm: NormCall | None = None) -> Tensor | None:
    """Queries, keys and values in one product; the keys and values go straight into their slots, the queries come back.

    None where that cannot be done in one go.
    """
    keys, values, _ = slots
    if not (few_rows(x, weights) and x.shape[1] == 1 and keys.dtype == x.dtype and keys.shape == values.shape):
        return None
    return _launched(x, weights, norm, None, False, None, slots)


def _serves(call: LinearCall) -> bool:
    return few_rows(call.x, Weights(call.weight, None, call.bias))


def _run(call: LinearCall) -> Tensor:
    return _launched(call.x, Weights(call.weight, None, call.bias), None, None, False, None)


KERNEL = Kernel("linear.few_rows", _serves, _run, device="gpu", is_installed=triton is not None)


def _launched(x: Tensor, weights: Weights, norm: NormCall | None, activation: str | None, gated: bool,
              add: Tensor | None, slots: Slots | None = None) -> Tensor:
    weight, scales, bias = weights
    outputs, inputs = weight.shape
    outputs = outputs // 2 if gated else outputs
    kept, head = outputs, 1
    if slots is not None:
        kept, head = outputs - 2 * slots.keys.shape[1] * slots.keys.shape[3], slots.keys.shape[3]
    out = x.new_empty(*x.shape[:-1], kept)
    columns, rows, warps = _tile(inputs, gated)
    shift = None if norm is None else norm.bias
    early = launch.starts_early(x)
    _product[(triton.cdiv(outputs, rows),)](
        x, weight, *(x if part is None else part for part in (  # what is not there is not looked at
            scales, bias, None if norm is None else norm.weight, shift, add)),
        out, *_places(slots, x), outputs, inputs, kept, head, 0.0 if norm is None else norm.epsilon,
        M=x.numel() // inputs, N=rows, K=columns, NORM=0 if norm is None else NORMS[norm.kind], SHIFT=shift is not None,
        BIAS=bias is not None, ACTIVATION=0 if activation is None else 1 + ACTIVATIONS.index(activation),
        GATED=gated, ADD=add is not None, SCALES=scales is not None, SLOTS=slots is not None, EARLY=early,
        num_warps=warps, launch_pdl=early)
    return out


def _places(slots: Slots | None, absent: Tensor) -> list[Any]:
    """As the kernel wants it: the caches, the positions, and their strides."""
    if slots is None:
        return [absent, absent, absent, 0, 0, 0, 0, 0, 0, 0]
    keys, values, positions = slots
    step = positions.stride(0) if positions.shape[0] > 1 else 0
    return [keys, values, positions, *keys.stride()[:3], *values.stride()[:3], step]


def _tile(inputs: int, gated: bool) -> tuple[int, int, int]:
    """The tile of a program: all columns, a number of rows; and its warps. Measured on an H200."""
    columns = triton.next_power_of_2(inputs)
    rows = max(2, min(8, TILE // columns))
    return columns, rows // 2 if gated else rows, 4 if columns <= 2048 else 8


if triton is not None:

    @triton.jit
    def _product(x_, w_, scales_, b_, gain_, shift_, add_, out, keys_, values_, at_, kb, kg, kn, vb, vg, vn, pb,
                 outputs, inputs, kept, head, epsilon, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                 NORM: tl.constexpr, SHIFT: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
                 GATED: tl.constexpr, ADD: tl.constexpr, SCALES: tl.constexpr, SLOTS: tl.constexpr,
                 EARLY: tl.constexpr):
        if EARLY:
            tl.extra.cuda.gdc_launch_dependents()
        n, k = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, K)
        real, there = n < outputs, k < inputs
        both = real[:, None] & there[None, :]
        places = w_ + n.to(tl.int64)[:, None] * inputs + k[None, :]
        w = tl.load(places, mask=both, other=0.0)
        if GATED:
            w2 = tl.load(places + outputs.to(tl.int64) * inputs, mask=both, other=0.0)
        if NORM != 0:
            gain = tl.load(gain_ + k, mask=there, other=0.0).to(tl.float32)
        # Weights do not depend on the kernel before this one: only from here on its result is needed.
        if EARLY:
            tl.extra.cuda.gdc_wait()
        for m in tl.static_range(M):
            x = tl.load(x_ + m * inputs + k, mask=there, other=0.0).to(tl.float32)
            if NORM == 1:
                x = tl.where(there, x - tl.sum(x, 0) / inputs, 0.0)
            if NORM != 0:
                x = x * (gain / tl.sqrt(tl.sum(x * x, 0) / inputs + epsilon))
            if SHIFT:
                x += tl.load(shift_ + k, mask=there, other=0.0).to(tl.float32)
            y = tl.sum(w.to(tl.float32) * x[None, :], 1)
            if SCALES:
                y *= tl.load(scales_ + n, mask=real, other=0.0).to(tl.float32)
            if BIAS:
                y += tl.load(b_ + n, mask=real, other=0.0).to(tl.float32)
            if ACTIVATION != 0:
                y = _bend(y, ACTIVATION)
            if GATED:
                value = tl.sum(w2.to(tl.float32) * x[None, :], 1)
                if SCALES:
                    value *= tl.load(scales_ + outputs + n, mask=real, other=0.0).to(tl.float32)
                if BIAS:
                    value += tl.load(b_ + outputs + n, mask=real, other=0.0).to(tl.float32)
                y *= value
            if ADD:
                y += tl.load(add_ + m * outputs + n, mask=real, other=0.0).to(tl.float32)
            y = y.to(out.dtype.element_ty)
            tl.store(out + m * kept + n, y, mask=n < kept)
            if SLOTS:
                slot = tl.load(at_ + m * pb)
                width = (outputs - kept) // 2  # of all keys
                k_, v_ = n - kept, n - kept - width
                tl.store(keys_ + m * kb + (k_ // head) * kg + slot * kn + k_ % head, y, mask=(k_ >= 0) & (v_ < 0))
                tl.store(values_ + m * vb + (v_ // head) * vg + slot * vn + v_ % head, y, mask=(v_ >= 0) & real)

    @triton.jit
    def _bend(x, ACTIVATION: tl.constexpr):
        if ACTIVATION == 1:
            return tl.maximum(x, 0.0)
        if ACTIVATION == 2:
            return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        if ACTIVATION == 3:  # tanh z = 2 σ(2z) − 1
            return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        return x * tl.sigmoid(x)
