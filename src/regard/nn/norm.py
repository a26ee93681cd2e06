"""Norm: a token's numbers brought to one size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["Norm"]

WIDEST = 8_192  # numbers of a token that one program holds


class Norm(nn.Module):
    """LayerNorm, or RMSNorm, which neither centres nor shifts.

    In mixed precision it gives back the kind of number it was given: the sums inside are float32 all the same,
    and the stream between the blocks, which everything reads and writes, stays half as large.
    """

    def __init__(self, width: int, *, kind: str = "layer", epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.kind, self.epsilon = kind, epsilon
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias and kind == "layer" else None

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        if _serves(x):
            return self.quick(x)
        if not torch.is_autocast_enabled(x.device.type):  # to switch off what is off takes longer than a token's norm
            return self.normed(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.normed(x)

    def normed(self, x: Tensor) -> Tensor:
        """The same where there is no autocast."""
        weight, bias = self.weight.to(x.dtype), self.bias
        if self.kind == "rms":
            return F.rms_norm(x, weight.shape, weight, self.epsilon)
        return F.layer_norm(x, weight.shape, weight, None if bias is None else bias.to(x.dtype), self.epsilon)

    def of_sum(
        self, x: Float[Tensor, "*batch width"], y: Float[Tensor, "*batch width"]
    ) -> Float[Tensor, "*batch width"]:
        """norm(x + y)."""
        serves = _serves(x) and y.is_contiguous() and x.dtype == y.dtype
        return self.quick(x, y) if serves else self(x + y)

    def quick(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """norm(x + y) in one kernel: where a GPU writes token by token, launches are what takes time."""
        width, out, bias = x.shape[-1], torch.empty_like(x), self.bias
        _normed[(x.numel() // width,)](
            x, x if y is None else y, self.weight, x if bias is None else bias, out, width, self.epsilon,
            K=triton.next_power_of_2(width), SUM=y is not None, CENTRED=self.kind == "layer", SHIFT=bias is not None,
            num_warps=4)
        return out


def _serves(x: Tensor) -> bool:
    return (triton is not None and x.is_cuda and not torch.is_grad_enabled() and x.shape[-1] <= WIDEST
            and x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.is_contiguous()
            and not torch.compiler.is_compiling())


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
