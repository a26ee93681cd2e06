"""Logits turned into their own gradient where they lie, on the way to a loss.

Taken apart, a softmax and its gradient read the logits three times and write them as float32 once or twice. On a GPU
one program goes over a row here, which is short enough to come from the cache the second time: each number is read
from memory once and written once, in its own precision.
"""

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["errors_"]

LOGITS_PER_STEP = 8192  # logits that a program works on at a time
WARPS = 32  # two programs fill a multiprocessor: all rows under way fit into the cache


@torch.library.custom_op("regard::logits_to_errors", mutates_args={"logits"})
def errors_(logits: Tensor, place: Tensor, amount: float) -> tuple[Tensor, Tensor]:
    """Logits (rows, vocabulary) become softmax(logits), less an amount at one place of each row.

    Gives log Σ e^logit of each row, and the logit at its place, in float32.
    """
    whole = logits.float()
    total, own = whole.logsumexp(-1), whole.gather(1, place[:, None])[:, 0]
    error = (whole - total[:, None]).exp_()
    logits.copy_(error.scatter_add_(1, place[:, None], error.new_full((len(place), 1), -amount)))
    return total, own


@errors_.register_fake
def _(logits: Tensor, place: Tensor, amount: float) -> tuple[Tensor, Tensor]:
    rows = logits.new_empty(len(place), dtype=torch.float32)
    return rows, torch.empty_like(rows)


if triton is not None:

    @triton.jit
    def _errors(logits, place, total, own, amount, vocabulary, stride, N: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        logits += row * stride
        target = tl.load(place + row)
        largest, sums = -float("inf"), tl.zeros([N], tl.float32)
        for start in range(0, vocabulary, N):
            columns = start + tl.arange(0, N)
            x = tl.load(logits + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(largest, tl.max(x, 0))
            sums = sums * tl.exp(largest - larger) + tl.exp(x - larger)
            largest = larger
        log_sum = largest + tl.log(tl.sum(sums, 0))
        tl.store(total + row, log_sum)
        tl.store(own + row, tl.load(logits + target).to(tl.float32))
        tl.debug_barrier()  # the target's logit is read before another thread overwrites it
        for start in range(0, vocabulary, N):
            columns = start + tl.arange(0, N)
            x = tl.load(logits + columns, mask=columns < vocabulary, other=0.0).to(tl.float32)
            error = tl.exp(x - log_sum) - tl.where(columns == target, amount, 0.0)
            tl.store(logits + columns, error.to(logits.dtype.element_ty), mask=columns < vocabulary)

    @errors_.register_kernel("cuda")
    def _(logits: Tensor, place: Tensor, amount: float) -> tuple[Tensor, Tensor]:
        total = logits.new_empty(len(place), dtype=torch.float32)
        own = torch.empty_like(total)
        _errors[(len(place),)](logits, place.contiguous(), total, own, amount, logits.shape[1], logits.stride(0),
                               N=LOGITS_PER_STEP, num_warps=WARPS)
        return total, own
