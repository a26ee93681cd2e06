"""Counterfactual weights: without the mask, at another temperature, without the scale."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.look.thread_hooks import eagerly, in_this_thread
from regard.look.watch import sites
from regard.models.build import text_encoder
from regard.nn.attend import Attend, AttentionPositions
from regard.nn.init import initialize
from regard.nn.mask import Mask, whole
from regard.settings.schema import Tower

__all__ = ["Question", "ask", "scaled_and_not"]

T = TypeVar("T")


class Question:
    """The queries and keys of one attention's last call: what it was asked."""

    def __init__(self, attend: Attend, q: Tensor, k: Tensor, options: dict[str, Any]) -> None:
        self.attend, self.q, self.k, self.options = attend, q, k, options
        self.mask: Mask = options["mask"]

    @torch.no_grad()
    def weights(self, *, mask: Mask | None = None,
                temperature: float = 1.0) -> Float[np.ndarray, "batch heads queries keys"]:
        """The weights under this mask (absent: its own), with the scores also divided by `temperature`."""
        attend = self.attend.pick(range(self.attend.heads))
        attend.temperature *= temperature
        options = self.options | {"mask": mask or self.mask}
        return attend.weights(self.q.float(), self.k.float(), **options).cpu().numpy()

    def allowed(self) -> np.ndarray:
        """True where a query of the first row may look."""
        none = AttentionPositions(whole(self.q.shape[2], self.q.device), whole(self.k.shape[2], self.k.device))
        places = self.options.get("positions") or none
        dense = self.mask.dense(places.queries, places.keys)
        shape = (self.q.shape[2], self.k.shape[2])
        return np.ones(shape, bool) if dense is None else dense[0, 0].expand(shape).cpu().numpy()


@torch.no_grad()
def ask(model: nn.Module, site: str, run: Callable[[], T]) -> tuple[Question, T]:
    """The last call of the attention at a site while `run` runs the model, and the result of `run`."""
    asked: dict[str, Question] = {}

    def keep(attend: Attend, inputs: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        asked[site] = Question(attend, inputs[0], inputs[1], options)

    hook = sites(model)[site].register_forward_pre_hook(in_this_thread(keep), with_kwargs=True)
    try:
        with eagerly():
            given = run()
    finally:
        hook.remove()
    return asked[site], given


def scaled_and_not(*, width: int = 64, length: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A head's weights over random tokens before any training, as they are and without 1/√d_k.

    Queries and keys have components of variance 1, so that q·k has variance d_k: without the scale, the softmax of
    numbers that far apart is all but one-hot, and its gradient all but zero (Vaswani et al. 2017, 3.2.1).
    """
    tower = Tower(width=width, depth=1, heads=1, dropout=0.0, positions="none")
    encoder = text_encoder(tower, vocabulary=length).eval()
    initialize(encoder, seed=seed)
    question, _ = ask(encoder, "blocks.0.self", lambda: encoder(encoder.embed(torch.arange(length)[None])))
    return question.weights()[0, 0], question.weights(temperature=1 / math.sqrt(width))[0, 0]
