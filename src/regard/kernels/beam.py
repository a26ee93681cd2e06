"""The work of a beam search between two steps of its model, in two kernels.

In plain torch (`Search.choose`) it takes some sixty launches, as long as the model itself. One program finds the best
tokens of a row; then one compares those of a sentence's beams and writes down which ones continue.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels import row_reduce

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["choose", "serves"]

LANES = 2_048  # numbers of a row that are looked at together
MAX_CANDIDATES = 256  # candidates of a sentence, each compared with each
TOKENS_PER_PROGRAM = 64  # tokens of a hypothesis that are moved together


def serves(logits: Float[Tensor, "rows vocabulary"], size: int) -> bool:
    return (triton is not None and logits.is_cuda and logits.stride(1) == 1 and 2 * size * size <= MAX_CANDIDATES
            and 2 * size <= logits.shape[1])


def choose(
    logits: Float[Tensor, "rows vocabulary"], *, tokens: Tensor, totals: Tensor, ended_tokens: Tensor,
    ended_scores: Tensor, ended_totals: Tensor, done: Tensor, length: Tensor, start: int, end: int, longest: int,
    length_penalty: float,
) -> Int[Tensor, " rows"]:
    """Advance everything but `length` by a token, in place; return the old row that each row continues."""
    sources, size, capacity = tokens.shape
    rows, vocabulary = logits.shape
    count = 2 * size  # however many of the best end here, enough live on
    values = torch.empty(rows, count, dtype=torch.float32, device=logits.device)
    picks = torch.empty(rows, count, dtype=torch.int32, device=logits.device)
    parents = torch.empty(rows, dtype=torch.long, device=logits.device)
    _best[(rows,)](logits, totals, values, picks, vocabulary, logits.stride(0), COUNT=count, N=LANES,
                   HEIGHT=triton.next_power_of_2(triton.cdiv(vocabulary, LANES)), num_warps=8)
    _weigh[(sources,)](
        values, picks, tokens, totals, ended_tokens, ended_scores, ended_totals, done, length, parents, capacity, start,
        end, longest, length_penalty, SIZE=size, S=triton.next_power_of_2(size), COUNT=count,
        M=triton.next_power_of_2(size * count), PART=TOKENS_PER_PROGRAM, num_warps=8)
    return parents


if triton is not None:

    @triton.jit
    def _best(logits_, totals_, values_, picks_, vocabulary, stride, COUNT: tl.constexpr, N: tl.constexpr,
              HEIGHT: tl.constexpr):
        """The best tokens of a row in order, each with the log-probability of its hypothesis. Of equals the first."""
        row = tl.program_id(0).to(tl.int64)
        logits_ += row * stride
        lane = tl.arange(0, N)
        tops, places, sums = row_reduce.scan(logits_, vocabulary, N)
        largest = tl.max(tops, 0)
        finite = tl.where(largest == float("-inf"), 0.0, largest)
        base = tl.load(totals_ + row) - finite - tl.log(tl.sum(sums * tl.exp(tops - finite), 0))
        for i in tl.static_range(COUNT):
            top = tl.max(tops, 0)
            place = tl.min(tl.where(tops == top, places, vocabulary - 1), 0)
            value = tl.where(top == float("-inf"), top, top + base)
            # NaN has no rank: count it as -inf, so that no answer is found and no rows are mixed up.
            tl.store(values_ + row * COUNT + i, tl.where(value == value, value, float("-inf")))
            tl.store(picks_ + row * COUNT + i, place)
            # The lane that had it shows its next: smaller, or equal and later.
            mine = place % N
            j = mine + N * tl.arange(0, HEIGHT)
            x = row_reduce.load(logits_, j, vocabulary)
            left = (j < vocabulary) & ((x < top) | ((x == top) & (j > place)))
            next = tl.max(tl.where(left, x, float("-inf")), 0)
            there = tl.min(tl.where(left & (x == next), j, vocabulary - 1), 0)
            tops, places = tl.where(lane == mine, next, tops), tl.where(lane == mine, there, places)

    @triton.jit
    def _weigh(values_, picks_, tokens_, totals_, ended_tokens_, ended_scores_, ended_totals_, done_, length_, parents_,
               capacity, start, end, longest, penalty, SIZE: tl.constexpr, S: tl.constexpr, COUNT: tl.constexpr,
               M: tl.constexpr, TOKENS_PER_PROGRAM: tl.constexpr):
        """All candidates of a sentence, m of them, and its finished hypotheses, s of them, by their ranks."""
        source = tl.program_id(0).to(tl.int64)
        m, s = tl.arange(0, M), tl.arange(0, S)
        real, slot = m < SIZE * COUNT, s < SIZE
        total = tl.load(values_ + source * SIZE * COUNT + m, mask=real, other=float("-inf"))
        token = tl.load(picks_ + source * SIZE * COUNT + m, mask=real, other=0).to(tl.int64)
        beam = m // COUNT
        better = (total[None, :] > total[:, None]) | ((total[None, :] == total[:, None]) & (m[None, :] < m[:, None]))
        rank = tl.sum((better & real[None, :]).to(tl.int32), 1)
        candidate = real & (rank < COUNT)

        length = tl.load(length_)
        generated = length + 1 - start
        worth = tl.exp2(penalty * tl.log2(generated.to(tl.float32)))  # what totals are divided by
        ends = candidate & ((token == end) | (generated == longest))
        done = tl.load(done_ + source) != 0
        joins = ends & (rank < SIZE) & ~done
        score = total / worth

        # The finished: the old ones, and those that join them. Of equals the old ones stay.
        old = tl.load(ended_scores_ + source * SIZE + s, mask=slot, other=float("-inf"))
        old_total = tl.load(ended_totals_ + source * SIZE + s, mask=slot, other=float("-inf"))
        above = (old[None, :] > old[:, None]) | ((old[None, :] == old[:, None]) & (s[None, :] < s[:, None]))
        old_rank = tl.sum((above & slot[None, :]).to(tl.int32), 1)
        old_rank += tl.sum(((score[None, :] > old[:, None]) & joins[None, :]).to(tl.int32), 1)
        new_rank = tl.sum((better & joins[None, :]).to(tl.int32), 1)  # all are as long: by totals as by scores
        new_rank += tl.sum(((old[None, :] >= score[:, None]) & slot[None, :]).to(tl.int32), 1)
        stays, joins = slot & (old_rank < SIZE), joins & (new_rank < SIZE)

        # The living: those that do not end, the best first; should they be too few, others that count for nothing.
        alive = candidate & ~ends
        order = rank + tl.where(alive, 0, M)
        place = tl.sum(((order[None, :] < order[:, None]) & candidate[None, :]).to(tl.int32), 1)
        lives = candidate & (place < SIZE)

        # For each slot, who comes there: from which beam, with which token.
        into = (place[None, :] == s[:, None]) & lives[None, :]
        parent = tl.sum(tl.where(into, beam[None, :], 0), 1)
        newest = tl.sum(tl.where(into, token[None, :], 0), 1)
        living = tl.sum(tl.where(into, tl.where(alive, total, float("-inf"))[None, :], 0.0), 1)
        joined = (new_rank[None, :] == s[:, None]) & joins[None, :]
        fresh = tl.sum(joined.to(tl.int32), 1) > 0
        joined_beam = tl.sum(tl.where(joined, beam[None, :], 0), 1)
        joined_token = tl.sum(tl.where(joined, token[None, :], 0), 1)
        kept = tl.sum(tl.where((old_rank[None, :] == s[:, None]) & stays[None, :], s[None, :], 0), 1)
        worst = (tl.sum(tl.where(stays & (old_rank == SIZE - 1), old, 0.0), 0)
                 + tl.sum(tl.where(joins & (new_rank == SIZE - 1), score, 0.0), 0))
        best = tl.sum(tl.where(s == 0, living, 0.0), 0)
        # A live hypothesis is judged by its score as it stands; a longer one could yet do better, rarely.
        done = done | (best / worth <= worst) | (generated == longest)

        tl.debug_barrier()  # all has been read that is written now
        tl.store(totals_ + source * SIZE + s, living, mask=slot)
        tl.store(parents_ + source * SIZE + s, source * SIZE + parent, mask=slot)
        tl.store(ended_scores_ + source * SIZE + old_rank, old, mask=stays)
        tl.store(ended_scores_ + source * SIZE + new_rank, score, mask=joins)
        tl.store(ended_totals_ + source * SIZE + old_rank, old_total, mask=stays)
        tl.store(ended_totals_ + source * SIZE + new_rank, total, mask=joins)
        tl.store(done_ + source, done)

        tokens_ += source * SIZE * capacity
        ended_tokens_ += source * SIZE * capacity
        for first in range(0, capacity, TOKENS_PER_PROGRAM):
            j = first + tl.arange(0, TOKENS_PER_PROGRAM)[None, :]
            inside = slot[:, None] & (j < capacity)
            here = j == length
            moved = tl.load(tokens_ + parent[:, None] * capacity + j, mask=inside, other=0)
            ended = tl.load(ended_tokens_ + kept[:, None] * capacity + j, mask=inside, other=0)
            added = tl.load(tokens_ + joined_beam[:, None] * capacity + j, mask=inside & fresh[:, None], other=0)
            moved = tl.where(here, newest[:, None], moved)
            ended = tl.where(fresh[:, None], tl.where(here, joined_token[:, None], added), ended)
            tl.debug_barrier()
            tl.store(tokens_ + s[:, None] * capacity + j, moved, mask=inside)
            tl.store(ended_tokens_ + s[:, None] * capacity + j, ended, mask=inside)
