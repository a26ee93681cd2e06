"""Attention of a few new queries on a GPU, as when a text is written token by token: one program for each of them.

The general kernels give a tile of 64 queries to each head, but a step of generation fills only one row. Here a program
reads the keys that its query may see, once, from wherever they lie: a beam search need not move its cache. No mask is
made: most are a comparison of positions.
"""

import torch
from torch import Tensor

from regard.kernels import launch
from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["KERNEL", "store", "stores"]

MAX_QUERIES = 16  # queries of a row; with more, reading the keys once for each is wasteful
MANY_PROGRAMS = 256  # with this many programs, a single one need not be fast


def serves(call: AttentionCall) -> bool:
    """Few queries, no gradient, heads of a power of two; plain causality is for torch's own kernels."""
    q, k, v = call.q, call.k, call.v
    return (
        call.bias is None and call.dropout == 0.0 and not (call.positions is None and call.mask.only_causal)
        and q.shape[2] <= MAX_QUERIES and not q.requires_grad
        and k.dtype in (torch.float32, torch.bfloat16, torch.float16) and q.shape[3] == v.shape[3]
        and q.shape[3] in (16, 32, 64, 128) and q.stride(3) == k.stride(3) == v.stride(3) == 1)


def run(call: AttentionCall) -> Tensor:
    """Key j of row b lies in row places.rows[b, j] of k and v."""
    kind, call = call.q.dtype, call.scaled
    q, k, v, mask, places = call.q, call.k, call.v, call.mask, call.positions
    batch, heads, queries, head = q.shape
    keys, many = k.shape[2], batch * heads * queries > MANY_PROGRAMS
    out = q.new_empty(batch, queries, heads, head).transpose(1, 2)
    absent = q  # a pointer that is never followed
    rows = places.rows if places is not None else None
    if places is not None and mask.causal and places.in_order and mask.only_near:
        here, seen, window = places.queries.expand(batch, -1), None, keys if mask.window is None else mask.window
    else:
        here, seen, window = None, mask.dense(call.places.queries, call.places.keys), 0
    seen = seen if seen is None else seen.expand(batch, 1, queries, keys)
    lie, see, at_ = (absent if x is None else x for x in (rows, seen, here))
    _decode_attention[(batch * heads * queries,)](
        q, k, v, see, lie, at_, out, call.factor, window, queries, keys, heads, heads // k.shape[1],
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], see.stride(0), see.stride(-2),
        see.stride(-1), lie.stride(0), lie.stride(1), at_.stride(0), at_.stride(1),
        N=max(16, min(64 if many else 16_384 // head, triton.next_power_of_2(keys))), D=head, NEAR=here is not None,
        SEEN=seen is not None, ROWS=rows is not None, EARLY=(early := launch.starts_early(q)),
        num_warps=2 if many else 8, launch_pdl=early)
    return out.to(kind)


KERNEL = Kernel("attention.decode", serves, run, device="gpu", is_installed=triton is not None)


def stores(k: Tensor, v: Tensor) -> bool:
    """Whether `store` can do it."""
    return (triton is not None and launch.on_gpu(k) and k.shape[2] <= MAX_QUERIES and not k.requires_grad
            and k.shape == v.shape and k.shape[3] in (16, 32, 64, 128) and k.stride(3) == v.stride(3) == 1)


def store(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> None:
    """New keys and values (rows, groups, n, head) into their slots of (rows, groups, capacity, head)."""
    rows, groups, n, head = k.shape
    at = positions.expand(rows, -1)
    _store[(rows * groups * n,)](
        k, v, keys, values, at, groups, n, *k.stride()[:3], *v.stride()[:3], *keys.stride()[:3], *values.stride()[:3],
        *at.stride(), D=head, EARLY=(early := launch.starts_early(k)), num_warps=1, launch_pdl=early)


if triton is not None:

    @triton.jit
    def _decode_attention(q_, k_, v_, seen_, rows_, here_, out, scale, window, queries, keys, heads, share,
                          qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, sb, sn, sk, rb, rk, pb, pn,
                          N: tl.constexpr, D: tl.constexpr, NEAR: tl.constexpr, SEEN: tl.constexpr, ROWS: tl.constexpr,
                          EARLY: tl.constexpr):
        if EARLY:  # the next kernel may fetch its weights; this one has nothing to do before its input is there
            tl.extra.cuda.gdc_launch_dependents()
            tl.extra.cuda.gdc_wait()
        place = tl.program_id(0)
        i, h, b = place % queries, (place // queries) % heads, (place // queries // heads).to(tl.int64)
        columns = tl.arange(0, D)
        first, last = 0, keys
        if NEAR:  # a query sees its own position, and `window` before it
            here = tl.load(here_ + b * pb + i * pn).to(tl.int32)
            first, last = tl.maximum(here - window, 0), tl.minimum(here + 1, keys)
        q = tl.load(q_ + b * qb + h * qh + i * qn + columns).to(tl.float32) * scale
        largest, total, mixed = -1e30, 0.0, tl.zeros([D], tl.float32)
        for start in range(first, last, N):
            j = start + tl.arange(0, N)
            seen = j < last
            if SEEN:
                seen = seen & tl.load(seen_ + b * sb + i * sn + j * sk, mask=seen, other=0).to(tl.int1)
            row = b
            if ROWS:
                row = tl.load(rows_ + b * rb + j * rk, mask=seen, other=0).to(tl.int64)[:, None]
            there = row * kb + (h // share) * kh + j[:, None] * kn + columns[None, :]
            k = tl.load(k_ + there, mask=seen[:, None], other=0.0)
            there = row * vb + (h // share) * vh + j[:, None] * vn + columns[None, :]
            v = tl.load(v_ + there, mask=seen[:, None], other=0.0)
            scores = tl.where(seen, tl.sum(k.to(tl.float32) * q[None, :], 1), -1e30)
            larger = tl.maximum(largest, tl.max(scores, 0))
            weights = tl.where(seen, tl.exp(scores - larger), 0.0)
            kept = tl.exp(largest - larger)
            total = total * kept + tl.sum(weights, 0)
            mixed = mixed * kept + tl.sum(v.to(tl.float32) * weights[:, None], 0)
            largest = larger
        mixed = mixed / tl.where(total == 0.0, 1.0, total)  # nothing seen: zeros
        tl.store(out + b * ob + h * oh + i * on + columns, mixed.to(out.dtype.element_ty))

    @triton.jit
    def _store(k_, v_, keys_, values_, at_, groups, n, kb, kg, kn, vb, vg, vn, kcb, kcg, kcn, vcb, vcg, vcn, pb, pn,
               D: tl.constexpr, EARLY: tl.constexpr):
        if EARLY:
            tl.extra.cuda.gdc_launch_dependents()
            tl.extra.cuda.gdc_wait()
        place = tl.program_id(0)
        i, g, b = place % n, (place // n) % groups, (place // n // groups).to(tl.int64)
        columns = tl.arange(0, D)
        slot = tl.load(at_ + b * pb + i * pn)
        k = tl.load(k_ + b * kb + g * kg + i * kn + columns)
        v = tl.load(v_ + b * vb + g * vg + i * vn + columns)
        tl.store(keys_ + b * kcb + g * kcg + slot * kcn + columns, k)
        tl.store(values_ + b * vcb + g * vcg + slot * vcn + columns, v)
