"""Attention over short sequences on a CPU: the heads of all rows in two batched products, and a softmax between them.

torch's own kernel goes through rows and heads one by one, which is slower the shorter they are: at 24 to 64 tokens
this takes four fifths of its time, and where there is padding, two thirds. Compared with the definition step by step,
the scores come out of their product scaled and masked.
"""

import torch
from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.kernels.dropout import dropped
from regard.kernels.kernel import Kernel

__all__ = ["KERNEL"]

MIN_KEYS = 16  # keys; torch's softmax takes fewer one by one
MAX_KEYS, MAX_TRAINED_KEYS = 64, 128  # from there on torch's own kernel is faster, whose gradient is slow


def serves(call: AttentionCall) -> bool:
    """A sequence with itself, and no mask but padding."""
    q, k, v, mask = call.q, call.k, call.v, call.mask
    return (
        call.positions is None and call.bias is None and not isinstance(call.scale, Tensor)
        and q.dtype == k.dtype == torch.float32 and q.shape == k.shape == v.shape
        and MIN_KEYS <= k.shape[2] <= (MAX_TRAINED_KEYS if q.requires_grad else MAX_KEYS)
        and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
        and not mask.causal and mask.window is None and mask.documents is None and mask.blind is None)


def run(call: AttentionCall) -> Tensor:
    q, k, v, mask = call.q, call.k, call.v, call.mask
    rows, heads, length, _ = q.shape
    added = q.new_zeros(1, 1, length)
    if mask.keys is not None:
        # Not -inf: a row that may see nothing would be 0/0, and its gradient not a number.
        real = mask.keys.expand(rows, -1)
        added = added.where(real[:, None], torch.finfo(q.dtype).min).repeat_interleave(heads, 0)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    weights = torch.baddbmm(added, q, k.mT, alpha=call.factor).softmax(-1)
    context = torch.bmm(dropped(weights, call.dropout), v).view(rows, heads, length, -1)
    return context if mask.keys is None else context * mask.keys.any(1)[:, None, None, None].to(q.dtype)


KERNEL = Kernel("attention.batched", serves, run, device="cpu")
