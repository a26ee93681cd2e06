"""Attention within a window, and to a few global tokens, on a GPU: neither pass ever writes a score to memory.

A program takes a tile of queries, reads the keys around it tile by tile and then the row's global tokens from wherever
they stand, and keeps a running softmax (Dao 2023). Going back, one kernel sums over keys and one over queries.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel
from regard.kernels.mask_codes import BLIND, UNSEEN, codes
from regard.kernels.window import is_windowed, with_globals

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["KERNEL", "Tile"]


class Tile(NamedTuple):
    """How many queries meet how many keys at a time, and what a GPU gives to each such meeting."""

    queries: int
    keys: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        return {"M": self.queries, "N": self.keys, "num_warps": self.warps, "num_stages": self.stages}


# For heads of up to 64 and of 128 numbers: what fits into the registers, and into 99 KiB of shared memory.
FORTH = {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 2)}
BACK_TO_QUERIES = {64: Tile(128, 64, 8, 2), 128: Tile(64, 32, 8, 2)}
BACK_TO_KEYS = {64: Tile(64, 128, 8, 2), 128: Tile(32, 64, 4, 2)}
GLOBALS = 16  # global tokens of a tile: a product of matrices takes no fewer


def serves(call: AttentionCall) -> bool:
    """Half precision, and heads of a power of two."""
    q, k, v = call.q, call.k, call.v
    return (
        is_windowed(call) and call.bias is None and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype == k.dtype == v.dtype and q.shape[3] == v.shape[3] and q.shape[3] in (16, 32, 64, 128)
        and q.stride(3) == k.stride(3) == v.stride(3) == 1)


def run(call: AttentionCall) -> Tensor:
    return with_globals(call, _near_and_far(call.scaled).to(call.q.dtype))


def _near_and_far(call: AttentionCall) -> Tensor:
    """Every query with its window and the global tokens. That these see all themselves is not in it."""
    q, k, v, mask, dropout = call.q, call.k, call.v, call.mask, call.dropout
    assert mask.window is not None
    batch = len(q)
    asks, answers, places, seed = None, None, None, None
    if (coded := codes(mask)) is not None:
        asks, answers = (part.expand(batch, -1).contiguous() for part in coded)
    if mask.globals is not None and mask.global_count > 0:
        there = mask.global_places
        places = there.where(mask.globals.gather(1, there), -1).int().expand(batch, -1).contiguous()
    if dropout > 0.0:
        seed = torch.randint(2**31 - 1, (1,), device=q.device, dtype=torch.int32)
    context, _ = _attend(q, k, v, asks, answers, places, seed, mask.window, mask.causal,
                         mask.documents is not None, call.factor, dropout)
    return context  # type: ignore[no-any-return]


def _keeps(call: AttentionCall) -> int:
    """The logarithm of each row's sum."""
    return 4 * call.q.shape[:3].numel()


KERNEL = Kernel("attention.sliding_window", serves, run, keeps=_keeps, device="gpu",
                is_installed=triton is not None)


if triton is not None:
    _UNSEEN, _BLIND = tl.constexpr(UNSEEN), tl.constexpr(BLIND)
    _BEYOND = tl.constexpr(2**30)  # a place that is near to none

    @triton.jit
    def _load(pointer, first, stride, columns, count, SIZE: tl.constexpr):
        """Rows from the first on; zeros after the last."""
        rows = tl.arange(0, SIZE)
        there = pointer + tl.cast(first, tl.int64) * stride + rows[:, None] * stride + columns[None, :]
        return tl.load(there, mask=(first + rows < count)[:, None], other=0.0)

    @triton.jit
    def _codes(pointer, places, count, CODES: tl.constexpr):
        if CODES:
            found = tl.load(pointer + places, mask=places < count, other=0)
        else:
            found = places  # never looked at
        return found

    @triton.jit
    def _asking(rows, asks, length, CODES: tl.constexpr):
        """The places of queries; of one that is blind, or not there, so far away that nothing is near."""
        places = tl.where(rows < length, rows, -_BEYOND)
        if CODES:
            places = tl.where(asks == _BLIND, -_BEYOND, places)
        return places

    @triton.jit
    def _answering(places, answers, length, CODES: tl.constexpr):
        """The same of keys, unseen or not there."""
        there = tl.where(places < length, places, _BEYOND)
        if CODES:
            there = tl.where(answers == _UNSEEN, _BEYOND, there)
        return there

    @triton.jit
    def _near(rows, places, asks, answers, window, CAUSAL: tl.constexpr, TEXTS: tl.constexpr):
        """Which keys lie in the windows of the queries: one comparison, since below zero wraps to far above."""
        if CAUSAL:
            near = (rows - places).to(tl.uint32, bitcast=True) <= window
        else:
            near = (rows + window - places).to(tl.uint32, bitcast=True) <= 2 * window
        if TEXTS:
            near = near & (asks == answers)
        return near

    @triton.jit
    def _far(rows, places, asks, answers, window, CAUSAL: tl.constexpr, CODES: tl.constexpr):
        """Which global tokens are seen from outside their window; a negative place is that of no token."""
        apart = rows - places
        if CAUSAL:
            far = (apart > window) & (places >= 0)
        else:
            far = (tl.abs(apart) > window) & (places >= 0)
        if CODES:
            far = far & (asks == answers)
        return far

    @triton.jit
    def _kept(seed, rows, places, length, drop, DROP: tl.constexpr):
        """The dropout factors of the weights: the same in both passes, since they depend on place and seed."""
        if DROP:
            kept = tl.where(tl.rand(seed, rows * length + places) < drop, 0.0, 1.0 / (1.0 - drop))
        else:
            kept = 1.0
        return kept

    @triton.jit
    def _mix(q, k, v, sees, kept, mixed, total, largest, factor):
        """One more tile of keys for the running softmax."""
        scores = tl.where(sees, tl.dot(q, tl.trans(k)) * factor, -1e30)
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - larger[:, None])  # 0 where nothing is seen: the largest is never so small
        less = tl.exp2(largest - larger)
        total = total * less + tl.sum(weights, 1)
        return mixed * less[:, None] + tl.dot((weights * kept).to(v.dtype), v), total, larger

    @triton.jit
    def _forward(q_, k_, v_, asks_, answers_, places_, seed_, out, logs, scale, drop, window, length, count, heads,
                 share, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, M: tl.constexpr, N: tl.constexpr,
                 D: tl.constexpr, G: tl.constexpr, CAUSAL: tl.constexpr, CODES: tl.constexpr, TEXTS: tl.constexpr,
                 DROP: tl.constexpr):
        b, h, start = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads, tl.program_id(0) * M
        rows, columns = start + tl.arange(0, M), tl.arange(0, D)
        k_, v_, answers_ = k_ + b * kb + h // share * kh, v_ + b * vb + h // share * vh, answers_ + b * length
        q = _load(q_ + b * qb + h * qh, start, qn, columns, length, M)
        asks = _codes(asks_ + b * length, rows, length, CODES)
        asking = _asking(rows, asks, length, CODES)
        scale, drop = tl.cast(scale, tl.float32), tl.cast(drop, tl.float32)  # compiled code hands over doubles
        seed, factor = 0, scale * 1.4426950408889634  # exp(x) = exp2(x · log2 e)
        if DROP:
            seed = tl.load(seed_) + tl.program_id(1)
        mixed, total, largest = tl.zeros([M, D], tl.float32), tl.zeros([M], tl.float32), tl.full([M], -1e20, tl.float32)
        last = tl.minimum(start + M if CAUSAL else start + M + window, length)
        for first in range(tl.maximum(start - window, 0), last, N):
            places = first + tl.arange(0, N)
            k, v = _load(k_, first, kn, columns, length, N), _load(v_, first, vn, columns, length, N)
            answers = _codes(answers_, places, length, CODES)
            there = _answering(places, answers, length, CODES)
            sees = _near(asking[:, None], there[None, :], asks[:, None], answers[None, :], window, CAUSAL, TEXTS)
            kept = _kept(seed, rows[:, None], places[None, :], length, drop, DROP)
            mixed, total, largest = _mix(q, k, v, sees, kept, mixed, total, largest, factor)
        if G > 0:
            for first in range(0, count, G):
                slots = first + tl.arange(0, G)
                places = tl.load(places_ + b * count + slots, mask=slots < count, other=-1)
                there = tl.maximum(places, 0).to(tl.int64)
                k = tl.load(k_ + there[:, None] * kn + columns[None, :])
                v = tl.load(v_ + there[:, None] * vn + columns[None, :])
                answers = _codes(answers_, there, length, CODES)
                sees = _far(rows[:, None], places[None, :], asks[:, None], answers[None, :], window, CAUSAL, CODES)
                kept = _kept(seed, rows[:, None], places[None, :], length, drop, DROP)
                mixed, total, largest = _mix(q, k, v, sees, kept, mixed, total, largest, factor)
        blind = total == 0.0
        mixed = mixed / tl.where(blind, 1.0, total)[:, None]  # nothing seen: zeros
        there = out + b * ob + h * oh + rows.to(tl.int64)[:, None] * on + columns[None, :]
        tl.store(there, mixed.to(q.dtype), mask=(rows < length)[:, None])
        # The logarithm of the sum: going back, exp2(score - this) is the weight again.
        log = tl.where(blind, 1e30, largest + tl.log2(tl.where(blind, 1.0, total)))
        tl.store(logs + tl.program_id(1).to(tl.int64) * length + rows, log, mask=rows < length)

    @triton.jit
    def _back(q, k, v, g, sees, kept, log, delta, factor):
        """Weights as dropout left them, and the scores' gradient, of queries q and keys k, or of keys and queries."""
        weights = tl.where(sees, tl.exp2(tl.dot(q, tl.trans(k)) * factor - log), 0.0)
        passed = tl.dot(g, tl.trans(v))
        return weights * kept, weights * (passed * kept - delta)

    @triton.jit
    def _back_to_queries(
            q_, k_, v_, asks_, answers_, places_, seed_, out, logs, g_, deltas, dq, far_k, far_v, scale, drop, window,
            length, count, heads, share, qb, qh, qn, kb, kh, kn, vb, vh, vn, ob, oh, on, gb, gh, gn, ab, ah, an,
            M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, G: tl.constexpr, CAUSAL: tl.constexpr,
            CODES: tl.constexpr, TEXTS: tl.constexpr, DROP: tl.constexpr):
        """The queries' gradient, and a tile's part in that of the global keys and values."""
        b, h, start = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads, tl.program_id(0) * M
        rows, columns = start + tl.arange(0, M), tl.arange(0, D)
        k_, v_, answers_ = k_ + b * kb + h // share * kh, v_ + b * vb + h // share * vh, answers_ + b * length
        q = _load(q_ + b * qb + h * qh, start, qn, columns, length, M)
        g = _load(g_ + b * gb + h * gh, start, gn, columns, length, M)
        o = _load(out + b * ob + h * oh, start, on, columns, length, M)
        here = tl.program_id(1).to(tl.int64) * length + rows
        log = tl.load(logs + here, mask=rows < length, other=1e30)[:, None]
        delta = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
        tl.store(deltas + here, delta, mask=rows < length)
        delta = delta[:, None]
        asks = _codes(asks_ + b * length, rows, length, CODES)
        asking = _asking(rows, asks, length, CODES)
        scale, drop = tl.cast(scale, tl.float32), tl.cast(drop, tl.float32)
        seed, factor = 0, scale * 1.4426950408889634
        if DROP:
            seed = tl.load(seed_) + tl.program_id(1)
        sum_q = tl.zeros([M, D], tl.float32)
        last = tl.minimum(start + M if CAUSAL else start + M + window, length)
        for first in range(tl.maximum(start - window, 0), last, N):
            places = first + tl.arange(0, N)
            k, v = _load(k_, first, kn, columns, length, N), _load(v_, first, vn, columns, length, N)
            answers = _codes(answers_, places, length, CODES)
            there = _answering(places, answers, length, CODES)
            sees = _near(asking[:, None], there[None, :], asks[:, None], answers[None, :], window, CAUSAL, TEXTS)
            kept = _kept(seed, rows[:, None], places[None, :], length, drop, DROP)
            _, slope = _back(q, k, v, g, sees, kept, log, delta, factor)
            sum_q += tl.dot(slope.to(k.dtype), k)
        if G > 0:
            part = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * count
            for first in range(0, count, G):
                slots = first + tl.arange(0, G)
                places = tl.load(places_ + b * count + slots, mask=slots < count, other=-1)
                there = tl.maximum(places, 0).to(tl.int64)
                k = tl.load(k_ + there[:, None] * kn + columns[None, :])
                v = tl.load(v_ + there[:, None] * vn + columns[None, :])
                answers = _codes(answers_, there, length, CODES)
                sees = _far(rows[:, None], places[None, :], asks[:, None], answers[None, :], window, CAUSAL, CODES)
                kept = _kept(seed, rows[:, None], places[None, :], length, drop, DROP)
                weights, slope = _back(q, k, v, g, sees, kept, log, delta, factor)
                sum_q += tl.dot(slope.to(k.dtype), k)
                to = (part + slots)[:, None] * D + columns[None, :]
                far = (slots < count)[:, None]
                tl.store(far_k + to, tl.dot(tl.trans(slope.to(q.dtype)), q) * scale, mask=far)
                tl.store(far_v + to, tl.dot(tl.trans(weights.to(g.dtype)), g), mask=far)
        there = dq + b * ab + h * ah + rows.to(tl.int64)[:, None] * an + columns[None, :]
        tl.store(there, (sum_q * scale).to(q.dtype), mask=(rows < length)[:, None])

    @triton.jit
    def _back_to_keys(
            q_, k_, v_, asks_, answers_, seed_, logs, g_, deltas, dk, dv, scale, drop, window, length, heads, share,
            qb, qh, qn, kb, kh, kn, vb, vh, vn, gb, gh, gn, ab, ah, an, M: tl.constexpr, N: tl.constexpr,
            D: tl.constexpr, CAUSAL: tl.constexpr, CODES: tl.constexpr, TEXTS: tl.constexpr, DROP: tl.constexpr):
        """The gradient of keys and values from the queries whose window they lie in. Keys are rows here."""
        b, h, start = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads, tl.program_id(0) * N
        places, columns = start + tl.arange(0, N), tl.arange(0, D)
        q_, g_, asks_ = q_ + b * qb + h * qh, g_ + b * gb + h * gh, asks_ + b * length
        k = _load(k_ + b * kb + h // share * kh, start, kn, columns, length, N)
        v = _load(v_ + b * vb + h // share * vh, start, vn, columns, length, N)
        answers = _codes(answers_ + b * length, places, length, CODES)
        there = _answering(places, answers, length, CODES)
        here = tl.program_id(1).to(tl.int64) * length
        scale, drop = tl.cast(scale, tl.float32), tl.cast(drop, tl.float32)
        seed, factor = 0, scale * 1.4426950408889634
        if DROP:
            seed = tl.load(seed_) + tl.program_id(1)
        sum_k, sum_v = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
        begin, last = start if CAUSAL else tl.maximum(start - window, 0), tl.minimum(start + N + window, length)
        for first in range(begin, last, M):
            rows = first + tl.arange(0, M)
            q, g = _load(q_, first, qn, columns, length, M), _load(g_, first, gn, columns, length, M)
            log = tl.load(logs + here + rows, mask=rows < length, other=1e30)[None, :]
            delta = tl.load(deltas + here + rows, mask=rows < length, other=0.0)[None, :]
            asks = _codes(asks_, rows, length, CODES)
            asking = _asking(rows, asks, length, CODES)
            sees = _near(asking[None, :], there[:, None], asks[None, :], answers[:, None], window, CAUSAL, TEXTS)
            kept = _kept(seed, rows[None, :], places[:, None], length, drop, DROP)
            weights, slope = _back(k, q, g, v, sees, kept, log, delta, factor)
            sum_v += tl.dot(weights.to(g.dtype), g)
            sum_k += tl.dot(slope.to(q.dtype), q)
        to = b * ab + h * ah + places.to(tl.int64)[:, None] * an + columns[None, :]
        tl.store(dk + to, (sum_k * scale).to(k.dtype), mask=(places < length)[:, None])
        tl.store(dv + to, sum_v.to(k.dtype), mask=(places < length)[:, None])

    def _like(x: Tensor, heads: int) -> Tensor:
        """Laid out as (batch, length, heads, head): heads merge and split without a copy."""
        batch, _, length, head = x.shape
        return x.new_empty(batch, length, heads, head).transpose(1, 2)

    def _kind(q: Tensor, codes: Tensor | None, places: Tensor | None, causal: bool, texts: bool,
              dropout: float) -> dict[str, Any]:
        return {"D": q.shape[3], "G": 0 if places is None else GLOBALS, "CAUSAL": causal, "CODES": codes is not None,
                "TEXTS": texts, "DROP": dropout > 0.0}

    def _tile(tiles: dict[int, Tile], q: Tensor) -> Tile:
        return tiles[64 if q.shape[3] <= 64 else 128]

    @torch.library.triton_op("regard::sliding_window_attention", mutates_args=())
    def _attend(q: Tensor, k: Tensor, v: Tensor, asks: Tensor | None, answers: Tensor | None, places: Tensor | None,
                seed: Tensor | None, window: int, causal: bool, texts: bool, scale: float,
                dropout: float) -> tuple[Tensor, Tensor]:
        (batch, heads, length, _), tile = q.shape, _tile(FORTH, q)
        out, logs = _like(q, heads), q.new_empty(batch, heads, length, dtype=torch.float32)
        given = (q if part is None else part for part in (asks, answers, places, seed))  # absent: never followed
        torch.library.wrap_triton(_forward)[(triton.cdiv(length, tile.queries), batch * heads)](
            q, k, v, *given, out, logs, scale, dropout, window, length, 0 if places is None else places.shape[1], heads,
            heads // k.shape[1], *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
            **_kind(q, asks, places, causal, texts, dropout), **tile.options)
        return out, logs

    @torch.library.triton_op("regard::sliding_window_attention_backward", mutates_args=())
    def _attend_backward(
        q: Tensor, k: Tensor, v: Tensor, asks: Tensor | None, answers: Tensor | None, places: Tensor | None,
        seed: Tensor | None, out: Tensor, logs: Tensor, grad: Tensor, window: int, causal: bool, texts: bool,
        scale: float, dropout: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, heads, length, head = q.shape
        groups, count = k.shape[1], 0 if places is None else places.shape[1]
        asks_, answers_, places_, seed_ = (q if part is None else part for part in (asks, answers, places, seed))
        dq, dk, dv, deltas = _like(q, heads), _like(k, heads), _like(v, heads), torch.empty_like(logs)
        kind, tile, other = _kind(q, asks, places, causal, texts, dropout), *(
            _tile(tiles, q) for tiles in (BACK_TO_QUERIES, BACK_TO_KEYS))
        tiles = triton.cdiv(length, tile.queries)
        far_k, far_v = (q.new_empty(batch, heads, tiles, count, head, dtype=torch.float32) for _ in range(2))
        torch.library.wrap_triton(_back_to_queries)[(tiles, batch * heads)](
            q, k, v, asks_, answers_, places_, seed_, out, logs, grad, deltas, dq, far_k, far_v, scale, dropout, window,
            length, count, heads, heads // groups, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            *out.stride()[:3], *grad.stride()[:3], *dq.stride()[:3], **kind, **tile.options)
        del kind["G"]
        torch.library.wrap_triton(_back_to_keys)[(triton.cdiv(length, other.keys), batch * heads)](
            q, k, v, asks_, answers_, seed_, logs, grad, deltas, dk, dv, scale, dropout, window, length, heads,
            heads // groups, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *grad.stride()[:3], *dk.stride()[:3],
            **kind, **other.options)
        if places is not None:
            index = places.clamp(min=0).long()[:, None, :, None].expand(-1, heads, -1, head)  # for no token: zeros
            dk.scatter_add_(2, index, far_k.sum(2).to(dk.dtype))
            dv.scatter_add_(2, index, far_v.sum(2).to(dv.dtype))
        if groups != heads:
            dk, dv = (part.unflatten(1, (groups, -1)).sum(2) for part in (dk, dv))
        return dq, dk, dv

    def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)  # the logarithms have none
        *tensors, ctx.window, ctx.causal, ctx.texts, ctx.scale, ctx.dropout = inputs
        ctx.save_for_backward(*tensors, *output)

    def _gradient(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        options = ctx.window, ctx.causal, ctx.texts, ctx.scale, ctx.dropout
        return *_attend_backward(*ctx.saved_tensors, grad, *options), *[None] * (4 + len(options))

    _attend.register_autograd(_gradient, setup_context=_remember)
