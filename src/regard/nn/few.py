"""Attention of a few new queries on a GPU, as when a text is written token by token: one program for each of them.

The general kernels give a tile of 64 queries to each head, of which a step of generation fills one row. Here a program
reads the keys that its query may see, once, from wherever they lie: a beam search need not move its cache.
"""

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["attend", "serves"]

MOST = 16  # queries of a row beyond which reading the keys once for each is a waste


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether this kernel can do it: few queries, no gradient, whole heads of a power of two."""
    return (
        triton is not None and q.is_cuda and q.shape[2] <= MOST and not q.requires_grad
        and q.dtype in (torch.float32, torch.bfloat16, torch.float16) and q.shape[3] == v.shape[3]
        and q.shape[3] in (16, 32, 64, 128) and q.stride(3) == k.stride(3) == v.stride(3) == 1)


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, rows: Tensor | None, scale: float) -> Tensor:
    """`allowed` (batch, 1, queries, keys) may broadcast; key j of row b lies in row rows[b, j] of k and v."""
    batch, heads, queries, head = q.shape
    out = q.new_empty(batch, queries, heads, head).transpose(1, 2)
    keys = k.shape[2]
    seen = q if allowed is None else allowed.expand(batch, 1, queries, keys)
    lie = q if rows is None else rows
    _few[(batch * heads * queries,)](
        q, k, v, seen, lie, out, scale, queries, keys, heads, heads // k.shape[1], *q.stride()[:3], *k.stride()[:3],
        *v.stride()[:3], *out.stride()[:3], seen.stride(0), seen.stride(2), seen.stride(3), lie.stride(0),
        lie.stride(1), N=min(64, max(16, triton.next_power_of_2(keys))), D=head, SEEN=allowed is not None,
        ROWS=rows is not None, num_warps=2)
    return out


if triton is not None:

    @triton.jit
    def _few(q_, k_, v_, seen_, rows_, out, scale, queries, keys, heads, share, qb, qh, qn, kb, kh, kn, vb, vh, vn,
             ob, oh, on, sb, sn, sk, rb, rk,
             N: tl.constexpr, D: tl.constexpr, SEEN: tl.constexpr, ROWS: tl.constexpr):
        place = tl.program_id(0)
        i, h, b = place % queries, (place // queries) % heads, (place // queries // heads).to(tl.int64)
        columns = tl.arange(0, D)
        q = tl.load(q_ + b * qb + h * qh + i * qn + columns).to(tl.float32) * scale
        largest, total, mixed = -1e30, 0.0, tl.zeros([D], tl.float32)
        for start in range(0, keys, N):
            j = start + tl.arange(0, N)
            seen = j < keys
            if SEEN:
                seen = seen & tl.load(seen_ + b * sb + i * sn + j * sk, mask=seen, other=0).to(tl.int1)
            row = b
            if ROWS:
                row = tl.load(rows_ + b * rb + j * rk, mask=seen, other=0).to(tl.int64)[:, None]
            there = row * kb + (h // share) * kh + j[:, None] * kn + columns[None, :]
            k = tl.load(k_ + there, mask=seen[:, None], other=0.0).to(tl.float32)
            scores = tl.where(seen, tl.sum(k * q[None, :], 1), -1e30)
            larger = tl.maximum(largest, tl.max(scores, 0))
            weights = tl.where(seen, tl.exp(scores - larger), 0.0)
            kept = tl.exp(largest - larger)
            there = row * vb + (h // share) * vh + j[:, None] * vn + columns[None, :]
            v = tl.load(v_ + there, mask=seen[:, None], other=0.0).to(tl.float32)
            total = total * kept + tl.sum(weights, 0)
            mixed = mixed * kept + tl.sum(v * weights[:, None], 0)
            largest = larger
        mixed = mixed / tl.where(total == 0.0, 1.0, total)  # nothing seen: zeros
        tl.store(out + b * ob + h * oh + i * on + columns, mixed.to(out.dtype.element_ty))
