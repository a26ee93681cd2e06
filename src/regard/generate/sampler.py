"""Writing token by token, each drawn from the model's own probabilities or the likeliest.

All of a step is tensors of fixed shape, so that on a GPU it is captured once and replayed, several tokens between
two looks from the host; on a CPU prompts leave the batch as they end.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.generate.beam import Hypothesis
from regard.generate.filters import Filter
from regard.generate.next_token import Drawn, draw
from regard.generate.prefill import prefill
from regard.generate.steps import State, Steps
from regard.kernels.cuda_graphs import Advance, Captures, weights_key
from regard.kernels.kernel import Choices, caching_choices
from regard.kernels.linear_onednn import Layouts, lasting

__all__ = ["Drawn", "Sampler", "Sampling", "gather", "padded", "sample"]

AHEAD = 8  # tokens that a GPU writes between two copies to the host; as many again are queued while the host reads
CAPACITY_MULTIPLE = 64  # of a captured step, so that prompts of like lengths share one recording
RECORDED = 1 << 13  # tokens of a cache: where it has room for more, the reading of a prompt is not recorded
LAID_OUT = 8  # tokens after which a CPU packs its weights: packing takes as long as a few tokens
LEAVE = 4  # on a CPU, finished prompts leave when they are one in four: each time copies the cache
BELOW_ONE = 1 - 2**-24  # the largest uniform number, so that in float32 too it is less than 1


Recorder = Callable[[Callable[[Tensor], State], Tensor, int], tuple[State, bool]]
"""Takes a function that reads prompts, the prompts and their capacity; returns the state; `Captures.begin`."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is drawn. The defaults draw from the model's distribution as it is."""

    end: int
    """The id that finishes a row; the row then continues with this id."""
    longest: int
    """The most new tokens."""
    samples: int = 1
    """Rows that are written for each prompt, drawn apart."""
    temperature: float = 1.0
    """0: always the likeliest token (greedy)."""
    top_k: int | None = None
    """Only the k likeliest tokens."""
    top_p: float | None = None
    """Only the likeliest tokens that together have this probability (Holtzman et al. 2020)."""
    min_p: float | None = None
    """Only tokens at least this share as likely as the likeliest (Nguyen et al. 2024)."""
    seed: int = 0


@torch.no_grad()
def sample(
    model: Steps, prompt: Int[Tensor, "prompts n"], *, how: Sampling, lengths: Sequence[int] | None = None,
    memory: object = None, filters: Sequence[Filter] = (), seeds: Sequence[Sequence[int]] | None = None,
    barred: Bool[Tensor, "prompts vocabulary"] | None = None, captures: "Captures[Sampler] | None" = None,
    enough: Collection[int] = (),
) -> Iterator[Drawn]:
    """Yields the next token of every row, on the CPU, until all rows have ended. After its end a row's chance is 1.

    `lengths` says how many tokens each prompt has; what stands after them in `prompt` is not read. `how.samples`
    neighbouring rows share a prompt. A row is drawn by numbers made from `how.seed`, its sample's number and its
    prompt's `seeds` (absent: the prompt's index): with its own seeds, such as its tokens, a prompt's completion does
    not depend on the rest of the batch. No answer begins with a token that is `barred` for its prompt. Rows that
    the caller adds to `enough` meanwhile count as finished.

    On a GPU, `captures` keeps what was recorded for the next batch of the same shape and the same filters.
    """
    keep: Captures[Sampler] = Captures() if captures is None else captures
    place = weights_key(model) if prompt.is_cuda else None
    begin = partial(Sampler, model, prompt, how, lengths=lengths, memory=memory, filters=filters, seeds=seeds,
                    barred=barred, recorder=None if place is None else partial(keep.begin, key=place))
    ended = torch.zeros(len(prompt) * how.samples, dtype=torch.bool)
    with ExitStack() as lent:
        if prompt.device.type == "cuda":
            key = (place, replace(how, seed=0), tuple(map(id, filters)))
            steps = _ahead(*lent.enter_context(keep.adopt(begin, key=key)), how.longest)
        else:
            choices = Choices()
            with caching_choices(choices):
                draws = begin()
            steps = _one_by_one(draws, ended, choices)
        for drawn in steps:
            tokens = drawn.tokens.masked_fill(ended, how.end)
            chances = drawn.log_probabilities.masked_fill(ended, 0.0)
            ended |= tokens == how.end
            yield Drawn(tokens, chances)
            ended[list(enough)] = True
            if bool(ended.all()):
                return


def gather(steps: Iterable[Drawn], *, end: int) -> list[Hypothesis]:
    """All that was drawn, a hypothesis for each row; its score is the mean log-probability of its tokens."""
    drawn = list(steps)
    tokens, chances = torch.stack([d.tokens for d in drawn], 1), torch.stack([d.log_probabilities for d in drawn], 1)
    return [Hypothesis.of(row, total, end=end)
            for row, total in zip(tokens.tolist(), chances.sum(1).tolist(), strict=True)]


def padded(rows: Sequence[Sequence[int]], *, device: torch.device | None = None) -> Int[Tensor, "rows longest"]:
    """Rows of different lengths, with zeros after their ends."""
    whole = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for place, row in zip(whole, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(whole).to(device)


def _one_by_one(draws: "Sampler", ended: Bool[Tensor, " rows"], choices: Choices) -> Iterator[Drawn]:
    """Token by token, without the prompts that have ended."""
    rows, samples, end = len(ended), draws.how.samples, draws.how.end
    live = torch.arange(rows).view(-1, samples)  # the rows of each prompt that is still written
    layouts = Layouts()
    for step in range(draws.how.longest):
        with lasting(layouts) if step >= LAID_OUT else caching_choices(choices):
            draws.advance()
        tokens, chances = torch.full((rows,), end), torch.zeros(rows)
        tokens[live.flatten()] = draws.tokens[:, step].cpu()
        chances[live.flatten()] = draws.chances[:, step].cpu()
        yield Drawn(tokens, chances)
        gone = ended[live].all(1)
        if int(gone.sum()) * LEAVE >= len(live):
            kept = (~gone).nonzero()[:, 0]
            draws.keep(kept.to(draws.tokens.device))
            live = live[kept]


def _ahead(draws: "Sampler", advance: Advance, longest: int) -> Iterator[Drawn]:
    """Several tokens per launch and copy to the host; the next are already queued while the caller works on these."""
    waiting: Iterator[Drawn] = iter(())
    for start in range(0, longest, AHEAD):
        stop = min(start + AHEAD, longest)
        if stop - start == AHEAD:
            advance(AHEAD)
        else:  # no further than asked: learned positions may end there
            for _ in range(start, stop):
                advance()
        tokens, chances = (_to_host(x[:, start:stop]) for x in (draws.tokens, draws.chances))
        there = torch.cuda.Event()
        there.record()
        yield from waiting
        waiting = _arrived(tokens, chances, there)
    yield from waiting


def _to_host(x: Tensor) -> Tensor:
    """A copy that is on its way: into pinned memory, as any other would make the host wait for the GPU."""
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)


def _arrived(tokens: Int[Tensor, "rows steps"], chances: Float[Tensor, "rows steps"],
             there: torch.cuda.Event) -> Iterator[Drawn]:
    there.synchronize()
    yield from map(Drawn, tokens.unbind(1), chances.unbind(1))


class Sampler:
    """The state of sampling for all rows. `advance` changes tensors only in place; it does not check for the end."""

    def __init__(
        self, model: Steps, prompt: Int[Tensor, "prompts n"], how: Sampling, *, lengths: Sequence[int] | None = None,
        memory: object = None, filters: Sequence[Filter] = (), seeds: Sequence[Sequence[int]] | None = None,
        barred: Bool[Tensor, "prompts vocabulary"] | None = None, recorder: Recorder | None = None,
    ) -> None:
        self.model, self.how, self.filters = model, how, filters
        prompts, longest = prompt.shape
        device = prompt.device
        copies = torch.arange(prompts, device=device).repeat_interleave(how.samples)
        read = torch.tensor(lengths or [longest] * prompts, device=device)
        capacity = longest + how.longest
        if device.type == "cuda":
            capacity += -capacity % CAPACITY_MULTIPLE
        # The last token of a prompt is read by the first step. Where it is not the longest, it is read twice.
        self.state, self.lent = self._begun(prompt[:, :-1], memory, capacity, recorder)
        if min(lengths or [longest]) < longest:
            self.keep_memory()
            # Keys of the padding lie after every query: no query sees them, and later tokens overwrite them.
            self.state.truncate(read[:, None] - 1)
        if how.samples > 1:
            self.keep_memory()
            self.state.reorder(copies)
        self.length: Int[Tensor, " rows"] = read[copies]
        self.history: Int[Tensor, "rows capacity"] = prompt.new_full((len(copies), capacity), how.end)
        self.history[:, :longest] = prompt[copies]
        self.newest: Int[Tensor, "rows 1"] = self.history.gather(1, self.length[:, None] - 1)
        self.tokens: Int[Tensor, "rows longest"] = prompt.new_full((len(copies), how.longest), how.end)
        self.chances: Float[Tensor, "rows longest"] = torch.zeros(self.tokens.shape, device=device)
        exact = torch.float32 if device.type == "mps" else torch.float64  # of the draw; MPS has no more
        uniforms = _uniforms(seeds or [[i] for i in range(prompts)], how)
        self.uniforms: Float[Tensor, "rows longest"] = uniforms.to(device, exact)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.barred: Bool[Tensor, "rows vocabulary"] | None = None if barred is None else barred[copies]

    def _begun(self, prompt: Int[Tensor, "prompts n"], memory: object, capacity: int,
               recorder: Recorder | None) -> tuple[State, bool]:
        """After the prompts, and whether it is lent.

        To ask a GPU for a short prompt takes longer than to read it: what was asked before is asked at once.
        """

        def begin(prompt: Tensor) -> State:
            state: State = self.model.begin(len(prompt), memory, capacity=capacity)
            prefill(self.model, prompt, state)
            return state

        is_short = memory is None and len(prompt) * capacity <= RECORDED
        return (begin(prompt), False) if recorder is None or not is_short else recorder(begin, prompt, capacity)

    def advance(self) -> None:
        """One more token for every row."""
        how = self.how
        logits = self.model.logits(self.model.step(self.newest, self.state))[:, 0]
        for keep in self.filters:
            logits = keep(logits, self.history, length=self.length)
        if self.barred is not None:
            logits = logits.masked_fill(self.barred & (self.step == 0), -math.inf)
        uniform = self.uniforms.index_select(1, self.step)
        tokens, chances = draw(logits, uniform, temperature=how.temperature, top_k=how.top_k, top_p=how.top_p,
                               min_p=how.min_p)
        self.newest.copy_(tokens[:, None])
        self.tokens.index_copy_(1, self.step, tokens[:, None])
        self.chances.index_copy_(1, self.step, chances[:, None])
        self.step += 1
        if self.filters:  # only filters read the history
            self.history.scatter_(1, self.length[:, None], self.newest)
            self.length += 1

    def keep(self, prompts: Int[Tensor, " kept"]) -> None:
        """Keep only these prompts."""
        samples = torch.arange(self.how.samples, device=prompts.device)
        rows = (prompts[:, None] * self.how.samples + samples).flatten()
        self.state.reorder(rows)
        self.state.choose(prompts)
        for name in ("length", "history", "newest", "tokens", "chances", "uniforms"):
            setattr(self, name, getattr(self, name)[rows])
        self.barred = None if self.barred is None else self.barred[rows]

    def keep_memory(self) -> None:
        """Copy the tensors, so that no one else writes to them."""
        if self.lent:
            self.state, self.lent = deepcopy(self.state), False

    def tensors(self) -> list[Tensor]:
        """All that a step reads or changes."""
        return [self.length, self.history, self.newest, self.tokens, self.chances, self.uniforms, self.step,
                *([] if self.barred is None else [self.barred]), *self.state.tensors()]


def _uniforms(seeds: Sequence[Sequence[int]], how: Sampling) -> Float[Tensor, "rows longest"]:
    """A number in [0, 1) for each row and step, which depends only on the row's seed: the same on every machine."""
    sums = [hashlib.blake2b(np.array(seed, dtype="<i8").tobytes(), digest_size=16).digest() for seed in seeds]
    rows = [np.random.PCG64(np.random.SeedSequence([how.seed, sample, int.from_bytes(sum, "little")]))
            for sum in sums for sample in range(how.samples)]
    table = np.stack([np.random.Generator(row).random(how.longest) for row in rows])
    return torch.from_numpy(np.minimum(table, BELOW_ONE))
