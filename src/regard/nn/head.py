"""Heads: predict a token or labels from a state; and pool the states of a text into one vector."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.dropout import Dropout
from regard.nn.norm import Norm

__all__ = ["Labels", "Pool", "TokenLogits", "pooled"]

HIDDEN: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": F.relu}


class TokenLogits(nn.Module):
    """W norm(φ(U x)) + b: the logits of all tokens; W may be the tokens' own vectors (as published with BERT)."""

    def __init__(self, width: int, vectors: int, vocabulary: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, vectors)
        self.norm = Norm(vectors, epsilon=epsilon)
        self.output = nn.Linear(vectors, vocabulary)

    def features(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vectors"]:
        """The input of the last matrix: a loss in chunks continues from here."""
        return self.norm(F.gelu(self.hidden(states)))  # type: ignore[no-any-return]

    def forward(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        return self.output(self.features(states))  # type: ignore[no-any-return]


class Labels(nn.Module):
    """A vector to the logits of labels, by one linear layer or by a small MLP."""

    def __init__(self, width: int, labels: int, *, hidden: str = "none", dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = HIDDEN.get(hidden)
        self.hidden = nn.Linear(width, width) if self.activation is not None else nn.Identity()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, labels)

    def forward(self, x: Float[Tensor, "*places width"]) -> Float[Tensor, "*places labels"]:
        if self.activation is not None:
            x = self.activation(self.hidden(x))
        return self.output(self.dropout(x))  # type: ignore[no-any-return]


class Pool(nn.Module):
    """The states of a row to one vector: the first, the mean, or by attention of one learned query.

    The last is softmax(x·g) x, "sequence pooling" (Hassani et al. 2021, 3.2, eq. 3).
    """

    def __init__(self, how: str, width: int) -> None:
        super().__init__()
        self.how = how
        self.query = nn.Parameter(torch.empty(width)) if how == "learned" else None

    def forward(
        self, states: Float[Tensor, "rows length width"], real: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "rows width"]:
        if self.query is None:
            return pooled(states, real, how=self.how)
        scores = (states @ self.query.to(states.dtype)).float()
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(-1)
        return (weights[:, None].to(states.dtype) @ states)[:, 0]


def pooled(states: Float[Tensor, "rows length width"], real: Bool[Tensor, "rows length"], *,
           how: str) -> Float[Tensor, "rows width"]:
    """One vector for each row: its first token's, or the mean of those that are real."""
    assert how != "learned", "a learned query belongs to a Pool"
    if how == "first":
        return states[:, 0]
    kept = real[..., None].to(states.dtype)
    return (states * kept).sum(1) / kept.sum(1).clamp(min=1)
