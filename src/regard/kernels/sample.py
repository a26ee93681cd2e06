"""`generate/next_token.py` in one kernel: one program reads a row of logits a few times, and nothing else is launched.

At one row the twenty small operations of the open form take a third as long as the whole model before them.
"""

import torch
from torch import Tensor

from regard.kernels import row_reduce

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["draw", "serves"]

ROOM = 256  # of the likeliest tokens that are looked at by themselves
LOGITS_PER_TILE = 8_192  # logits that are looked at together: what a program of 32 warps holds in its registers


def serves(logits: Tensor, top_p: float | None) -> bool:
    """Whether the kernel can do it. A nucleus needs the tokens in order, which it never has."""
    return triton is not None and logits.is_cuda and logits.stride(1) == 1 and (top_p is None or top_p >= 1)


def draw(logits: Tensor, uniform: Tensor, *, temperature: float, top_k: int | None,
         min_p: float | None) -> tuple[Tensor, Tensor]:
    """A token for each row, and its log-probability. Tokens as likely as the k-th likeliest may all be drawn."""
    rows, vocabulary = logits.shape
    tokens = torch.empty(rows, dtype=torch.long, device=logits.device)
    chances = torch.empty(rows, dtype=torch.float32, device=logits.device)
    kept = vocabulary if top_k is None else min(top_k, vocabulary)
    # The likeliest, side by side: their places and their weights.
    few = torch.empty(rows, ROOM, dtype=torch.int32, device=logits.device)
    heavy = torch.empty(rows, ROOM, dtype=torch.float64, device=logits.device)
    _draw[(rows,)](
        logits, uniform, tokens, chances, few, heavy, vocabulary, logits.stride(0),
        1.0 if temperature == 0 else temperature, kept, 0.0 if min_p is None else min_p, N=LOGITS_PER_TILE, M=ROOM,
        GREEDY=temperature == 0, TOP=kept < vocabulary, BITS=16 if logits.dtype == torch.bfloat16 else 32,
        num_warps=32)
    return tokens, chances


if triton is not None:

    @triton.jit
    def _draw(logits_, uniform_, tokens_, chances_, few_, heavy_, vocabulary, stride, temperature, kept, least,
              N: tl.constexpr, M: tl.constexpr, GREEDY: tl.constexpr, TOP: tl.constexpr,
              BITS: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        logits_ += row * stride
        few_ += row * M
        heavy_ += row * M
        lane = tl.arange(0, N)
        tops, places, sums = row_reduce.scan(logits_, vocabulary, N)
        largest = tl.max(tops, 0)
        total = tl.sum(sums * tl.exp(tops - largest), 0)
        if GREEDY:
            tl.store(tokens_ + row, tl.min(tl.where(tops == largest, places, vocabulary - 1), 0))
            tl.store(chances_ + row, -tl.log(total))
            return

        share = tl.load(uniform_ + row).to(tl.float64)
        reached = tl.full([], -2147483648, tl.int32)  # every number reaches it
        if TOP:
            # A threshold that the maxima of k lanes reach: at least k numbers reach it, and hardly more.
            for step in tl.static_range(8):
                unit = 1 << (30 - 2 * step)
                reached += unit * _more(_thirds(_ordered(tops), reached, unit, kept <= N), kept)
            counts = tl.zeros([N], tl.int32)
            for start in range(0, vocabulary, N):
                counts += _reaches(logits_, start + lane, vocabulary, reached).to(tl.int32)
            count, before = tl.sum(counts, 0), tl.cumsum(counts, 0) - counts
            if count <= M:
                for start in range(0, vocabulary, N):
                    mine = _reaches(logits_, start + lane, vocabulary, reached)
                    tl.store(few_ + before, start + lane, mask=mine)
                    before += mine.to(tl.int32)
                tl.debug_barrier()
                chosen = _of_few(logits_, few_, heavy_, count, share, largest, temperature, kept, least, M)
            else:
                # The k-th largest number, two bits at a time from the highest: the largest that k numbers reach.
                reached = tl.full([], -2147483648, tl.int32)
                for step in tl.static_range(BITS // 2):
                    unit = 1 << (30 - 2 * step)  # in steps of it: 0, 1, 2, 3 more; four of them wrap around
                    thirds = tl.zeros([N], tl.int64)
                    for start in range(0, vocabulary, N):
                        x = _ordered(row_reduce.load(logits_, start + lane, vocabulary))
                        thirds += _thirds(x, reached, unit, start + lane < vocabulary)
                    reached += unit * _more(thirds, kept)
                chosen = _of_all(logits_, vocabulary, share, largest, temperature, reached, least, N)
        else:
            chosen = _of_all(logits_, vocabulary, share, largest, temperature, reached, least, N)
        tl.store(tokens_ + row, chosen)
        tl.store(chances_ + row, tl.load(logits_ + chosen).to(tl.float32) - largest - tl.log(total))

    @triton.jit
    def _of_few(logits_, few_, heavy_, count, share, largest, temperature, kept, least, M: tl.constexpr):
        """The draw among `count` tokens whose places stand in few_, in whatever order."""
        m = tl.arange(0, M)
        place = tl.load(few_ + m, mask=m < count, other=2147483647)
        x = tl.load(logits_ + place, mask=m < count, other=float("-inf")).to(tl.float32)
        above = tl.zeros([M], tl.int32)
        for start in tl.static_range(0, M, M // 4):
            other = start + tl.arange(0, M // 4)
            there = tl.load(few_ + other, mask=other < count, other=0)
            y = tl.load(logits_ + there, mask=other < count, other=float("-inf")).to(tl.float32)
            above += tl.sum((y[None, :] > x[:, None]).to(tl.int32), 1)
        w = tl.exp((x - largest) / temperature)
        w = tl.where((above < kept) & (w >= least) & (m < count), w, 0.0).to(tl.float64)
        tl.store(heavy_ + m, w)
        tl.debug_barrier()
        ends = tl.zeros([M], tl.float64)
        for start in tl.static_range(0, M, M // 4):
            other = start + tl.arange(0, M // 4)
            there = tl.load(few_ + other, mask=other < count, other=2147483647)
            v = tl.load(heavy_ + other)
            ends += tl.sum(tl.where(there[None, :] <= place[:, None], v[None, :], 0.0), 1)
        # The first whose end passes the target; sums in another order may end a little below their whole.
        first = tl.min(tl.where((ends > share * tl.sum(w, 0)) & (w > 0.0), place, 2147483647), 0)
        last = tl.max(tl.where(w > 0.0, place, 0), 0)
        return tl.minimum(first, last)

    @triton.jit
    def _of_all(logits_, vocabulary, share, largest, temperature, reached, least, N: tl.constexpr):
        """The draw among all that reach it."""
        lane = tl.arange(0, N)
        weights = tl.zeros([N], tl.float64)
        for start in range(0, vocabulary, N):
            weights += _weights(logits_, start + lane, vocabulary, largest, temperature, reached, least)
        target = share * tl.sum(weights, 0)
        # The part in which the running sum passes the target, and the sum before it.
        before, begin, there = target * 0.0, 0, target * 0.0
        for start in range(0, vocabulary, N):
            part = tl.sum(_weights(logits_, start + lane, vocabulary, largest, temperature, reached, least), 0)
            here = (before <= target) & (part > 0.0)
            begin, there = tl.where(here, start, begin), tl.where(here, before, there)
            before += part
        w = _weights(logits_, begin + lane, vocabulary, largest, temperature, reached, least)
        passed = tl.sum((there + tl.cumsum(w, 0) <= target).to(tl.int32), 0)
        last = tl.max(tl.where(w > 0.0, lane, 0), 0)  # sums in another order may end a little below their whole
        return begin + tl.minimum(passed, last)

    @triton.jit
    def _thirds(x, reached, unit, inside):
        """Which of three larger numbers each reaches, to be counted all at once."""
        one, two = ((x >= reached + unit) & inside).to(tl.int64), ((x >= reached + 2 * unit) & inside).to(tl.int64)
        return one + (two << 20) + (((x >= reached + 3 * unit) & inside).to(tl.int64) << 40)

    @triton.jit
    def _more(thirds, kept):
        """By how many units the number may be raised that `kept` numbers reach."""
        found = tl.sum(thirds, 0)
        more = ((found & 0xFFFFF) >= kept).to(tl.int32) + (((found >> 20) & 0xFFFFF) >= kept).to(tl.int32)
        return more + ((found >> 40) >= kept).to(tl.int32)

    @triton.jit
    def _reaches(logits_, j, vocabulary, reached):
        return (_ordered(row_reduce.load(logits_, j, vocabulary)) >= reached) & (j < vocabulary)

    @triton.jit
    def _weights(logits_, j, vocabulary, largest, temperature, reached, least):
        x = row_reduce.load(logits_, j, vocabulary)
        w = tl.exp((x - largest) / temperature)
        return tl.where((_ordered(x) >= reached) & (w >= least) & (j < vocabulary), w, 0.0).to(tl.float64)

    @triton.jit
    def _ordered(x):
        """Integers in the order of the numbers."""
        bits = x.to(tl.int32, bitcast=True)
        return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
