"""Consistency checks on a checkpoint: computing the same thing in two ways must give the same result.

It is below the tasks, which make probes of their models, and above `generate` and `look`: it searches, and
it needs to find the attentions.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product, zip_longest
from threading import Lock
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.check.probe import Probe, Rows
from regard.generate.beam import Beam, Hypothesis, beam
from regard.generate.sample import Sampling, gather, sample
from regard.generate.sampler import Drawn
from regard.generate.steps import State, Steps
from regard.generate.text import UNFINISHED, Decode, Writing, follow
from regard.look.hooks import in_this_thread
from regard.look.watch import sites
from regard.nn.attend import Attend, Attended
from regard.settings.errors import out_of

__all__ = ["CHECKS", "Check", "checks"]

NEAR = 1e-5  # of the largest number: what sums of float32 in another order may differ by
EXACT = 0.0  # where the order of the sums is the same
ALIKE = 1e-4  # between two logits: which of these tokens is the likeliest, the order of the sums may decide
WRITTEN = 16  # tokens of an answer
MORE_PADDING = 5
CACHES = ("growing", "fixed")
_PRECISION = Lock()


class Difference(NamedTuple):
    """How large, as a share of the largest number there was, and where."""

    size: float
    place: str
    note: str = ""


@dataclass(frozen=True)
class Check:
    """One thing that must hold, and how far this model is from it."""

    name: str
    otherwise: str
    """The message for a model that fails the check."""
    tolerance: float
    difference: float
    place: str
    """The place of the largest difference."""
    note: str
    """A remark, printed even if the check holds."""

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance  # false for NaN


def checks(asked: Probe) -> Iterator[Check]:
    """All that can be asked of this model, one after the other."""
    for name, otherwise, tolerance, measure, concerns in CHECKS:
        if concerns(asked):
            with torch.no_grad(), _exact_products():
                difference = measure(asked)
            yield Check(name, otherwise, tolerance, *difference)


# The checks. Each asks in a way that leaves the others' questions out.


def batch_is_single(asked: Probe) -> Difference:
    read, source = asked.filled(asked.rows), asked.filled(asked.sources)
    alone = [asked.logits(read[[row]], source[[row]]) for row in range(len(read))]
    size, row, token = _gap(asked.logits(read, source), torch.cat(alone))
    return Difference(size, f"row {row}, token {token}")


def padded_is_unpadded(asked: Probe) -> Difference:
    found, more = [], [asked.pad] * MORE_PADDING
    for number, (row, source) in enumerate(zip(asked.rows, asked.sources, strict=True)):
        bare = asked.logits(asked.filled([row]), asked.filled([source]))
        padded = asked.logits(asked.filled([[*row, *more]]), asked.filled([[*source, *more]]))
        size, _, token = _gap(padded[:, : bare.shape[1]], bare)
        found.append(Difference(size, f"row {number}, token {token}"))
    return max(found)


def cache_is_none(asked: Probe) -> Difference:
    """The first half of the tokens at once, the others one by one."""
    read, source, writer = asked.padded(asked.rows), asked.padded(asked.sources), _writer(asked)
    whole, half = asked.logits(read, source), read.shape[1] // 2
    found = []
    for kind in CACHES:
        state = _begin(asked, read, source, kind)
        parts = [read[:, :half], *read[:, half:].split(1, dim=1)]
        stepped = torch.cat([writer.step(tokens, state) for tokens in parts], dim=1)
        size, row, token = _gap(writer.logits(stepped), whole, real=read != asked.pad)
        found.append(Difference(size, f"row {row}, token {token}, {kind} cache"))
    return max(found)


def reordered_is_fresh(asked: Probe) -> Difference:
    """Two beams for each row, which swap places half-way: each continues the other's past."""
    read, source, writer = asked.filled(asked.rows), asked.filled(asked.sources), _writer(asked)
    beams = torch.stack([read, read.roll(1, 0)], dim=1).flatten(0, 1)
    swapped = torch.arange(len(beams), device=beams.device) ^ 1
    half = beams.shape[1] // 2
    mixed = torch.cat([beams[swapped, :half], beams[:, half:]], dim=1)
    fresh = asked.logits(mixed, source.repeat_interleave(2, 0))[:, half:]
    found = []
    for kind, together in product(CACHES, (False, True)):
        state = _begin(asked, read, source, kind)
        if together:
            state.fan_out(2)
        else:
            state.reorder(torch.arange(len(read), device=read.device).repeat_interleave(2))
        writer.step(beams[:, :half], state)
        state.reorder(swapped)
        stepped = torch.cat([writer.step(tokens, state) for tokens in beams[:, half:].split(1, dim=1)], dim=1)
        size, row, token = _gap(writer.logits(stepped), fresh)
        found.append(Difference(size, f"row {row // 2}, beam {row % 2}, token {half + token}, {kind} cache"))
    return max(found)


def beam_of_one_is_greedy(asked: Probe) -> Difference:
    prompts, source, end = [row[:1] for row in asked.rows], asked.padded(asked.sources), _end(asked)
    longest = 2 * max(map(len, (*asked.sources, *asked.rows)))
    searched = beam(_writer(asked), asked.filled(prompts), memory=asked.remember(source),
                    how=Beam(end=end, longest=longest, size=1))
    if not all(searched):
        return Difference(math.inf, f"row {searched.index([])}: its probabilities are not numbers")
    greedy = gather(_greedy(asked, prompts, asked.sources, longest), end=end)
    return _parted(asked, prompts, asked.sources, [answers[0] for answers in searched], greedy)


def alone_is_together(asked: Probe) -> Difference:
    """Greedy answers to prompts of many lengths: each row, and the first half of it."""
    prompts, sources = [part for row in asked.rows for part in (row, row[: -(-len(row) // 2)])], _twice(asked.sources)
    together = gather(_greedy(asked, prompts, sources), end=_end(asked))
    alone = [gather(_greedy(asked, [prompt], [source]), end=_end(asked))[0]
             for prompt, source in zip(prompts, sources, strict=True)]
    return _parted(asked, prompts, sources, together, alone)


def streamed_is_whole(asked: Probe) -> Difference:
    """The text of greedy answers, piece by piece."""
    decode, end = asked.decode, _end(asked)
    assert decode is not None
    drawn = list(_greedy(asked, asked.rows, asked.sources))
    written = [Writing(decode, end=end, longest=len(drawn)) for _ in asked.rows]
    for _ in follow(drawn, written, enough=set()):
        pass
    for row, (writing, answer) in enumerate(zip(written, gather(drawn, end=end), strict=True)):
        if writing.text != decode(answer.tokens) and _only_adds(decode, answer.tokens):
            return Difference(1.0, f"row {row}: {writing.text!r} instead of {decode(answer.tokens)!r}")
    return Difference(0.0, "")


def _only_adds(decode: Decode, tokens: Sequence[int]) -> bool:
    """Whether no token changes the text before it. Some decoders take a whole run of bytes back if one does not fit."""
    whole = decode(tokens)
    return all(whole.startswith(decode(tokens[:size]).rstrip(UNFINISHED)) for size in range(len(tokens)))


def fused_is_explicit(asked: Probe) -> Difference:
    """Every attention of a whole pass and of a stepped one, on the very tensors it is given."""
    found = []

    def compare(attend: Attend, inputs: tuple[Tensor, ...], options: dict[str, Any], output: Attended, *,
                site: str) -> None:
        explicit = attend.explicit(*inputs, **options).context
        size, *_ = _gap(output.context.flatten(0, 1), explicit.flatten(0, 1))
        found.append(Difference(size, site))

    hooks = [attend.register_forward_hook(in_this_thread(partial(compare, site=site)), with_kwargs=True)
             for site, attend in sites(asked.model).items()]
    try:
        padded_is_unpadded(asked) if asked.writer is None else cache_is_none(asked)
    finally:
        for hook in hooks:
            hook.remove()
    return max(found)


def future_is_unseen(asked: Probe) -> Difference:
    """After each token in turn, all that follow are changed for others."""
    found = []
    for number, (row, source) in enumerate(zip(asked.rows, asked.sources, strict=True)):
        length = len(row)
        same, sources = asked.filled([row] * length), asked.filled([source] * length)
        past = torch.ones(length, length, dtype=torch.bool, device=same.device).tril()
        before = asked.logits(same, sources)
        after = asked.logits(same.where(past, (same + 1) % before.shape[2]), sources)
        size, _, token = _gap(after, before, real=past)
        found.append(Difference(size, f"row {number}, token {token}"))
    return max(found)


def shuffled_is_shuffled(asked: Probe) -> Difference:
    """All tokens see one another, and all get position 0."""
    blind, tokens = asked.blind, asked.filled(asked.sources if any(asked.sources) else asked.rows)
    assert blind is not None
    nowhere = torch.zeros_like(tokens[:1])
    order = torch.randperm(tokens.shape[1], generator=torch.Generator().manual_seed(0)).to(tokens.device)
    size, row, token = _gap(blind(tokens[:, order], nowhere), blind(tokens, nowhere)[:, order])
    return Difference(size, f"row {row}, token {int(order[token])}")


def _always(asked: Probe) -> bool:
    return True


def _writes(asked: Probe) -> bool:
    return asked.writer is not None


def _speaks(asked: Probe) -> bool:
    return asked.writer is not None and asked.decode is not None


def _attends(asked: Probe) -> bool:
    return bool(sites(asked.model))


def _can_be_blind(asked: Probe) -> bool:
    return asked.blind is not None


CHECKS: tuple[tuple[str, str, float, Callable[[Probe], Difference], Callable[[Probe], bool]], ...] = (
    ("batch = single", "what a row gets depends on the others in its batch", NEAR, batch_is_single, _always),
    ("padded = unpadded", "padding is seen", NEAR, padded_is_unpadded, _always),
    ("cache = none", "token by token the model says something else than at once", NEAR, cache_is_none, _writes),
    ("reordered = fresh", "a beam that changes places goes on from another's past", NEAR, reordered_is_fresh, _writes),
    ("beam 1 = greedy", "a beam search of size 1 does not take the likeliest token", NEAR, beam_of_one_is_greedy,
     _writes),
    ("alone = in a batch", "an answer depends on the others in its batch", ALIKE, alone_is_together, _writes),
    ("streamed = whole", "text that comes piece by piece is another", EXACT, streamed_is_whole, _speaks),
    ("fused = explicit", "the fast attention is not the one that is defined", NEAR, fused_is_explicit, _attends),
    ("no look into the future", "a token's output depends on later tokens", EXACT, future_is_unseen, _writes),
    ("equivariant without positions", "shuffled words give other states", NEAR, shuffled_is_shuffled, _can_be_blind),
)


# Shared code.


def _writer(asked: Probe) -> Steps:
    assert asked.writer is not None
    return asked.writer


def _begin(asked: Probe, read: Int[Tensor, "rows length"], source: Int[Tensor, "rows source"], kind: str) -> State:
    capacity = read.shape[1] if kind == "fixed" else None
    state: State = _writer(asked).begin(len(read), asked.remember(source), capacity=capacity)
    return state


def _end(asked: Probe) -> int:
    assert asked.end is not None
    return asked.end


def _twice(sources: Rows) -> list[Sequence[int]]:
    return [source for source in sources for _ in range(2)]


def _greedy(asked: Probe, prompts: Rows, sources: Rows, longest: int = WRITTEN) -> Iterator[Drawn]:
    how = Sampling(end=_end(asked), longest=longest, temperature=0.0)
    return sample(_writer(asked), asked.padded(prompts), lengths=[len(prompt) for prompt in prompts], how=how,
                  memory=asked.remember(asked.padded(sources)))


def _parted(asked: Probe, prompts: Rows, sources: Rows, found: Sequence[Hypothesis],
            wanted: Sequence[Hypothesis]) -> Difference:
    """Where two answers part, it counts by how much the one's next token is likelier than the other's."""
    gaps, parted = [], 0
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        gap = abs(one.log_probability - other.log_probability) / max(1.0, abs(other.log_probability))
        place = f"row {row}, log-probability of the answer"
        if parting := _parting(one.tokens, other.tokens, end=_end(asked)):
            token, choices = parting
            read, source = asked.filled([[*prompts[row], *other.tokens[:token]]]), asked.filled([sources[row]])
            gap = float(asked.logits(read, source)[0, -1, list(choices)].diff().abs())
            place, parted = f"row {row}, token {token}", parted + 1
        gaps.append(Difference(math.inf if math.isnan(gap) else gap, place))
    note = f"{out_of(parted, len(gaps), 'answer', 'parts', 'part')}, between tokens as likely" if parted else ""
    return max(gaps)._replace(note=note)


def _parting(one: Sequence[int], other: Sequence[int], *, end: int) -> tuple[int, tuple[int, int]] | None:
    """Where two answers begin to differ, and the tokens with which they do.

    >>> _parting([5, 6], [5, 6], end=2), _parting([5, 6], [5, 7], end=2), _parting([5], [5, 7], end=2)
    (None, (1, (6, 7)), (1, (2, 7)))
    """
    pairs = enumerate(zip_longest(one, other, fillvalue=end))
    return next(((place, pair) for place, pair in pairs if pair[0] != pair[1]), None)


def _gap(got: Float[Tensor, "rows length features"], wanted: Float[Tensor, "rows length features"], *,
         real: Bool[Tensor, "rows length"] | None = None) -> tuple[float, int, int]:
    """The largest difference between two tensors where they are real, by the largest number; its row and its place."""
    known = torch.ones_like(wanted[..., 0], dtype=torch.bool) if real is None else real
    gaps, sizes = (x.abs().amax(-1).where(known, 0.0) for x in (got - wanted, wanted))
    row, place = divmod(int(gaps.nan_to_num(nan=math.inf).argmax()), gaps.shape[1])
    size = float(gaps[row, place] / sizes.max().clamp(min=torch.finfo(sizes.dtype).tiny))
    return (math.inf if math.isnan(size) else size), row, place


@contextmanager
def _exact_products() -> Iterator[None]:
    """A GPU may round what it multiplies to ten bits: fast, and too coarse to tell a fault from the rounding.

    torch knows one precision for all threads: one check at a time sets it and puts it back.
    """
    with _PRECISION:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
