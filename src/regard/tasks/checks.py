"""What must hold of every checkpoint, shown on one: the same thing asked in two ways gets the same answer.

It stands beside the tasks, above `generate` and `look`: it searches, and it needs to know where the attentions are.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.generate.beam import Beam, beam
from regard.generate.sample import Sampling, gather, sample
from regard.look.watch import sites
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attend import Attend, Attended
from regard.nn.mask import Mask
from regard.tasks.translate import Translate

__all__ = ["Check", "Sentences", "checks", "sentences"]

NEAR = 1e-5  # of the largest number: what sums of float32 in another order may differ by
EXACT = 0.0  # where the order of the sums is the same
MOST, LONGEST = 8, 24  # sentences, and tokens of each: enough for every shape, and a matter of seconds
MORE_PADDING = 5
CACHES = ("growing", "fixed")


@dataclass(frozen=True)
class Sentences:
    """What a model is asked: sources with their end, and what its decoder reads, which begins with the start."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    pad: int
    end: int


class Difference(NamedTuple):
    """How large, as a share of the largest number there was, and where."""

    size: float
    place: str


@dataclass(frozen=True)
class Check:
    """One thing that must hold, and how far this model is from it."""

    name: str
    otherwise: str
    """What is wrong with a model of which it does not hold."""
    tolerance: float
    difference: float
    place: str
    """Where the largest difference is."""

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance  # of what is not a number, nothing holds


def sentences(task: Translate) -> Sentences:
    """Of the validation set, of all lengths; or made up, where a run has come without its data."""
    pairs = next(iter(task.pairs.values()), [])[: 8 * MOST]
    by_length = sorted((p for p in pairs if p.source.strip() and p.target.strip()), key=lambda p: len(p.source))
    chosen = by_length[:: max(1, len(by_length) // MOST)][:MOST]
    sources = task.source_tokens.encode([pair.source for pair in chosen]) or _made_up(len(task.source_tokens))
    targets = task.target_tokens.encode([pair.target for pair in chosen]) or _made_up(len(task.target_tokens))
    return Sentences([[*row[:LONGEST], task.source_tokens.end] for row in sources],
                     [[task.target_tokens.start, *row[:LONGEST]] for row in targets],
                     task.source_tokens.pad, task.target_tokens.end)


def _made_up(vocabulary: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    lengths = range(2, LONGEST, LONGEST // MOST)
    return [torch.randint(3, vocabulary, (length,), generator=random).tolist() for length in lengths]


def checks(model: EncoderDecoder, asked: Sentences) -> Iterator[Check]:
    """All of them, one after the other."""
    for name, otherwise, tolerance, measure in CHECKS:
        with torch.no_grad(), _exact_products():
            difference = measure(model, asked)
        yield Check(name, otherwise, tolerance, *difference)


# The checks. Each asks in a way that leaves the others' questions out.


def batch_is_single(model: EncoderDecoder, asked: Sentences) -> Difference:
    source, target = _filled(model, asked.sources), _filled(model, asked.targets)
    alone = [_logits(model, source[[row]], target[[row]], asked.pad) for row in range(len(source))]
    size, row, token = _gap(_logits(model, source, target, asked.pad), torch.cat(alone))
    return Difference(size, f"sentence {row}, token {token}")


def padded_is_unpadded(model: EncoderDecoder, asked: Sentences) -> Difference:
    found, more = [], [asked.pad] * MORE_PADDING
    for number, (source, target) in enumerate(zip(asked.sources, asked.targets, strict=True)):
        bare = _logits(model, _filled(model, [source]), _filled(model, [target]), asked.pad)
        padded = _logits(model, _filled(model, [[*source, *more]]), _filled(model, [[*target, *more]]), asked.pad)
        size, _, token = _gap(padded[:, : len(target)], bare)
        found.append(Difference(size, f"sentence {number}, token {token}"))
    return max(found)


def cache_is_none(model: EncoderDecoder, asked: Sentences) -> Difference:
    """The first half of the tokens at once, the others one by one."""
    source, target = _padded(model, asked.sources, asked.pad), _padded(model, asked.targets, asked.pad)
    whole, half = _logits(model, source, target, asked.pad), target.shape[1] // 2
    found = []
    for kind in CACHES:
        state = _begin(model, source, asked.pad, kind, target.shape[1])
        parts = [target[:, :half], *target[:, half:].split(1, dim=1)]
        stepped = torch.cat([model.step(tokens, state) for tokens in parts], dim=1)
        size, row, token = _gap(model.logits(stepped), whole, real=target != asked.pad)
        found.append(Difference(size, f"sentence {row}, token {token}, {kind} cache"))
    return max(found)


def reordered_is_fresh(model: EncoderDecoder, asked: Sentences) -> Difference:
    """Two beams for each source, which change places half-way: each goes on from what the other has read."""
    source, target = _filled(model, asked.sources), _filled(model, asked.targets)
    beams = torch.stack([target, target.roll(1, 0)], dim=1).flatten(0, 1)
    swapped = torch.arange(len(beams), device=beams.device) ^ 1
    half = beams.shape[1] // 2
    read = torch.cat([beams[swapped, :half], beams[:, half:]], dim=1)
    fresh = _logits(model, source.repeat_interleave(2, 0), read, asked.pad)[:, half:]
    found = []
    for kind in CACHES:
        state = _begin(model, source, asked.pad, kind, beams.shape[1])
        state.reorder(torch.arange(len(source), device=source.device).repeat_interleave(2))
        model.step(beams[:, :half], state)
        state.reorder(swapped)
        stepped = torch.cat([model.step(tokens, state) for tokens in beams[:, half:].split(1, dim=1)], dim=1)
        size, row, token = _gap(model.logits(stepped), fresh)
        found.append(Difference(size, f"sentence {row // 2}, beam {row % 2}, token {half + token}, {kind} cache"))
    return max(found)


def beam_of_one_is_greedy(model: EncoderDecoder, asked: Sentences) -> Difference:
    """Where the two part, it counts by how much the one's next token is likelier than the other's."""
    source = _padded(model, asked.sources, asked.pad)
    memory, longest = model.encode(source, Mask(keys=source != asked.pad)), 2 * source.shape[1]
    prompt = torch.tensor([target[:1] for target in asked.targets], device=source.device)
    searched = beam(model, prompt, memory=memory, how=Beam(end=asked.end, longest=longest, size=1))
    greedy = gather(sample(model, prompt, memory=memory, how=Sampling(
        end=asked.end, longest=longest, temperature=0.0)), end=asked.end)
    found = []
    for row, (answers, wanted) in enumerate(zip(searched, greedy, strict=True)):
        if not answers:
            return Difference(math.inf, f"sentence {row}: its probabilities are not numbers")
        parted = _parting(answers[0].tokens, wanted.tokens, end=asked.end)
        if parted is None:
            gap = abs(answers[0].log_probability - wanted.log_probability) / max(1.0, abs(wanted.log_probability))
            found.append(Difference(gap, f"sentence {row}, log-probability of the answer"))
        else:
            token, choices = parted
            read = torch.tensor([[*asked.targets[row][:1], *wanted.tokens[:token]]], device=source.device)
            chances = _logits(model, source[[row]], read, asked.pad)[0, -1].log_softmax(-1)[list(choices)]
            found.append(Difference(float(chances.diff().abs()), f"sentence {row}, token {token}"))
    return max(found)


def fused_is_explicit(model: EncoderDecoder, asked: Sentences) -> Difference:
    """Every attention of a whole pass and of a stepped one, on the very tensors it is given."""
    found = []

    def compare(attend: Attend, inputs: tuple[Tensor, ...], options: dict[str, Any], output: Attended, *,
                site: str) -> None:
        explicit = Attend.forward(attend, *inputs, **options).context
        size, *_ = _gap(output.context.flatten(0, 1), explicit.flatten(0, 1))
        found.append(Difference(size, site))

    hooks = [attend.register_forward_hook(partial(compare, site=site), with_kwargs=True)
             for site, attend in sites(model).items()]
    try:
        cache_is_none(model, asked)
    finally:
        for hook in hooks:
            hook.remove()
    return max(found)


def future_is_unseen(model: EncoderDecoder, asked: Sentences) -> Difference:
    """After each token in turn, all that follow are changed for others."""
    found = []
    for number, (source, target) in enumerate(zip(asked.sources, asked.targets, strict=True)):
        length = len(target)
        sources, same = _filled(model, [source] * length), _filled(model, [target] * length)
        past = torch.ones(length, length, dtype=torch.bool, device=same.device).tril()
        changed = same.where(past, (same + 1) % model.decoder.output.out_features)
        before, after = (_logits(model, sources, tokens, asked.pad) for tokens in (same, changed))
        size, _, token = _gap(after, before, real=past)
        found.append(Difference(size, f"sentence {number}, token {token}"))
    return max(found)


def shuffled_is_shuffled(model: EncoderDecoder, asked: Sentences) -> Difference:
    """The encoder, with every token told that it stands at position 0."""
    source = _filled(model, asked.sources)
    nowhere = torch.zeros_like(source[:1])
    order = torch.randperm(source.shape[1], generator=torch.Generator().manual_seed(0)).to(source.device)

    def states(tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        return model.encoder(model.encoder.embed(tokens, nowhere), positions=nowhere)  # type: ignore[no-any-return]

    size, row, token = _gap(states(source[:, order]), states(source)[:, order])
    return Difference(size, f"sentence {row}, token {int(order[token])}")


CHECKS: tuple[tuple[str, str, float, Callable[[EncoderDecoder, Sentences], Difference]], ...] = (
    ("batch = single", "what a sentence gets depends on the others in its batch", NEAR, batch_is_single),
    ("padded = unpadded", "padding is seen", NEAR, padded_is_unpadded),
    ("cache = none", "token by token the model says something else than at once", NEAR, cache_is_none),
    ("reordered = fresh", "a beam that changes places goes on from another's past", NEAR, reordered_is_fresh),
    ("beam 1 = greedy", "a beam search of size 1 does not take the likeliest token", NEAR, beam_of_one_is_greedy),
    ("fused = explicit", "the fast attention is not the one that is defined", NEAR, fused_is_explicit),
    ("no look into the future", "a token's output depends on later tokens", EXACT, future_is_unseen),
    ("equivariant without positions", "shuffled words give other states", NEAR, shuffled_is_shuffled),
)


# What they share.


def _logits(model: EncoderDecoder, source: Tensor, target: Tensor, pad: int) -> Float[Tensor, "rows length vocabulary"]:
    return model.logits(model(source, target, mask=Mask(keys=source != pad)))


def _begin(model: EncoderDecoder, source: Tensor, pad: int, kind: str, capacity: int) -> Any:
    memory = model.encode(source, Mask(keys=source != pad))
    return model.begin(len(source), memory, capacity=capacity if kind == "fixed" else None)


def _padded(model: EncoderDecoder, rows: Sequence[Sequence[int]], pad: int) -> Int[Tensor, "rows length"]:
    return torch.tensor(list(zip(*zip_longest(*rows, fillvalue=pad), strict=True)), device=_device(model))


def _filled(model: EncoderDecoder, rows: Sequence[Sequence[int]]) -> Int[Tensor, "rows length"]:
    """Of one length without padding: shorter rows begin again."""
    longest = max(map(len, rows))
    return torch.tensor([[row[place % len(row)] for place in range(longest)] for row in rows], device=_device(model))


def _device(model: EncoderDecoder) -> torch.device:
    return next(model.parameters()).device


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
    """A GPU may round what it multiplies to ten bits: fast, and too coarse to tell a fault from the rounding."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
