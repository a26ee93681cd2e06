"""Attention over short sequences on a GPU: all queries and keys of a head in one program, forward and backward.

The general kernels work in tiles of 64 to 128 queries, and spend a sentence of 30 words on padding and on
passes over memory for the backward sums. Here a head's scores fit into registers, so that each tensor is read
once and written once.
"""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["KERNEL"]

MAX_LENGTH = 64


def serves(call: AttentionCall) -> bool:
    """Half precision, short sequences, heads of a power of two, and no mask but causality and padding."""
    q, k, v, mask = call.q, call.k, call.v, call.mask
    return (
        call.positions is None and call.bias is None and call.dropout == 0.0
        and k.dtype in (torch.bfloat16, torch.float16)
        and max(q.shape[2], k.shape[2]) <= MAX_LENGTH and q.shape[1] == k.shape[1]
        and q.shape[3] == v.shape[3] and q.shape[3] in (16, 32, 64, 128)
        and mask.window is None and mask.spans is None and mask.documents is None and mask.blind is None)


def run(call: AttentionCall) -> Tensor:
    out, call = call.q.dtype, call.scaled
    context: Tensor = _attend(call.q, call.k, call.v, call.mask.keys, call.mask.causal, call.factor)
    return context.to(out)


KERNEL = Kernel("attention.short", serves, run, keeps=lambda call: 0, device="gpu",
                is_installed=triton is not None)


if triton is not None:

    @triton.jit
    def _load(pointer, base, stride, rows, columns, count):
        places = base + rows[:, None] * stride + columns[None, :]
        return tl.load(pointer + places, mask=rows[:, None] < count, other=0.0)

    @triton.jit
    def _softmax(q, k, keys, batch, key_stride, scale, queries, places, n, CAUSAL: tl.constexpr, KEYS: tl.constexpr):
        scores = tl.dot(q, tl.trans(k)) * scale
        allowed = places[None, :] < n
        if CAUSAL:
            allowed = allowed & (places[None, :] <= queries[:, None])
        if KEYS:
            real = tl.load(keys + batch * key_stride + places, mask=places < n, other=0).to(tl.int1)
            allowed = allowed & real[None, :]
        scores = tl.where(allowed, scores, -1e30)
        weights = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
        total = tl.sum(weights, 1)
        return weights / tl.where(total == 0.0, 1.0, total)[:, None]  # nothing seen: zeros

    @triton.jit
    def _forward(q_, k_, v_, keys, out, scale, m, n, heads, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, key_stride,
                 M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, KEYS: tl.constexpr):
        b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
        rows, places, columns = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
        q = _load(q_, b * qb + h * qh, qn, rows, columns, m)
        k = _load(k_, b * kb + h * kh, kn, places, columns, n)
        v = _load(v_, b * vb + h * vh, vn, places, columns, n)
        p = _softmax(q, k, keys, b, key_stride, scale, rows, places, n, CAUSAL, KEYS)
        o = tl.dot(p.to(v.dtype), v)
        tl.store(out + b * ob + h * oh + rows[:, None] * on + columns[None, :], o.to(v.dtype), mask=rows[:, None] < m)

    @triton.jit
    def _backward(q_, k_, v_, keys, g_, dq, dk, dv, scale, m, n, heads, qb, qh, qn, kb, kh, kn, vb, vh, vn,
                  gb, gh, gn, ab, ah, an, bb, bh, bn, key_stride,
                  M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, KEYS: tl.constexpr):
        b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
        rows, places, columns = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
        q = _load(q_, b * qb + h * qh, qn, rows, columns, m)
        k = _load(k_, b * kb + h * kh, kn, places, columns, n)
        v = _load(v_, b * vb + h * vh, vn, places, columns, n)
        g = _load(g_, b * gb + h * gh, gn, rows, columns, m)
        p = _softmax(q, k, keys, b, key_stride, scale, rows, places, n, CAUSAL, KEYS)
        dp = tl.dot(g, tl.trans(v))
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
        there = b * bb + h * bh + places[:, None] * bn + columns[None, :]
        tl.store(dv + there, tl.dot(tl.trans(p.to(g.dtype)), g).to(q.dtype), mask=places[:, None] < n)
        tl.store(dk + there, tl.dot(tl.trans(ds), q).to(q.dtype), mask=places[:, None] < n)
        tl.store(dq + b * ab + h * ah + rows[:, None] * an + columns[None, :], tl.dot(ds, k).to(q.dtype),
                 mask=rows[:, None] < m)

    def _tiles(q: Tensor, k: Tensor, keys: Tensor | None, causal: bool) -> dict[str, Any]:
        return {"M": max(16, triton.next_power_of_2(q.shape[2])), "N": max(16, triton.next_power_of_2(k.shape[2])),
                "D": q.shape[3], "CAUSAL": causal, "KEYS": keys is not None, "num_warps": 2}

    def _like(x: Tensor) -> Tensor:
        """Laid out as (batch, length, heads, head): heads merge and split without a copy."""
        batch, heads, length, head = x.shape
        return x.new_empty(batch, length, heads, head).transpose(1, 2)

    @torch.library.triton_op("regard::short_attention", mutates_args=())
    def _attend(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, causal: bool, scale: float) -> Tensor:
        out = _like(q)
        seen = q if keys is None else keys
        torch.library.wrap_triton(_forward)[(q.shape[0] * q.shape[1],)](
            q, k, v, seen, out, scale, q.shape[2], k.shape[2], q.shape[1], *q.stride()[:3], *k.stride()[:3],
            *v.stride()[:3], *out.stride()[:3], seen.stride(0), **_tiles(q, k, keys, causal))
        return out

    @torch.library.triton_op("regard::short_attention_backward", mutates_args=())
    def _attend_backward(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, grad: Tensor, causal: bool,
                         scale: float) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = _like(q), _like(k), _like(v)
        seen = q if keys is None else keys
        torch.library.wrap_triton(_backward)[(q.shape[0] * q.shape[1],)](
            q, k, v, seen, grad, dq, dk, dv, scale, q.shape[2], k.shape[2], q.shape[1], *q.stride()[:3],
            *k.stride()[:3], *v.stride()[:3], *grad.stride()[:3], *dq.stride()[:3], *dk.stride()[:3], seen.stride(0),
            **_tiles(q, k, keys, causal))
        return dq, dk, dv

    def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        q, k, v, keys, ctx.causal, ctx.scale = inputs
        ctx.save_for_backward(q, k, v, keys)

    def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, keys = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        return *_attend_backward(q, k, v, keys, grad, ctx.causal, ctx.scale), None, None, None

    _attend.register_autograd(_gradient, setup_context=_remember)
