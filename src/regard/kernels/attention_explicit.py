"""Attention with its weights held in memory, where holding them costs less than fusing them away.

torch's fused kernel for CPUs is slow at gradients and at bfloat16, and on a GPU the general kernels walk from the first
key to the last in one program for each head. Beams that share one store of keys come here, too: each sees lines of its
own in it, which no fused kernel knows.
"""

import torch
from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.kernels.dropout import dropped
from regard.kernels.kernel import Kernel

__all__ = ["KERNEL", "collected", "repeated"]

MAX_WEIGHTS = 128 * 128  # queries times keys
FEW_QUERIES = 8  # on a CPU: then keys of bfloat16 are read in the order in which they lie
SHORT_QUERIES, MANY_KEYS = 16, 1_024  # on a GPU, where there is a gradient


def serves(call: AttentionCall) -> bool:
    q, k, places = call.q, call.k, call.positions
    if places is not None and places.visible_keys is not None:
        return True
    if q.device.type == "cpu":
        is_slow = q.requires_grad or k.dtype == torch.bfloat16
        return is_slow and q.shape[2] * k.shape[2] <= MAX_WEIGHTS
    return q.requires_grad and q.shape[2] <= SHORT_QUERIES and k.shape[2] >= MANY_KEYS


def run(call: AttentionCall) -> Tensor:
    places, scale = call.places, call.scale
    q = call.q * (scale.to(call.q.dtype) if isinstance(scale, Tensor) else scale)
    k, v = (repeated(collected(x, places.rows), q.shape[1]) for x in (call.k, call.v))
    if places.visible_keys is None:
        k, v = k.to(q.dtype), v.to(q.dtype)
    else:  # one store for all beams is larger than their queries
        q = q.to(k.dtype)
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= FEW_QUERIES:
        scores = (k @ q.mT).mT  # twice as fast
    else:
        scores = q @ k.mT
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if call.bias is not None:
        scores = scores + call.bias(places.queries, places.keys)
    if call.temperature != 1.0:
        scores = scores / call.temperature
    allowed = call.mask.dense(places.queries, places.keys)
    if places.visible_keys is not None:
        allowed = places.visible_keys if allowed is None else allowed & places.visible_keys
    if allowed is None:
        weights = scores.softmax(-1)
    else:
        # Not -inf: a row that may see nothing would be 0/0, and its gradient not a number.
        weights = scores.where(allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed
    return (dropped(weights.to(q.dtype), call.dropout) @ v).to(call.q.dtype)


def collected(k: Tensor, rows: Tensor | None) -> Tensor:
    """Each row's keys, (batch, groups, keys, head), from the rows they lie in."""
    if rows is None:
        return k
    return k.gather(0, rows[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3]))


def repeated(k: Tensor, heads: int) -> Tensor:
    """One key head for each query head: heads of a group are neighbours."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)


KERNEL = Kernel("attention.explicit", serves, run)
