"""Filters: forbid next tokens. Only tensor operations, so that a whole step can be captured."""

import math
from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Filter", "Filters", "Forbid", "ForcePrefix", "NoRepeat", "PenalizeRepeats"]


@runtime_checkable
class Filter(Protocol):
    """From logits to logits, in place or not.

    `history` holds each row's tokens, the prompt first; only `length` of them are written, which is one number for
    all rows or one for each.
    """

    def __call__(
        self, logits: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows capacity"], *,
        length: Int[Tensor, "#rows"],
    ) -> Float[Tensor, "rows vocabulary"]: ...


class Forbid:
    """These ids never come."""

    def __init__(self, ids: Sequence[int], *, vocabulary: int, device: torch.device) -> None:
        inside = [id for id in ids if id < vocabulary]
        self.forbidden = torch.tensor(inside, dtype=torch.long, device=device)

    def __call__(self, logits: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows capacity"], *,
                 length: Int[Tensor, "#rows"]) -> Float[Tensor, "rows vocabulary"]:
        return logits.index_fill_(1, self.forbidden, -math.inf)


class ForcePrefix:
    """The answer begins with these tokens; `start` is the length of the prompts, after which they come."""

    def __init__(self, prefix: Int[Tensor, " n"], *, start: int | Int[Tensor, " rows"]) -> None:
        self.prefix, self.start = prefix, start

    def __call__(self, logits: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows capacity"], *,
                 length: Int[Tensor, "#rows"]) -> Float[Tensor, "rows vocabulary"]:
        if not len(self.prefix):
            return logits
        place = (length - self.start)[:, None]  # (#rows, 1)
        forced = self.prefix[place.clamp(0, len(self.prefix) - 1)]
        others = torch.arange(logits.shape[1], device=logits.device) != forced
        return logits.masked_fill(others & (place < len(self.prefix)), -math.inf)


class NoRepeat:
    """No run of `size` tokens comes twice."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, logits: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows capacity"], *,
                 length: Int[Tensor, "#rows"]) -> Float[Tensor, "rows vocabulary"]:
        if history.shape[1] < self.size:
            return logits
        runs = history.unfold(1, self.size, 1)  # (rows, starts, size)
        length = length[:, None]
        written = torch.arange(runs.shape[1], device=logits.device) + self.size <= length
        newest = history.gather(1, (length - self.size + 1 + torch.arange(self.size - 1, device=logits.device))
                                .clamp(min=0).expand(history.shape[0], -1))
        again = (runs[:, :, :-1] == newest[:, None]).all(-1) & written  # (rows, starts)
        times = torch.zeros_like(logits).scatter_add_(1, runs[:, :, -1], again.to(logits.dtype))
        return logits.masked_fill(times > 0, -math.inf)


class PenalizeRepeats:
    """Tokens that came before, in the prompt or after it, are less likely (Keskar et al. 2019, 4.1).

    A positive logit is divided by the penalty. A negative one is multiplied by it: there the paper's formula would
    make the token likelier.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, logits: Float[Tensor, "rows vocabulary"], history: Int[Tensor, "rows capacity"], *,
                 length: Int[Tensor, "#rows"]) -> Float[Tensor, "rows vocabulary"]:
        written = torch.arange(history.shape[1], device=logits.device) < length[:, None]
        seen = history.where(written, history[:, :1])  # unwritten places repeat the first token
        scores = logits.gather(1, seen)
        return logits.scatter(1, seen, torch.where(scores > 0, scores / self.penalty, scores * self.penalty))


class Filters:
    """Those that a search asks for. The same objects each time: a recorded step goes on reading their tensors."""

    def __init__(self) -> None:
        self.made: dict[Hashable, tuple[Filter, ...]] = {}

    def of(self, *, never: Sequence[int], vocabulary: int, device: torch.device, no_repeat_ngram: int | None = None,
           repetition_penalty: float = 1.0) -> tuple[Filter, ...]:
        key = (tuple(never), vocabulary, device, no_repeat_ngram, repetition_penalty)
        if key not in self.made:
            found: list[Filter] = [Forbid(never, vocabulary=vocabulary, device=device)] if never else []
            found += [] if no_repeat_ngram is None else [NoRepeat(no_repeat_ngram)]
            found += [] if repetition_penalty == 1 else [PenalizeRepeats(repetition_penalty)]
            return self.made.setdefault(key, tuple(found))  # two threads may make them at once: both get the first
        return self.made[key]
