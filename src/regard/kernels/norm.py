"""A token's norm, or the norm of a sum, in one kernel.

Where a GPU writes token by token, launches are what takes time.
"""

import torch
from torch import Tensor

from regard.kernels import launch
from regard.kernels.calls import NormCall
from regard.kernels.kernel import Kernel

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["MIXED_PRECISION", "TRITON", "norm_of_sum", "normed"]

MAX_WIDTH = 8_192  # numbers of a token that one program holds


def serves(call: NormCall) -> bool:
    x = call.x
    return (not torch.is_grad_enabled() and x.shape[-1] <= MAX_WIDTH
            and x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.is_contiguous()
            and not torch.compiler.is_compiling())


def run(call: NormCall, y: Tensor | None = None) -> Tensor:
    """norm(x + y)."""
    x, width, out, bias = call.x, call.x.shape[-1], torch.empty_like(call.x), call.bias
    _normed[(x.numel() // width,)](
        x, x if y is None else y, call.weight, x if bias is None else bias, out, width, call.epsilon,
        K=triton.next_power_of_2(width), SUM=y is not None, CENTRED=call.kind == "layer", SHIFT=bias is not None,
        num_warps=4)
    return out


def normed(call: NormCall) -> Tensor:
    return run(call) if TRITON.is_installed and launch.on_gpu(call.x) and serves(call) else call.definition(call.x)


def norm_of_sum(call: NormCall, y: Tensor) -> Tensor:
    """norm(x + y), by one kernel if it can be done."""
    if TRITON.is_installed and launch.on_gpu(call.x) and serves(call) and y.is_contiguous() and call.x.dtype == y.dtype:
        return run(call, y)
    return call.definition(call.x + y)


def _in_mixed_precision(call: NormCall) -> bool:
    # To switch off what is off takes longer than a token's norm.
    return torch.is_autocast_enabled(call.x.device.type)


def _without_autocast(call: NormCall) -> Tensor:
    """Autocast would turn the result into float32."""
    with torch.autocast(call.x.device.type, enabled=False):
        return call.definition(call.x)


TRITON = Kernel("norm.triton", serves, run, device="gpu", is_installed=triton is not None)
MIXED_PRECISION = Kernel("norm.mixed_precision", _in_mixed_precision, _without_autocast)


if triton is not None:

    @triton.jit
    def _normed(x_, y_, gain_, shift_, out, width, epsilon, K: tl.constexpr, SUM: tl.constexpr, CENTRED: tl.constexpr,
                SHIFT: tl.constexpr):
        row, k = tl.program_id(0).to(tl.int64), tl.arange(0, K)
        there = k < width
        x = tl.load(x_ + row * width + k, mask=there, other=0.0).to(tl.float32)
        if SUM:
            x += tl.load(y_ + row * width + k, mask=there, other=0.0).to(tl.float32)
        gain = tl.load(gain_ + k, mask=there, other=0.0).to(tl.float32)
        if CENTRED:
            x = tl.where(there, x - tl.sum(x, 0) / width, 0.0)
        x = x * (gain / tl.sqrt(tl.sum(x * x, 0) / width + epsilon))
        if SHIFT:
            x += tl.load(shift_ + k, mask=there, other=0.0).to(tl.float32)
        tl.store(out + row * width + k, x.to(out.dtype.element_ty), mask=there)
