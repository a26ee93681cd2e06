"""Attend: compare queries with keys, turn the scores into weights, mix the values.

`weights()` is the definition that a reader checks against the paper; `forward()` may be faster. The table
`SCORES` at the end names the ways to compare; a new one is a class with its `compare` and a line there.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn import band, batched, few, near, short
from regard.nn.dropout import dropped
from regard.nn.mask import Mask, Places, whole

__all__ = [
    "SCORES",
    "AdditiveAttend",
    "Attend",
    "Attended",
    "Bias",
    "BilinearAttend",
    "DistanceAttend",
    "DotAttend",
    "Places",
    "ScaledDotAttend",
]

EXPLICIT = 128 * 128
"""Weights up to this size are cheaper to hold than to fuse away where torch's fused kernel for CPUs is slow."""
MANY = 1_024  # keys
FEW = 8  # queries

Bias = Callable[[Tensor, Tensor], Tensor]
"""From the positions of queries and keys to numbers that are added to the scores."""


class Attended(NamedTuple):
    """What attention gives: the mixed values, and the weights where they came out on the way."""

    context: Float[Tensor, "batch heads queries value"]
    weights: Float[Tensor, "batch heads queries keys"] | None


class Attend(nn.Module):
    """softmax(score(q, k) / T) v, with masks and position biases. A subclass says what the score is.

    `widths` are the numbers per head. Heads narrower than the widest come padded with zeros.
    """

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.width = len(widths), max(widths)
        self.temperature, self.dropout = temperature, dropout

    def scores(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch heads keys head"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        return self.compare(q, self.know(k))

    def know(self, k: Float[Tensor, "batch heads keys head"]) -> Float[Tensor, "batch heads keys known"]:
        """What is asked of the keys whatever the query: where queries come one by one, it is worked out once."""
        return k

    def compare(
        self, q: Float[Tensor, "batch heads queries head"], known: Float[Tensor, "batch heads keys known"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The scores of queries with keys that are known."""
        raise NotImplementedError

    @property
    def factor(self) -> float | None:
        """Where the weights are softmax(factor · q·k), the number; elsewhere None."""
        return None

    def pick(self, heads: Sequence[int]) -> "Attend":
        """The same for these heads alone, whose queries and keys it then takes, in float32."""
        part = copy(self)
        part.heads, chosen = len(heads), list(heads)
        for kind in ("_parameters", "_buffers"):  # what a score learns, it learns for each head
            held = getattr(self, kind).items()
            own = {name: tensor if tensor is None else tensor[chosen].float() for name, tensor in held}
            part.__dict__[kind] = own
        return part

    def weights(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"], *,
        mask: Mask, positions: Places | None = None, bias: Bias | None = None, previous: Tensor | None = None,
        known: Float[Tensor, "batch heads keys known"] | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """How much each query takes of each key: every row sums to 1, or to 0 where it may see nothing.

        `previous` holds the last step's weights, for scores that depend on where the model looked before; `known` is
        what `know` has said of the keys, where that was asked before.
        """
        queries, keys, rows, *_, lines = positions or _from_zero(q, k)
        if known is None:
            scores = self.scores(q, _repeat(_collect(k, rows), q.shape[1]).to(q.dtype))
        else:
            scores = self.compare(q, known)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if bias is not None:
            scores = scores + bias(queries, keys)
        if self.temperature != 1.0:
            scores = scores / self.temperature
        allowed = mask.dense(queries, keys)
        if lines is not None:
            allowed = lines if allowed is None else allowed & lines
        return _softmax(scores, allowed).to(q.dtype)

    def forward(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"],
        v: Float[Tensor, "batch groups keys value"], *, mask: Mask, positions: Places | None = None,
        bias: Bias | None = None, previous: Tensor | None = None, known: Tensor | None = None,
    ) -> Attended:
        weights = self.weights(q, k, mask=mask, positions=positions, bias=bias, previous=previous, known=known)
        kept = dropped(weights, self.dropout) if self.training else weights
        v = _collect(v, positions.rows if positions is not None else None)
        return Attended(kept @ _repeat(v, q.shape[1]).to(q.dtype), weights)


class DotAttend(Attend):
    """q·k (Luong et al. 2015, "dot"): the one score for which there are fused kernels."""

    @property
    def scale(self) -> float | Tensor:
        """What the products are multiplied with: one number, or one for each head."""
        return 1.0

    def compare(self, q: Tensor, known: Tensor) -> Tensor:
        scale = self.scale
        q = (q * (scale.to(q.dtype) if isinstance(scale, Tensor) else scale)).to(known.dtype)
        if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= FEW:
            return (known @ q.mT).mT  # read in the order in which they lie, keys of bfloat16 take half the time
        return q @ known.mT

    @property
    def factor(self) -> float | None:
        scale = self.scale
        return None if isinstance(scale, Tensor) else scale / self.temperature

    @property
    def dropped(self) -> float:
        """The share of the weights that is left out, now."""
        return self.dropout if self.training else 0.0

    def forward(
        self, q: Float[Tensor, "batch heads queries head"], k: Float[Tensor, "batch groups keys head"],
        v: Float[Tensor, "batch groups keys value"], *, mask: Mask, positions: Places | None = None,
        bias: Bias | None = None, previous: Tensor | None = None, known: Tensor | None = None,
    ) -> Attended:
        factor = self.factor
        if factor is not None and positions is None and bias is None and batched.serves(q, k, v, mask):
            return Attended(batched.attend(q, k, v, mask, factor, self.dropped), None)
        if positions is not None and positions.lines is not None:
            found = super().forward(q.to(k.dtype), k, v, mask=mask, positions=positions, bias=bias)
            return Attended(found.context.to(q.dtype), found.weights)
        if _cheaper_explicit(q, k):
            return super().forward(q, k, v, mask=mask, positions=positions, bias=bias, previous=previous, known=known)
        reach = mask.window if mask.spans is None else None  # spans see past any window
        if reach is not None and positions is None and q.shape[2] == k.shape[2] > 2 * reach:
            return Attended(self._windowed(q, k, v, mask, bias), None)
        out, (q, scale) = q.dtype, self._scaled(q, k)
        reach = reach if mask.globals is None else None
        if reach is not None and positions is not None and (span := positions.span) is not None:
            low, high = _reached(span, mask, reach, k.shape[2])
            k, v, positions = k[:, :, low:high], v[:, :, low:high], positions.part(low, high)
        return Attended(self._fused(q, k, v, scale, mask, positions, bias).to(out), None)

    def _scaled(self, q: Tensor, k: Tensor) -> tuple[Tensor, float]:
        """Queries as the kernels take them, and the number that is left to multiply the scores with."""
        scale = self.scale
        if isinstance(scale, Tensor):  # heads of unequal widths: a kernel takes one number only
            return (q * scale.to(q.dtype)).to(k.dtype), 1.0
        return q.to(k.dtype), scale  # a cache may keep its keys in more than they came in

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Mask,
               positions: Places | None, bias: Bias | None) -> Tensor:
        if positions is None and bias is None and self.dropped == 0.0 and short.serves(q, k, v, mask):
            return short.attend(q, k, v, mask, scale / self.temperature)
        # The kernel's own causality counts queries and keys from 0 alike: right only where no positions are given.
        causal = positions is None and bias is None and mask.only_causal
        if bias is None and self.dropped == 0.0 and not causal and few.serves(q, k, v):
            return few.attend(q, k, v, mask, positions, scale / self.temperature)
        places = positions or _from_zero(q, k)
        allowed = None if causal or _sees_all(mask, positions) else mask.dense(places.queries, places.keys)
        k, v = _collect(k, places.rows), _collect(v, places.rows)
        return self._mixed(q, k, v, scale, allowed, places, bias, causal=causal)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, scale: float, allowed: Tensor | None, places: Places,
               bias: Bias | None, *, causal: bool = False) -> Tensor:
        """By torch's own kernels: queries with those keys that are allowed."""
        added = allowed
        if bias is not None:
            added = (bias(places.queries, places.keys) / self.temperature).to(q.dtype)
            if allowed is not None:
                added = added.masked_fill(~allowed, -math.inf)
        if added is not None and added.shape[2] != q.shape[2]:  # the kernels broadcast over rows and heads only
            added = added.expand(-1, -1, q.shape[2], -1)
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=added, is_causal=causal, scale=scale / self.temperature,
            dropout_p=self.dropped, enable_gqa=q.shape[1] != k.shape[1])
        if allowed is not None:
            # Some kernels give the mean of all values to a row that may see nothing.
            context = context.where(allowed.any(-1, keepdim=True), 0.0)
        return context

    def _windowed(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias | None) -> Tensor:
        """Each query with its window and the global tokens; then these, which see all: linear in the length."""
        batch, heads, length, head = q.shape
        scaled, scale = self._scaled(q, k)
        if bias is None and near.serves(scaled, k, v):
            context = near.attend(scaled, k, v, mask, scale / self.temperature, self.dropped)
        else:
            context = self._in_blocks(scaled, k, v, scale, mask, bias)
        context = context.to(q.dtype)
        # Where the global tokens ask elsewhere, with queries of their own, they are blind here.
        if mask.globals is None or mask.blind is mask.globals or mask.global_count == 0:
            return context
        places = Places(mask.global_places.expand(batch, -1), whole(length, q.device))
        index = places.queries[:, None, :, None]
        # A token that is not global, in a row with fewer of them than others, gets what it has once more.
        seen = self.forward(q.gather(2, index.expand(-1, heads, -1, head)), k, v, mask=mask, positions=places,
                            bias=bias).context
        return context.scatter(2, index.expand_as(seen), seen)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Mask, bias: Bias | None) -> Tensor:
        """All blocks at once; on a CPU, where nothing is kept for a gradient, some at a time, to save memory."""
        pieces = []
        for start, stop in band.stretches(mask, q.shape[2], at_once=q.requires_grad or q.device.type != "cpu"):
            part = band.cut(q, k, v, mask, start, stop)
            context = self._mixed(part.q, part.k, part.v, scale, part.allowed, part.places, bias)
            pieces.append(band.join(context, len(q), stop - start))
        return torch.cat(pieces, dim=2) if len(pieces) > 1 else pieces[0]


class ScaledDotAttend(DotAttend):
    """q·k / √d_k (Vaswani et al. 2017, eq. 1), d_k being each head's own width."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        # Whole numbers, which stay exact whatever a model is cast to: 1/√d_k is worked out where it is used.
        unequal = torch.tensor(widths)[:, None, None] if len(set(widths)) > 1 else None
        self.register_buffer("unequal", unequal, persistent=False)

    @property
    def scale(self) -> float | Tensor:
        widths: Tensor | None = self._buffers["unequal"]
        if widths is None:
            return 1 / math.sqrt(self.width)
        return widths.to(torch.float32 if widths.device.type == "mps" else torch.float64).rsqrt()


class BilinearAttend(Attend):
    """qᵀ W k, W learned for each head (Luong et al. 2015, "general"). With W = 1 it is the dot product."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        self.weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))

    def know(self, k: Tensor) -> Tensor:
        return k @ _own(self.weight).mT

    def compare(self, q: Tensor, known: Tensor) -> Tensor:
        return q @ known.mT


class AdditiveAttend(Attend):
    """w₂ᵀ tanh(W₁[k, q]) (Bahdanau et al. 2015, A.1.2), written as w₂ᵀ tanh(W k + U q), the same."""

    def __init__(self, widths: tuple[int, ...], *, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__(widths, temperature=temperature, dropout=dropout)
        self.key_weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))
        self.query_weight = nn.Parameter(torch.empty(self.heads, self.width, self.width))
        self.out_weight = nn.Parameter(torch.empty(self.heads, self.width, 1))

    def know(self, k: Tensor) -> Tensor:
        return k @ _own(self.key_weight)

    def compare(self, q: Tensor, known: Tensor) -> Tensor:
        asked = q @ _own(self.query_weight)
        return _Met.apply(asked, known.to(asked.dtype), self.out_weight.to(asked.dtype))  # type: ignore[no-any-return,no-untyped-call]


class _Met(torch.autograd.Function):
    """w₂ᵀ tanh(k + q) of every query with every key.

    The gradient works the tanh out once more: a decoder that asks once for each of its words would otherwise keep as
    many tensors of the size of all keys.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, weight)
        return (_met(q, k) @ _own(weight[:, None])).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, weight = ctx.saved_tensors
        met = _met(q, k)
        by_head = (0, 2, 3)
        weight_grad = (
            grad.flatten() @ met.flatten(0, -2) if len(weight) == 1 else (grad[..., None] * met).sum(by_head))
        # 1 − tanh², times what comes from above
        grad = torch.ops.aten.tanh_backward(grad[..., None] * weight[:, None, None, :, 0], met)
        return grad.sum(3), grad.sum(2) if q.shape[2] > 1 else grad.squeeze(2), weight_grad.view_as(weight)


def _met(q: Tensor, k: Tensor) -> Float[Tensor, "batch heads queries keys head"]:
    """Every query meets every key before the nonlinearity."""
    return (q[:, :, :, None] + k[:, :, None]).tanh_()


class DistanceAttend(Attend):
    """−‖q − k‖² / 2σ²: the Gaussian kernel. The temperature plays the part of σ², so σ = 1 here."""

    def compare(self, q: Tensor, known: Tensor) -> Tensor:
        squares = q.square().sum(-1, keepdim=True) + known.square().sum(-1)[:, :, None]
        return q @ known.mT - squares / 2


def _own(weight: Float[Tensor, "heads *n"]) -> Tensor:
    """Each head's matrix; of one head, the matrix alone, with which all rows are one product."""
    return weight if len(weight) > 1 else weight.view(weight.shape[-2:])


def _from_zero(q: Tensor, k: Tensor) -> Places:
    return Places(whole(q.shape[2], q.device), whole(k.shape[2], k.device))


def _reached(span: tuple[int, int], mask: Mask, window: int, keys: int) -> tuple[int, int]:
    """From which key up to which the queries in a span of positions can see at all, key j standing at j."""
    first, stop = span
    return max(first - window, 0), min(stop if mask.causal else stop + window, keys)


def _cheaper_explicit(q: Tensor, k: Tensor) -> bool:
    """Whether to hold the weights costs less than to fuse them away."""
    if q.device.type == "cpu":
        slow = q.requires_grad or k.dtype == torch.bfloat16
        return slow and q.shape[2] * k.shape[2] <= EXPLICIT
    # The general kernels walk from the first key to the last in one program for each head; `few` takes no gradient.
    return q.requires_grad and q.shape[2] <= few.MOST and k.shape[2] >= MANY


def _sees_all(mask: Mask, places: Places | None) -> bool:
    """Whether the newest token looks, and every key stands before it. Only a CPU can tell without waiting."""
    return (
        places is not None and places.in_order and places.queries.shape[1] == 1 and places.queries.device.type == "cpu"
        and mask.only_causal and int(places.queries.min()) + 1 >= places.keys.shape[1])


def _collect(k: Float[Tensor, "lying groups keys head"],
             rows: Int[Tensor, "batch keys"] | None) -> Float[Tensor, "batch groups keys head"]:
    """Each row's keys, from the rows they lie in."""
    if rows is None:
        return k
    return k.gather(0, rows[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3]))


def _repeat(k: Tensor, heads: int) -> Tensor:
    """One key head for each query head: heads of a group are neighbours."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)


def _softmax(scores: Float[Tensor, "batch heads queries keys"],
             allowed: Bool[Tensor, "#batch 1 #queries keys"] | None) -> Tensor:
    if allowed is None:
        return scores.softmax(-1)
    # Not -inf: a row that may see nothing would be 0/0, and its gradient not a number.
    return scores.where(allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed


SCORES: dict[str, type[Attend]] = {
    "scaled-dot": ScaledDotAttend,
    "dot": DotAttend,
    "bilinear": BilinearAttend,
    "additive": AdditiveAttend,
    "distance": DistanceAttend,
}
