"""Attend: compare queries with keys, turn the scores into weights, mix the values.

`weights()` is the definition that a reader checks against the paper. `forward()` asks the table of kernels for a faster
way to the same context. Scores are classes in `score.py`.
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.kernels import table as kernels
from regard.kernels.calls import AttentionCall, Bias, from_zero
from regard.nn.dropout import dropped
from regard.nn.mask import AttentionPositions, Mask

__all__ = ["Attend", "Attended", "AttentionPositions", "Bias"]


class Attended(NamedTuple):
    """The output of attention: the context, and the weights if they were computed."""

    context: Float[Tensor, "batch heads queries value"]
    weights: Float[Tensor, "batch heads queries keys"] | None


class Attend(nn.Module):
    """softmax(score(q, k) / T) v, with masks and position biases. A subclass says what the score is.

    `widths` are the numbers per head. Heads narrower than the widest come padded with zeros.
    """

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.width = len(widths), max(widths)
        self.temperature, self.dropout = temperature, dropout

    def scores(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch heads keys head"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        return self.score(q, self.project_keys(k))

    def project_keys(self, k: Float[Tensor, "batch heads keys head"]) -> Float[Tensor, "batch heads keys projected"]:
        """The part of the score that depends only on the keys: computed once if queries come one by one."""
        return k

    def score(
        self, q: Float[Tensor, "batch heads queries head"], projected_keys: Float[Tensor, "batch heads keys projected"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The scores of queries with keys that are known."""
        raise NotImplementedError

    @property
    def scale(self) -> float | Tensor | None:
        """Where the score is scale · q·k, the number, or one for each head: the only score that kernels know."""
        return None

    def pick(self, heads: Sequence[int]) -> "Attend":
        """A copy restricted to `heads`, with float32 parameters; call it with those heads' queries and keys."""
        part = copy(self)
        part.heads, chosen = len(heads), list(heads)
        for kind in ("_parameters", "_buffers"):  # what a score learns, it learns for each head
            held = getattr(self, kind).items()
            own = {name: tensor if tensor is None else tensor[chosen].float() for name, tensor in held}
            part.__dict__[kind] = own
        return part

    def weights(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"], *,
        mask: Mask, positions: AttentionPositions | None = None, bias: Bias | None = None,
        projected_keys: Float[Tensor, "batch heads keys projected"] | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """How much each query takes of each key: every row sums to 1, or to 0 where it may see nothing.

        `projected_keys` is the result of `project_keys`, if it was computed before.
        """
        queries, keys, rows, *_, visible_keys = positions or from_zero(q, k)
        if projected_keys is None:
            scores = self.scores(q, _one_for_each_head(_collected(k, rows), q.shape[1]).to(q.dtype))
        else:
            scores = self.score(q, projected_keys)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if bias is not None:
            scores = scores + bias(queries, keys)
        if self.temperature != 1.0:
            scores = scores / self.temperature
        allowed = mask.dense(queries, keys)
        if visible_keys is not None:
            allowed = visible_keys if allowed is None else allowed & visible_keys
        return _softmax(scores, allowed).to(q.dtype)

    def forward(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"],
        v: Float[Tensor, "batch groups keys value"], *, mask: Mask, positions: AttentionPositions | None = None,
        bias: Bias | None = None, projected_keys: Float[Tensor, "batch heads keys projected"] | None = None,
    ) -> Attended:
        if (scale := self.scale) is not None:
            call = AttentionCall(q, k, v, mask, positions, bias, scale, self.temperature, self.dropped, self.context)
            return Attended(self.context(call), None)
        return self.explicit(q, k, v, mask=mask, positions=positions, bias=bias, projected_keys=projected_keys)

    def context(self, call: AttentionCall) -> Float[Tensor, "batch heads queries value"]:
        """By a kernel if there is one, else by the definition."""
        if (context := kernels.attention(call)) is not None:
            return context
        return self.explicit(call.q, call.k, call.v, mask=call.mask, positions=call.positions, bias=call.bias).context

    def explicit(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"],
        v: Float[Tensor, "batch groups keys value"], *, mask: Mask, positions: AttentionPositions | None = None,
        bias: Bias | None = None, projected_keys: Float[Tensor, "batch heads keys projected"] | None = None,
    ) -> Attended:
        """The definition, weights and all."""
        weights = self.weights(q, k, mask=mask, positions=positions, bias=bias, projected_keys=projected_keys)
        v = _one_for_each_head(_collected(v, None if positions is None else positions.rows), q.shape[1])
        return Attended(dropped(weights, self.dropped) @ v.to(q.dtype), weights)

    @property
    def dropped(self) -> float:
        """The share of the weights that is left out, now."""
        return self.dropout if self.training else 0.0


def _collected(k: Float[Tensor, "lying groups keys head"],
               rows: Int[Tensor, "batch keys"] | None) -> Float[Tensor, "batch groups keys head"]:
    """Each row's keys, from the rows they lie in."""
    if rows is None:
        return k
    return k.gather(0, rows[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3]))


def _one_for_each_head(k: Tensor, heads: int) -> Tensor:
    """One key head for each query head: heads of a group are neighbours."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)


def _softmax(scores: Float[Tensor, "batch heads queries keys"],
             allowed: Bool[Tensor, "#batch 1 #queries keys"] | None) -> Tensor:
    if allowed is None:
        return scores.softmax(-1)
    # Not -inf: a row that may see nothing would be 0/0, and its gradient not a number.
    return scores.where(allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed
