"""REINFORCE: how a model learns from choices that it draws, through which no gradient flows.

∇ E[R] = E[R ∇ log p(choice)]: the score-function estimator (Williams 1992). A baseline that does not depend on the
choice changes nothing about the mean and makes the estimate less noisy.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

__all__ = ["MovingBaseline", "draw", "entropy", "log_probability", "returns", "score_function"]


def draw(probabilities: Float[Tensor, "*rows choices"]) -> Int[Tensor, "*rows"]:
    """One choice for each row.

    The first of several alarms to ring, at rates p, is each with probability p: a CUDA graph can hold this, which it
    cannot do with `torch.multinomial`. A choice of probability 0 never rings.
    """
    alarms = torch.empty_like(probabilities, dtype=torch.float32).exponential_()
    return (probabilities / alarms.clamp(min=torch.finfo(alarms.dtype).tiny)).argmax(-1)


def log_probability(probabilities: Float[Tensor, "*rows choices"],
                    choices: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    return _log(probabilities.gather(-1, choices[..., None])[..., 0])


def entropy(probabilities: Float[Tensor, "*rows choices"]) -> Float[Tensor, "*rows"]:
    """−Σ p log p: large where the choice is open."""
    return -(probabilities * _log(probabilities)).sum(-1)


def returns(rewards: Float[Tensor, "rows n"]) -> Float[Tensor, "rows n"]:
    """The sum of the rewards from each step on: a choice has no effect on earlier ones.

    >>> returns(torch.tensor([[1.0, 2.0, 4.0]]))
    tensor([[7., 6., 4.]])
    """
    return rewards.flip(1).cumsum(1).flip(1)


def score_function(log_probabilities: Float[Tensor, "*rows"],
                   advantages: Float[Tensor, "*rows"]) -> Float[Tensor, ""]:
    """A sum whose gradient is the estimate of −∇ E[R]: for a loss. An advantage is a return less its baseline."""
    return -(advantages.detach() * log_probabilities).sum()


def _log(probabilities: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()  # of 0, a gradient would be infinite


class MovingBaseline(nn.Module):
    """A moving average of rewards: b_k = 0.9 b_{k-1} + 0.1 R_k (Xu et al. 2015, 4.1).

    It begins with the first rewards. It is saved with the weights, so that a resumed run goes on with the same one.
    """

    DECAY = 0.9
    mean: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))
        self.total: Callable[[Tensor], Tensor] | None = None
        """The sum over the processes that share a batch. Absent: there is one."""

    def value(self) -> Float[Tensor, ""]:
        """Of all rewards before; 0 before the first."""
        return self.mean / self.weight.clamp(min=1 - self.DECAY)

    @torch.no_grad()
    def take(self, rewards: Float[Tensor, "*rows"], real: Bool[Tensor, "*rows"]) -> None:
        """Rewards of a batch count by their mean. A batch that is not finite leaves no trace."""
        sums = torch.stack([(rewards * real).sum(), real.sum().to(rewards.dtype)])
        whole, count = (sums if self.total is None else self.total(sums)).unbind()
        mean = whole / count.clamp(min=1)
        share = (1 - self.DECAY) * (mean.isfinite() & (count > 0)).to(mean.dtype)
        self.mean.lerp_(mean.nan_to_num(0.0, 0.0, 0.0).to(self.mean.dtype), share)
        self.weight.lerp_(torch.ones_like(self.weight), share)
