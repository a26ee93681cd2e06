"""Cross entropy with label smoothing."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels import table as kernels
from regard.kernels.calls import CrossEntropyCall

__all__ = ["cross_entropy", "log_likelihoods"]


def cross_entropy(
    states: Float[Tensor, "rows width"], weight: Float[Tensor, "vocabulary width"], targets: Int[Tensor, " rows"], *,
    ignore: int, smoothing: float = 0.0, bias: Float[Tensor, " vocabulary"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sum over rows of −Σ p log softmax(states weightᵀ + bias), and of −log of the target's own probability only.

    p puts 1 − smoothing on the target and spreads the rest evenly over the vocabulary (Szegedy et al. 2016, 7).
    Rows whose target is `ignore` count nothing. The second sum has no gradient: it is the one to report.
    """
    call = CrossEntropyCall(states, weight, bias, targets, ignore, smoothing)
    return kernels.cross_entropy(call) or _definition(call)


def log_likelihoods(states: Float[Tensor, "*rows width"], weight: Float[Tensor, "vocabulary width"],
                    targets: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """log softmax(states weightᵀ) of each target."""
    logits = F.linear(states, weight)
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -F.cross_entropy(exact.flatten(0, -2), targets.flatten(), reduction="none").view_as(targets)


def _definition(call: CrossEntropyCall) -> tuple[Tensor, Tensor]:
    real = call.targets != call.ignore
    log_q = F.linear(call.states, call.weight, call.bias).float().log_softmax(-1)  # (rows, vocabulary)
    own = -log_q.gather(1, call.targets.where(real, 0)[:, None])[:, 0] * real
    spread = -log_q.mean(-1) * real
    return ((1 - call.smoothing) * own + call.smoothing * spread).sum(), own.detach().sum()
