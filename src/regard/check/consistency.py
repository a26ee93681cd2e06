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

from regard.check.probe import Padded, Probe, Rows
from regard.generate.beam import Beam, Hypothesis, beam
from regard.generate.detokenize import UNFINISHED, Completion, Decode, stream_texts
from regard.generate.next_token import Drawn
from regard.generate.sampler import Sampling, gather, sample
from regard.generate.steps import State, Steps
from regard.look.thread_hooks import in_this_thread
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
    inputs, rows = asked.filled(asked.inputs), asked.filled_rows(asked.rows)
    every = torch.arange(len(rows), device=rows.device)
    alone = [asked.logits(inputs.pick(row), rows[row]) for row in every.split(1)]
    size, row, place = _gap(asked.logits(inputs, rows), torch.cat(alone))
    return Difference(size, f"row {row}, place {place}")


def padded_is_unpadded(asked: Probe) -> Difference:
    found = []
    for number, (one, row) in enumerate(zip(asked.inputs, asked.rows, strict=True)):
        bare = asked.logits(asked.filled([one]), asked.filled_rows([row]))
        padded = asked.logits(asked.padded([one], more=MORE_PADDING),
                              asked.padded_rows([row], more=MORE_PADDING * _writes(asked)))
        size, _, place = _gap(padded[:, : bare.shape[1]], bare)
        found.append(Difference(size, f"row {number}, place {place}"))
    return max(found)


def cache_is_none(asked: Probe) -> Difference:
    """The first half of the tokens at once, the others one by one."""
    rows, inputs, writer = asked.padded_rows(asked.rows), asked.padded(asked.inputs), _writer(asked)
    whole, half = asked.logits(inputs, rows), rows.shape[1] // 2
    found = []
    for kind in CACHES:
        state = _begin(asked, rows, inputs, kind)
        parts = [rows[:, :half], *rows[:, half:].split(1, dim=1)]
        stepped = torch.cat([writer.step(tokens, state) for tokens in parts], dim=1)
        size, row, token = _gap(writer.logits(stepped), whole, real=rows != asked.token_pad)
        found.append(Difference(size, f"row {row}, token {token}, {kind} cache"))
    return max(found)


def reordered_is_fresh(asked: Probe) -> Difference:
    """Two beams for each row, which swap places half-way: each continues the other's past."""
    rows, inputs, writer = asked.filled_rows(asked.rows), asked.filled(asked.inputs), _writer(asked)
    beams = torch.stack([rows, rows.roll(1, 0)], dim=1).flatten(0, 1)
    swapped = torch.arange(len(beams), device=beams.device) ^ 1
    twice = torch.arange(len(rows), device=rows.device).repeat_interleave(2)
    half = beams.shape[1] // 2
    mixed = torch.cat([beams[swapped, :half], beams[:, half:]], dim=1)
    fresh = asked.logits(inputs.pick(twice), mixed)[:, half:]
    found = []
    for kind, together in product(CACHES, (False, True)):
        state = _begin(asked, rows, inputs, kind)
        if together:
            state.fan_out(2)
        else:
            state.reorder(twice)
        writer.step(beams[:, :half], state)
        state.reorder(swapped)
        stepped = torch.cat([writer.step(tokens, state) for tokens in beams[:, half:].split(1, dim=1)], dim=1)
        size, row, token = _gap(writer.logits(stepped), fresh)
        found.append(Difference(size, f"row {row // 2}, beam {row % 2}, token {half + token}, {kind} cache"))
    return max(found)


def beam_of_one_is_greedy(asked: Probe) -> Difference:
    prompts, inputs, end = [row[:1] for row in asked.rows], asked.padded(asked.inputs), _end(asked)
    longest = 2 * max(map(len, (*asked.inputs, *asked.rows)))
    searched = beam(_writer(asked), asked.filled_rows(prompts), memory=asked.remember(inputs),
                    how=Beam(end=end, longest=longest, size=1))
    if not all(searched):
        return Difference(math.inf, f"row {searched.index([])}: its probabilities are not numbers")
    greedy = gather(_greedy(asked, prompts, asked.inputs, longest), end=end)
    return _parted(asked, prompts, asked.inputs, [answers[0] for answers in searched], greedy)


def alone_is_together(asked: Probe) -> Difference:
    """Greedy answers to prompts of many lengths: each row, and the first half of it."""
    prompts = [part for row in asked.rows for part in (row, row[: -(-len(row) // 2)])]
    inputs = [one for one in asked.inputs for _ in range(2)]
    together = gather(_greedy(asked, prompts, inputs), end=_end(asked))
    alone = [gather(_greedy(asked, [prompt], [one]), end=_end(asked))[0]
             for prompt, one in zip(prompts, inputs, strict=True)]
    return _parted(asked, prompts, inputs, together, alone)


def streamed_is_whole(asked: Probe) -> Difference:
    """The text of greedy answers, piece by piece."""
    decode, end = asked.decode, _end(asked)
    assert decode is not None
    drawn = list(_greedy(asked, asked.rows, asked.inputs))
    written = [Completion(decode, end=end, longest=len(drawn)) for _ in asked.rows]
    for _ in stream_texts(drawn, written, enough=set()):
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
    for number, (row, one) in enumerate(zip(asked.rows, asked.inputs, strict=True)):
        length = len(row)
        same, inputs = asked.filled_rows([row] * length), asked.filled([one] * length)
        past = torch.ones(length, length, dtype=torch.bool, device=same.device).tril()
        before = asked.logits(inputs, same)
        after = asked.logits(inputs, same.where(past, (same + 1) % before.shape[2]))
        size, _, token = _gap(after, before, real=past)
        found.append(Difference(size, f"row {number}, token {token}"))
    return max(found)


def shuffled_is_shuffled(asked: Probe) -> Difference:
    """All places see one another, and all are at position 0."""
    blind = asked.blind
    assert blind is not None
    inputs = asked.filled(asked.inputs).values if _reads(asked) else asked.filled_rows(asked.rows)
    states = blind(inputs, None)
    order = torch.randperm(states.shape[1], generator=torch.Generator().manual_seed(0)).to(states.device)
    size, row, place = _gap(blind(inputs, order), states[:, order])
    return Difference(size, f"row {row}, place {int(order[place])}")


def _always(asked: Probe) -> bool:
    return True


def _writes(asked: Probe) -> bool:
    return asked.writer is not None


def _reads(asked: Probe) -> bool:
    return any(map(len, asked.inputs))


def _has_padding(asked: Probe) -> bool:
    return _writes(asked) or asked.pad is not None


def _speaks(asked: Probe) -> bool:
    return asked.writer is not None and asked.decode is not None


def _attends(asked: Probe) -> bool:
    return bool(sites(asked.model))


def _can_be_blind(asked: Probe) -> bool:
    return asked.blind is not None


CHECKS: tuple[tuple[str, str, float, Callable[[Probe], Difference], Callable[[Probe], bool]], ...] = (
    ("batch = single", "what a row gets depends on the others in its batch", NEAR, batch_is_single, _always),
    ("padded = unpadded", "padding is seen", NEAR, padded_is_unpadded, _has_padding),
    ("cache = none", "token by token the model says something else than at once", NEAR, cache_is_none, _writes),
    ("reordered = fresh", "a beam that changes places goes on from another's past", NEAR, reordered_is_fresh, _writes),
    ("beam 1 = greedy", "a beam search of size 1 does not take the likeliest token", NEAR, beam_of_one_is_greedy,
     _writes),
    ("alone = in a batch", "an answer depends on the others in its batch", ALIKE, alone_is_together, _writes),
    ("streamed = whole", "text that comes piece by piece is another", EXACT, streamed_is_whole, _speaks),
    ("fused = explicit", "the fast attention is not the one that is defined", NEAR, fused_is_explicit, _attends),
    ("no look into the future", "a token's output depends on later tokens", EXACT, future_is_unseen, _writes),
    ("equivariant without positions", "shuffled places give other states", NEAR, shuffled_is_shuffled, _can_be_blind),
)


# Shared code.


def _writer(asked: Probe) -> Steps:
    assert asked.writer is not None
    return asked.writer


def _begin(asked: Probe, rows: Int[Tensor, "rows length"], inputs: Padded, kind: str) -> State:
    capacity = rows.shape[1] if kind == "fixed" else None
    state: State = _writer(asked).begin(len(rows), asked.remember(inputs), capacity=capacity)
    return state


def _end(asked: Probe) -> int:
    assert asked.end is not None
    return asked.end


def _greedy(asked: Probe, prompts: Rows, inputs: Sequence[Tensor], longest: int = WRITTEN) -> Iterator[Drawn]:
    how = Sampling(end=_end(asked), longest=longest, temperature=0.0)
    return sample(_writer(asked), asked.padded_rows(prompts), lengths=[len(prompt) for prompt in prompts], how=how,
                  memory=asked.remember(asked.padded(inputs)))


def _parted(asked: Probe, prompts: Rows, inputs: Sequence[Tensor], found: Sequence[Hypothesis],
            wanted: Sequence[Hypothesis]) -> Difference:
    """Where two answers part, it counts by how much the one's next token is likelier than the other's."""
    gaps, parted = [], 0
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        gap = abs(one.log_probability - other.log_probability) / max(1.0, abs(other.log_probability))
        place = f"row {row}, log-probability of the answer"
        if parting := _parting(one.tokens, other.tokens, end=_end(asked)):
            token, choices = parting
            rows, read = asked.filled_rows([[*prompts[row], *other.tokens[:token]]]), asked.filled([inputs[row]])
            gap = float(asked.logits(read, rows)[0, -1, list(choices)].diff().abs())
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
        products, recurrent = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False  # of cuDNN's recurrent cells and convolutions
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = recurrent
