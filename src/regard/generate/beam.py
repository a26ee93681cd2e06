"""Beam search: the one search, for every model that speaks `Steps`.

All of a search is tensors of fixed shape, so that on a GPU one step is captured once and replayed; on a CPU
sentences leave the batch as they end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.generate.filters import Filter
from regard.generate.steps import State, Steps
from regard.kernels import beam as beam_kernel
from regard.kernels.cuda_graphs import Captures, weights_key
from regard.kernels.kernel import Choices, caching_choices
from regard.kernels.linear_onednn import Layouts, lasting

__all__ = ["Beam", "Hypothesis", "Search", "beam"]

COLUMN = 64  # scores that are first looked at together, by their maximum
CACHED = 1 << 20  # scores that a CPU processes together
ROWS = 160  # rows whose logits a CPU computes at once: many more do not fit into its caches
LOOK_EVERY = 4  # steps of a captured search between two checks whether all have ended: a check waits for the GPU


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How to search."""

    end: int
    """The id that ends a hypothesis."""
    longest: int
    """The most new tokens, including the end."""
    size: int = 5
    """Hypotheses kept for each sentence."""
    length_penalty: float = 1.0
    """Hypotheses are compared by log-probability / length ** penalty, the end counted."""


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its new tokens without the end, its score, and its log-probability."""

    tokens: list[int]
    score: float
    log_probability: float

    @classmethod
    def of(cls, tokens: list[int], total: float, *, end: int, penalty: float = 1.0) -> "Hypothesis":
        """From tokens that may go on after their end. The end, where there is one, counts as a token."""
        written = tokens[: tokens.index(end)] if end in tokens else tokens
        return cls(written, total / min(len(written) + 1, len(tokens)) ** penalty, total)


@torch.no_grad()
def beam(
    model: Steps, prompt: Int[Tensor, "sources n"], *, how: Beam, memory: object = None,
    filters: Sequence[Filter] = (), captures: "Captures[Search] | None" = None,
) -> list[list[Hypothesis]]:
    """The best `how.size` answers to each prompt, the best first.

    On a GPU, `captures` keeps what was recorded for the next batch of the same shape and the same filters.
    """
    def begin() -> Search:
        return Search(model, prompt, how, memory, filters)

    if prompt.device.type != "cuda":
        with caching_choices(Choices()):
            search = begin()
        return _one_by_one(search)
    keep: Captures[Search] = Captures() if captures is None else captures
    with keep.adopt(begin, key=(weights_key(model), how, tuple(map(id, filters)))) as (search, advance):
        for step in range(0, how.longest, LOOK_EVERY):
            advance(min(LOOK_EVERY, how.longest - step))
            if bool(search.done.all()):
                break
        return search.best()


def _one_by_one(search: "Search") -> list[list[Hypothesis]]:
    """Step by step, without the sentences that have ended."""
    answers: list[list[Hypothesis]] = [[] for _ in search.done]
    places = list(range(len(answers)))  # which sentence each row of the search is
    layouts = Layouts()
    for _ in range(search.how.longest):
        with lasting(layouts):
            search.advance()
        done = search.done.tolist()
        if all(done):
            break
        if any(done):
            for place, best, ended in zip(places, search.best(), done, strict=True):
                if ended:
                    answers[place] = best
            places = [place for place, ended in zip(places, done, strict=True) if not ended]
            left = [row for row, ended in enumerate(done) if not ended]
            search.keep(torch.tensor(left, device=search.done.device))
    for place, best in zip(places, search.best(), strict=True):
        answers[place] = best
    return answers


class Search:
    """Live hypotheses and finished ones, for all sentences at once. `advance` changes tensors in place only."""

    def __init__(self, model: Steps, prompt: Tensor, how: Beam, memory: object, filters: Sequence[Filter]) -> None:
        self.model, self.how, self.filters = model, how, filters
        sources, self.start = prompt.shape
        device, shape = prompt.device, (sources, how.size)
        capacity = self.start + how.longest
        self.state: State = model.begin(sources, memory, capacity=capacity if device.type == "cuda" else None)
        if self.start > 1:
            model.step(prompt[:, :-1], self.state)
        # All beams begin the same: if shapes may change, the prompt's last token is also read once per sentence.
        self.alike = device.type == "cpu"
        if not self.alike:
            self.state.fan_out(how.size)
        self.length = torch.tensor(self.start, device=device)
        self.tokens: Int[Tensor, "sources beams capacity"] = prompt.new_full((*shape, capacity), how.end)
        self.tokens[:, :, : self.start] = prompt[:, None]
        self.totals: Float[Tensor, "sources beams"] = torch.full(shape, -math.inf, device=device)
        self.totals[:, 0] = 0.0  # all beams begin the same: only one may count
        self.ended_tokens = self.tokens.clone()
        self.ended_scores: Float[Tensor, "sources beams"] = torch.full(shape, -math.inf, device=device)
        self.ended_totals = self.ended_scores.clone()
        self.done: Bool[Tensor, " sources"] = torch.zeros(sources, dtype=torch.bool, device=device)

    def advance(self) -> None:
        """One more token for every live hypothesis."""
        size = self.how.size
        newest = self.tokens[:, : 1 if self.alike else size].index_select(2, (self.length - 1)[None]).view(-1, 1)
        states = self.model.step(newest, self.state)
        if self.alike:
            self.state.fan_out(size)
            self.alike = False
        if states.device.type == "cpu":
            parents = self.choose(*self.candidates_in_parts(states))
        elif beam_kernel.serves(logits := self.logits(states, self.tokens), size):
            parents = beam_kernel.choose(
                logits, tokens=self.tokens, totals=self.totals, ended_tokens=self.ended_tokens,
                ended_scores=self.ended_scores, ended_totals=self.ended_totals, done=self.done, length=self.length,
                start=self.start, end=self.how.end, longest=self.how.longest, length_penalty=self.how.length_penalty)
        else:
            parents = self.choose(*self.candidates(logits, self.totals))
        self.length += 1
        self.state.reorder(parents)

    def logits(self, states: Float[Tensor, "some 1 width"],
               tokens: Int[Tensor, "sources beams capacity"]) -> Float[Tensor, "rows vocabulary"]:
        """The logits of every beam; while the beams of a sentence are still the same, they share one state."""
        logits = self.model.logits(states)[:, 0]
        if len(logits) < len(tokens) * self.how.size:
            logits = logits.repeat_interleave(self.how.size, 0)
        for keep in self.filters:
            logits = keep(logits, tokens.flatten(0, 1), length=self.length[None])
        return logits

    def candidates(self, logits: Float[Tensor, "rows vocabulary"],
                   totals: Float[Tensor, "sources beams"]) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each sentence's beams: log-probability, parent beam, token."""
        # Twice as many as beams: however many of the best end here, enough live on.
        return _best(logits, totals, 2 * self.how.size)

    def candidates_in_parts(self, states: Float[Tensor, "some 1 width"]) -> tuple[Tensor, Tensor, Tensor]:
        """The same from the states: what stays in a CPU's caches is worked off faster."""
        sources, size = self.totals.shape
        part = -(-sources // -(-sources * size // ROWS))  # sentences, in equal parts
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for some, tokens, totals in zip(states.split(part * len(states) // sources), self.tokens.split(part),
                                        self.totals.split(part), strict=True):
            logits = self.logits(some, tokens)
            few = max(1, CACHED // (size * logits.shape[1]))
            found += map(self.candidates, logits.split(few * size), totals.split(few))
        totals, parents, tokens = (torch.cat(each) for each in zip(*found, strict=True))
        return totals, parents, tokens

    def choose(self, totals: Float[Tensor, "sources candidates"], parents: Int[Tensor, "sources candidates"],
               tokens: Int[Tensor, "sources candidates"]) -> Int[Tensor, " rows"]:
        """Which hypotheses go on, and which end; the row that each row goes on from."""
        sources, size, capacity = self.tokens.shape
        written = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, capacity))
        written.index_copy_(2, self.length[None], tokens[:, :, None])

        generated = self.length + 1 - self.start
        ends = (tokens == self.how.end) | (generated == self.how.longest)
        scores = totals / generated**self.how.length_penalty
        self.finish(scores, totals, written, ends)

        best = totals.masked_fill(ends, -math.inf).topk(size)
        self.totals.copy_(best.values)
        self.tokens.copy_(written.gather(1, best.indices[:, :, None].expand(-1, -1, capacity)))
        # A live hypothesis is judged by its score as it stands; a longer one could yet do better, rarely.
        hopeless = self.totals[:, 0] / generated**self.how.length_penalty <= self.ended_scores[:, -1]
        self.done |= hopeless | (generated == self.how.longest)
        parents = parents.gather(1, best.indices)
        return (parents + size * torch.arange(sources, device=parents.device)[:, None]).flatten()

    def finish(self, scores: Tensor, totals: Tensor, tokens: Tensor, ends: Tensor) -> None:
        """Candidates that end, and are among the best of their step, join the finished; the best of those stay."""
        size = self.how.size
        among_best = torch.arange(scores.shape[1], device=scores.device) < size
        joins = ends & among_best & ~self.done[:, None]
        best = torch.cat([self.ended_scores, scores.masked_fill(~joins, -math.inf)], dim=1).topk(size)
        self.ended_scores.copy_(best.values)
        self.ended_totals.copy_(torch.cat([self.ended_totals, totals], dim=1).gather(1, best.indices))
        places = best.indices[:, :, None].expand(-1, -1, tokens.shape[2])
        self.ended_tokens.copy_(torch.cat([self.ended_tokens, tokens], dim=1).gather(1, places))

    def keep(self, sources: Int[Tensor, " kept"]) -> None:
        """Keep only these sentences."""
        beams = torch.arange(self.how.size, device=sources.device)
        self.state.reorder((sources[:, None] * self.how.size + beams).flatten())
        self.state.choose(sources)
        for name in ("tokens", "totals", "ended_tokens", "ended_scores", "ended_totals", "done"):
            setattr(self, name, getattr(self, name)[sources])

    def keep_memory(self) -> None:
        """Nothing to copy: no one else writes to its tensors."""

    def tensors(self) -> list[Tensor]:
        """All that a step reads or changes."""
        return [self.length, self.tokens, self.totals, self.ended_tokens, self.ended_scores, self.ended_totals,
                self.done, *self.state.tensors()]

    def best(self) -> list[list[Hypothesis]]:
        """The finished hypotheses of each sentence, as they stand."""
        tokens, totals = self.ended_tokens[:, :, self.start :].tolist(), self.ended_totals.tolist()
        return [[Hypothesis.of(written, total, end=self.how.end, penalty=self.how.length_penalty)
                 for written, total in zip(*of_sentence, strict=True) if total > -math.inf]
                for of_sentence in zip(tokens, totals, strict=True)]


def _best(logits: Float[Tensor, "rows vocabulary"], totals: Float[Tensor, "sources beams"],
          count: int) -> tuple[Tensor, Tensor, Tensor]:
    sources, size = totals.shape
    vocabulary = logits.shape[1]
    # The largest of many are all in the columns with the largest maxima: the rest is looked at once.
    height = COLUMN if vocabulary % COLUMN == 0 and vocabulary >= COLUMN * count else 1
    columns = logits.log_softmax(-1, dtype=torch.float32).view(sources * size, height, -1)
    maxima = (columns.amax(1) + totals.view(-1, 1)).view(sources, -1)
    chosen = maxima.topk(count).indices  # (sources, count)
    parents, places = chosen // columns.shape[2], chosen % columns.shape[2]
    rows = parents + size * torch.arange(sources, device=parents.device)[:, None]
    inside = columns[rows, :, places] + totals.view(-1)[rows][:, :, None]  # (sources, count, height)
    best, order = inside.view(sources, -1).topk(count)
    column, row = order // height, order % height
    return best, parents.gather(1, column), row * columns.shape[2] + places.gather(1, column)
