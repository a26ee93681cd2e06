"""The draw of `draw.py` in one kernel: one program reads a row of logits a few times, and nothing else is launched.

At one row the twenty small operations of the open form take a third as long as the whole model before them.
"""

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["draw", "serves"]

PART = 16_384  # logits that are looked at together: few strides over a vocabulary, as each waits for the one before


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
    _draw[(rows,)](
        logits, uniform, tokens, chances, vocabulary, logits.stride(0), 1.0 if temperature == 0 else temperature, kept,
        0.0 if min_p is None else min_p, N=PART, GREEDY=temperature == 0, TOP=kept < vocabulary,
        HALF=logits.dtype == torch.bfloat16, num_warps=32)
    return tokens, chances


if triton is not None:

    @triton.jit
    def _draw(logits_, uniform_, tokens_, chances_, vocabulary, stride, temperature, kept, least, N: tl.constexpr,
              GREEDY: tl.constexpr, TOP: tl.constexpr, HALF: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        logits_ += row * stride
        largest, total, best = float("-inf"), 0.0, 0
        for start in range(0, vocabulary, N):
            j = start + tl.arange(0, N)
            x = tl.load(logits_ + j, mask=j < vocabulary, other=float("-inf")).to(tl.float32)
            top, place = tl.max(x, 0, return_indices=True)
            best = tl.where(top > largest, start + place, best)
            larger = tl.maximum(largest, top)
            total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
            largest = larger
        if GREEDY:
            tl.store(tokens_ + row, best)
            tl.store(chances_ + row, -tl.log(total))
            return

        # The k-th largest number, bit by bit from the highest: the largest one that at least k numbers reach.
        reached = -2147483648  # every number reaches it
        if TOP:
            for step in tl.static_range(16 if HALF else 32):
                if step == 0:  # the highest bit is the sign, set in what is negative
                    tried = 0
                else:
                    tried = reached + (1 << (31 - step))
                count = 0
                for start in range(0, vocabulary, N):
                    j = start + tl.arange(0, N)
                    x = tl.load(logits_ + j, mask=j < vocabulary, other=float("-inf")).to(tl.float32)
                    count += tl.sum(((_ordered(x) >= tried) & (j < vocabulary)).to(tl.int32), 0)
                reached = tl.where(count >= kept, tried, reached)

        weight, last = 0.0, 0
        for start in range(0, vocabulary, N):
            w, j = _weights(logits_, start, vocabulary, largest, temperature, reached, least, N)
            weight += tl.sum(w, 0)
            last = tl.maximum(last, tl.max(tl.where(w > 0.0, j, 0), 0))
        target = (tl.load(uniform_ + row) * weight).to(tl.float32)
        before, chosen = 0.0, 0
        for start in range(0, vocabulary, N):
            w, j = _weights(logits_, start, vocabulary, largest, temperature, reached, least, N)
            ends = before + tl.cumsum(w, 0)
            chosen += tl.sum(((ends <= target) & (j < vocabulary)).to(tl.int32), 0)
            before += tl.sum(w, 0)
        chosen = tl.minimum(chosen, last)  # sums in another order may end a little below their whole
        x = tl.load(logits_ + chosen).to(tl.float32)
        tl.store(tokens_ + row, chosen)
        tl.store(chances_ + row, x - largest - tl.log(total))

    @triton.jit
    def _weights(logits_, start, vocabulary, largest, temperature, reached, least, N: tl.constexpr):
        j = start + tl.arange(0, N)
        x = tl.load(logits_ + j, mask=j < vocabulary, other=float("-inf")).to(tl.float32)
        w = tl.exp((x - largest) / temperature)
        return tl.where((_ordered(x) >= reached) & (w >= least) & (j < vocabulary), w, 0.0), j

    @triton.jit
    def _ordered(x):
        """Integers in the order of the numbers."""
        bits = x.to(tl.int32, bitcast=True)
        return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
