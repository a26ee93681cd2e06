"""Cross entropy that never holds all logits at once.

At 8,192 tokens and a vocabulary of 32,000 the logits are a gigabyte in float32, and their gradient another.
Here a piece of rows at a time goes through logits, loss and gradient, and only the gradient's small ends stay.
"""

import math
from typing import Any

import torch
from torch import Tensor

from regard.kernels.calls import CrossEntropyCall
from regard.kernels.cross_entropy_triton import errors_
from regard.kernels.kernel import Kernel
from regard.kernels.linear_onednn import times
from regard.kernels.precision import to_product_dtype

__all__ = ["KERNEL"]

# Logits held at once: what a cache holds; on a GPU, so many that adding up the pieces' gradients costs little.
MAX_CHUNK_LOGITS = {"cpu": 2**21, "cuda": 2**29}


def run(call: CrossEntropyCall) -> tuple[Tensor, Tensor]:
    states, weight, bias = call.states, call.weight, call.bias
    most = max(1, MAX_CHUNK_LOGITS.get(states.device.type, 2**24) // weight.shape[0])
    rows = max(1, math.ceil(len(states) / max(1, math.ceil(len(states) / most))))  # pieces of one size
    states, weight = to_product_dtype(states), to_product_dtype(weight)
    # Asked here, because inside a Function autograd is always off, and a parameter always wants its gradient.
    trained = (states, weight) if bias is None else (states, weight, bias)
    wants = torch.is_grad_enabled() and any(each.requires_grad for each in trained)
    loss, plain = _Pieces.apply(  # type: ignore[no-untyped-call]
        states, weight, bias if bias is None else to_product_dtype(bias), call.targets, call.ignore, call.smoothing,
        rows, wants)
    return loss, plain


class _Pieces(torch.autograd.Function):
    """The gradient is worked out in the forward pass, while a piece's logits are at hand: they are made once.

    With q = softmax(logits), the gradient of a row's logits is q − (1 − ε) [target] − ε/V. The last part is the
    same for all rows and tokens, so it is taken off the products' small ends, not off every logit; so are
    the rows to ignore.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, ignore: int,
                smoothing: float, rows: int, wants: bool) -> tuple[Tensor, Tensor]:
        mean = weight.float().mean(0) if smoothing else None
        mean_bias = 0.0 if bias is None or not smoothing else bias.float().mean()
        plain = spread = states.new_zeros((), dtype=torch.float32)
        states_grads: list[Tensor] = []
        weight_grad: Tensor | None = None
        bias_grad = None if bias is None or not wants else torch.zeros_like(bias, dtype=torch.float32)
        for x, target in zip(states.split(rows), targets.split(rows), strict=True):
            real = target != ignore
            error, total, own = _errors(times(x, weight, bias), target.where(real, 0), 1 - smoothing, wants)
            plain = plain + ((total - own) * real).sum()
            if mean is not None:
                # Σ_v −log q_v / V = (log Σ e^logit) − the mean logit, and that is x · (mean of the weights) + (of b)
                spread = spread + ((total - x.float() @ mean - mean_bias) * real).sum()
            if wants:
                x, grad = x * real[:, None], times(error, weight.T)
                if mean is not None:
                    grad -= (smoothing * mean).to(x.dtype)
                states_grads.append(grad * real[:, None])
                weight_grad = _added(weight_grad, error, x)
                if mean is not None:
                    weight_grad -= smoothing / weight.shape[0] * x.float().sum(0)
                if bias_grad is not None:
                    bias_grad += (real.to(error.dtype) @ error).float() - smoothing / weight.shape[0] * real.sum()
        if weight_grad is not None:
            ctx.save_for_backward(torch.cat(states_grads), weight_grad.to(weight.dtype),
                                  None if bias is None or bias_grad is None else bias_grad.to(bias.dtype))
        ctx.mark_non_differentiable(plain)
        return (1 - smoothing) * plain + smoothing * spread, plain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states_grad, weight_grad, bias_grad = ctx.saved_tensors
        factor = grads[0].to(states_grad.dtype)
        return (states_grad * factor, weight_grad * factor, None if bias_grad is None else bias_grad * factor,
                None, None, None, None, None)


def _added(sum: Tensor | None, error: Tensor, x: Tensor) -> Tensor:
    """With errorᵀ x added to it."""
    if sum is None:
        return (error.T @ x).float()
    if x.device.type == "cpu" and x.dtype == sum.dtype:  # as it is multiplied: nothing is written twice
        return sum.addmm_(error.T, x)
    return sum.add_(error.T @ x)


def _errors(logits: Tensor, place: Tensor, amount: float, wants: bool) -> tuple[Tensor, Tensor, Tensor]:
    """softmax(logits), less an amount at one place of each row; log Σ e^logit of each row; and the logit at its place.

    The first where it is wanted; on a GPU the logits turn into it.
    """
    if logits.device.type == "cuda":
        return logits, *errors_(logits, place, amount)
    whole, place = logits.float(), place[:, None]
    chances, own = whole.log_softmax(-1), whole.gather(1, place)
    total = own - chances.gather(1, place)
    error = _less(chances, place, amount).to(logits.dtype) if wants else chances
    return error, total[:, 0], own[:, 0]


def _less(chances: Tensor, place: Tensor, amount: float) -> Tensor:
    """exp(chances), less an amount at one place of each row."""
    if torch.compiler.is_compiling():  # a comparison melts into the kernel around it; a scatter does not
        here = torch.arange(chances.shape[1], device=chances.device) == place
        return chances.exp() - amount * here
    return chances.exp_().scatter_add_(1, place, torch.full_like(place, -amount, dtype=chances.dtype))


KERNEL = Kernel("cross_entropy.in_pieces", lambda call: True, run)
