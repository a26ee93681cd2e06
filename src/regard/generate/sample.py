"""Drawing the next token from the model's own probabilities, or taking the likeliest."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generate.beam import Hypothesis
from regard.generate.filters import Filter
from regard.generate.steps import Steps

__all__ = ["Drawn", "Sampling", "gather", "narrow", "sample"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is drawn. The defaults draw from the model's distribution as it is."""

    end: int
    """The id after which a row is finished; it then goes on with this id."""
    longest: int
    """New tokens at the most."""
    temperature: float = 1.0
    """0: always the likeliest token (greedy)."""
    top_k: int | None = None
    """Only the k likeliest tokens."""
    top_p: float | None = None
    """Only the likeliest tokens that together have this probability (Holtzman et al. 2020)."""
    seed: int = 0


class Drawn(NamedTuple):
    """The next token of every row, and its log-probability among what the filters allow (0 after the end)."""

    tokens: Int[Tensor, " rows"]
    log_probabilities: Float[Tensor, " rows"]


@torch.no_grad()
def sample(
    model: Steps, prompt: Int[Tensor, "rows n"], *, how: Sampling, memory: object = None,
    filters: Sequence[Filter] = (),
) -> Iterator[Drawn]:
    """Yields token after token, until all rows have ended."""
    generator = torch.Generator(prompt.device).manual_seed(how.seed)
    state = model.begin(prompt.shape[0], memory)
    history, ended = prompt, torch.zeros_like(prompt[:, 0], dtype=torch.bool)
    newest = prompt
    for _ in range(how.longest):
        logits = model.logits(model.step(newest, state)[:, -1:])[:, 0].float()
        for keep in filters:
            logits = keep(logits, history, length=torch.tensor(history.shape[1], device=prompt.device))
        token = draw(logits, how, generator).masked_fill(ended, how.end)
        chance = logits.log_softmax(-1).gather(1, token[:, None])[:, 0].masked_fill(ended, 0.0)
        ended = ended | (token == how.end)
        yield Drawn(token, chance)
        if bool(ended.all()):
            return
        newest = token[:, None]
        history = torch.cat([history, newest], dim=1)


def gather(steps: Iterable[Drawn], *, end: int) -> list[Hypothesis]:
    """All that was drawn, a hypothesis for each row; its score is the mean log-probability of its tokens."""
    drawn = list(steps)
    tokens, chances = torch.stack([d.tokens for d in drawn], 1), torch.stack([d.log_probabilities for d in drawn], 1)
    return [Hypothesis.of(row, total, end=end)
            for row, total in zip(tokens.tolist(), chances.sum(1).tolist(), strict=True)]


def draw(logits: Float[Tensor, "rows vocabulary"], how: Sampling, generator: torch.Generator) -> Int[Tensor, " rows"]:
    if how.temperature == 0:
        return logits.argmax(-1)
    chances = narrow(logits / how.temperature, top_k=how.top_k, top_p=how.top_p).softmax(-1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def narrow(
    logits: Float[Tensor, "rows vocabulary"], *, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "rows vocabulary"]:
    """Only the likeliest stay; the others become −∞. The likeliest of all always stays."""
    if top_k is not None and top_k < logits.shape[1]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -math.inf)
    if top_p is not None:
        ordered, places = logits.sort(descending=True)
        chances = ordered.softmax(-1)
        before = chances.cumsum(-1) - chances
        kept = (before < top_p) | (torch.arange(logits.shape[1], device=logits.device) == 0)
        logits = logits.masked_fill(~kept.gather(1, places.argsort()), -math.inf)
    return logits
