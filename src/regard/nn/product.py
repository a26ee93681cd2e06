"""A linear layer with what stands around it: the norm before, the nonlinearity and the residual sum after.

Where a text is written token by token on a GPU, a product has one row or a few, and takes as long as its weights take
to arrive. Each launch costs as much again, so all of it is one kernel, which asks for its weights before the input is
even there.
"""

from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import onednn
from regard.nn.narrow import ScaledLinear
from regard.nn.norm import Norm

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["Activation", "Slots", "product", "project", "starts_early"]

MOST = 4  # rows; from more of them on, the library's products are as fast
EVEN = 64  # numbers: the step in which the library likes rows to begin
LARGE = 4_096  # outputs from which on it matters
TILE = 16_384  # weights that one program holds in its registers, at the most
NORMS = {"layer": 1, "rms": 2}
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu")


class Activation(NamedTuple):
    """φ(x); gated: φ of the first half of x, times the second half."""

    name: str
    gated: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.gated:
            x, value = x.chunk(2, dim=-1)
            return self._bend(x) * value
        return self._bend(x)

    def _bend(self, x: Tensor) -> Tensor:
        match self.name:
            case "relu":
                return F.relu(x)
            case "silu":
                return F.silu(x)
            case _:
                return F.gelu(x, approximate="tanh" if self.name == "gelu-tanh" else "none")


def product(x: Tensor, layer: nn.Module, *, norm: Norm | None = None, activation: Activation | None = None,
            add: Tensor | None = None) -> Tensor:
    """add + activation(layer(norm(x))), whichever of them there are."""
    if _serves(layer, x) and (add is None or add.is_contiguous()):
        return _few_rows(x, layer, norm, activation, add)
    x = x if norm is None else norm(x)
    if activation is not None and type(layer) is nn.Linear and _bends(x, layer, activation):
        flat = torch._addmm_activation(layer.bias, x.flatten(0, -2), layer.weight.T, use_gelu=activation.name != "relu")
        y = flat.view(*x.shape[:-1], -1)
    elif type(layer) is nn.Linear and _odd(x, layer):
        y = _in_line(x, layer)
        y = y if activation is None else activation(y)
    elif onednn.serves(layer, x) and activation is not None and not activation.gated and not torch.is_grad_enabled():
        y = onednn.linear(x, layer, bend=activation.name)
    else:
        y = onednn.linear(x, layer) if onednn.serves(layer, x) else layer(x)
        y = y if activation is None else activation(y)
    return y if add is None else add + y


class Slots(NamedTuple):
    """Where the keys and values of one new token of each row go: (rows, groups, capacity, head), at its position."""

    keys: Tensor
    values: Tensor
    positions: Tensor  # (rows or 1, 1)


def project(x: Tensor, layer: nn.Module, slots: Slots, *, norm: Norm | None = None) -> Tensor | None:
    """Queries, keys and values in one product; the keys and values go straight into their slots, the queries come back.

    None where that cannot be done in one go.
    """
    keys, values, _ = slots
    if not (_serves(layer, x) and x.shape[1] == 1 and keys.dtype == x.dtype and keys.shape == values.shape):
        return None
    return _few_rows(x, layer, norm, None, None, slots)


def starts_early(x: Tensor) -> bool:
    """Whether a kernel may begin while the one before it still runs, up to where it says that it needs its result."""
    return torch.cuda.get_device_capability(x.device) >= (9, 0)


def _serves(layer: nn.Module, x: Tensor) -> TypeGuard[nn.Linear | ScaledLinear]:
    """Whether the kernel can do it: a few rows, no gradient, numbers of one kind or whole ones with a scale."""
    if triton is None or not x.is_cuda or x.numel() > MOST * x.shape[-1] or torch.is_grad_enabled():
        return False
    kinds = type(layer) is nn.Linear and layer.weight.dtype == x.dtype and layer.weight.is_contiguous()
    return ((kinds or type(layer) is ScaledLinear) and x.is_contiguous() and x.shape[-1] <= TILE // 2
            and not torch.is_autocast_enabled("cuda"))


def _bends(x: Tensor, layer: nn.Linear, activation: Activation) -> bool:
    """Whether the library's product can end with this nonlinearity. (The GELU it knows is the one with tanh.)"""
    return (x.is_cuda and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda") and not activation.gated
            and activation.name in ("relu", "gelu-tanh") and layer.bias is not None)


def _odd(x: Tensor, layer: nn.Linear) -> bool:
    """Whether the library would store a large result number by number, its rows beginning wherever they fall."""
    return (x.is_cuda and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
            and x.dtype == layer.weight.dtype and layer.out_features % EVEN != 0 and layer.out_features > LARGE)


def _in_line(x: Tensor, layer: nn.Linear) -> Tensor:
    """The layer's result in rows that have room to their right, so that all begin in line; the odd end by itself."""
    rows, outputs = x.flatten(0, -2), layer.out_features
    most = outputs // EVEN * EVEN
    room = rows.new_empty(len(rows), most + EVEN)
    for part in (slice(0, most), slice(most, outputs)):
        torch.mm(rows, layer.weight[part].T, out=room[:, part])
    y: Tensor = room[:, :outputs].unflatten(0, x.shape[:-1])
    return y if layer.bias is None else y.add_(layer.bias)


def _few_rows(x: Tensor, layer: nn.Linear | ScaledLinear, norm: Norm | None, activation: Activation | None,
              add: Tensor | None, slots: Slots | None = None) -> Tensor:
    weight, scales = (layer.whole, layer.scales) if isinstance(layer, ScaledLinear) else (layer.weight, None)
    gated = activation is not None and activation.gated
    outputs, inputs = weight.shape
    outputs = outputs // 2 if gated else outputs
    kept, head = outputs, 1
    if slots is not None:
        kept, head = outputs - 2 * slots.keys.shape[1] * slots.keys.shape[3], slots.keys.shape[3]
    out = x.new_empty(*x.shape[:-1], kept)
    columns, rows, warps = _tile(inputs, gated)
    shift = None if norm is None else norm.bias
    early = starts_early(x)
    _product[(triton.cdiv(outputs, rows),)](
        x, weight, *(x if part is None else part for part in (  # what is not there is not looked at
            scales, layer.bias, None if norm is None else norm.weight, shift, add)),
        out, *_places(slots, x), outputs, inputs, kept, head, 0.0 if norm is None else norm.epsilon,
        M=x.numel() // inputs, N=rows, K=columns, NORM=0 if norm is None else NORMS[norm.kind], SHIFT=shift is not None,
        BIAS=layer.bias is not None, ACTIVATION=0 if activation is None else 1 + ACTIVATIONS.index(activation.name),
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
    """Weights of a program: all columns there are, by so many rows; and its warps. Measured on an H200."""
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
