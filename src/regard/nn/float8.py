"""Products of numbers of eight bits, where a GPU has units for them: twice as fast as those of sixteen, and as rough
as three bits behind the point.

Every row has a scale of its own, found as it is turned. One scale for a whole tensor would have to be known before the
first of its numbers could be turned, which is one more pass over memory; that of a row falls off in the kernel that
makes the row. And it leaves a gradient's numbers room enough to be of the more exact of the two kinds, e4m3.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.embed import in_autocast

__all__ = ["Rough", "fits", "product", "rounded", "use_float8"]

KIND = torch.float8_e4m3fn
LARGEST = torch.finfo(KIND).max
LEAST = 1e-12  # of what is divided by: a row of zeros stays one
STEP = 16  # the units take whole groups of this many numbers


def use_float8(model: nn.Module) -> None:
    """From now on the products of the model's blocks are rough while it trains; an evaluation's are not."""
    for part in model.modules():
        if isinstance(part, nn.ModuleList):
            for linear in part.modules():
                if isinstance(linear, nn.Linear) and fits(linear.weight):
                    linear.forward = partial(_forward, linear)  # type: ignore[method-assign]


def fits(weight: Tensor) -> bool:
    return weight.shape[0] % STEP == 0 and weight.shape[1] % STEP == 0


def _forward(linear: nn.Linear, x: Tensor) -> Tensor:
    if not linear.training:
        return F.linear(x, linear.weight, linear.bias)
    x = in_autocast(x)
    return product(x.flatten(0, -2), linear.weight, linear.bias).view(*x.shape[:-1], -1)


def product(x: Float[Tensor, "rows width"], weight: Float[Tensor, "outputs width"],
            bias: Float[Tensor, " outputs"] | None = None) -> Float[Tensor, "rows outputs"]:
    """x weightᵀ + bias."""
    return _Product.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


class _Product(torch.autograd.Function):
    """The weight's gradient is a sum over all tokens and stays as exact as it was: its rows are the others' columns,
    and to turn both tensors round would cost what the product gains."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = None if bias is None else bias.dtype
        (a, a_scale), (b, b_scale) = _by_rows(x), _by_rows(weight)
        return torch._scaled_mm(a, b.T, scale_a=a_scale, scale_b=b_scale.T, out_dtype=x.dtype, use_fast_accum=True,
                                bias=None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), grad = ctx.saved_tensors, grads[0]
        (a, a_scale), (b, b_scale) = _by_rows(grad), _by_rows(weight.T)
        x_grad = torch._scaled_mm(a, b.T, scale_a=a_scale, scale_b=b_scale.T, out_dtype=x.dtype, use_fast_accum=True)
        bias_grad = None if ctx.bias is None else grad.sum(0, dtype=torch.float32).to(ctx.bias)
        return x_grad, (grad.T @ x).to(weight.dtype), bias_grad


def _by_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    return rounded(x, x.abs().amax(-1, keepdim=True))


def rounded(x: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """x in float8, so that `largest` becomes the largest there is; and what it is to be multiplied with again."""
    scale = largest.float().clamp(min=LEAST) / LARGEST
    return (x.float() / scale).to(KIND).contiguous(), scale


class Rough:
    """A matrix in float8 that is multiplied with from both sides, as an output's weight is.

    It has one scale as a whole, and so has what it meets: an error of a softmax is between −1 and 1, always, so that
    nothing need be found out about it.
    """

    ERROR_KIND = torch.float8_e5m2  # chances of one in a million must not vanish
    ERROR_SCALE = 2.0**-15

    def __init__(self, weight: Float[Tensor, "outputs width"]) -> None:
        self.weight, self.scale = rounded(weight, weight.abs().amax())
        self.turned = self.weight.T.contiguous()

    def outputs(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """x weightᵀ."""
        a, scale = rounded(x, x.abs().amax())
        return torch._scaled_mm(a, self.weight.T, scale_a=scale, scale_b=self.scale, out_dtype=x.dtype,
                                use_fast_accum=True)

    def inputs(self, error: Tensor, *, dtype: torch.dtype) -> Float[Tensor, "rows width"]:
        """error weight, the error being in float8 already."""
        scale = torch.full((), self.ERROR_SCALE, device=error.device)
        # Not the fast sum, which keeps some 14 bits: it goes over the whole vocabulary.
        return torch._scaled_mm(error, self.turned.T, scale_a=scale, scale_b=self.scale, out_dtype=dtype)
