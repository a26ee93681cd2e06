"""torch's own fused attention, on any device: the last resort before the definition."""

import math

import torch.nn.functional as F
from torch import Tensor

from regard.kernels.attention_explicit import collected
from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel
from regard.nn.mask import AttentionPositions, Mask

__all__ = ["KERNEL", "mixed"]


def serves(call: AttentionCall) -> bool:
    return call.positions is None or call.positions.visible_keys is None


def run(call: AttentionCall) -> Tensor:
    out, call = call.q.dtype, call.scaled
    # The kernel's own causality counts queries and keys from 0: right only where no positions are given.
    causal = call.positions is None and call.bias is None and call.mask.only_causal
    places = call.places
    sees_all = causal or _sees_all(call.mask, call.positions)
    allowed = None if sees_all else call.mask.dense(places.queries, places.keys)
    call = call._replace(k=collected(call.k, places.rows), v=collected(call.v, places.rows))
    return mixed(call, allowed, places, causal=causal).to(out)


def mixed(call: AttentionCall, allowed: Tensor | None, places: AttentionPositions, *, causal: bool = False) -> Tensor:
    """Queries with those keys that are allowed. The call is `scaled`."""
    q, k, added = call.q, call.k, allowed
    if call.bias is not None:
        added = (call.bias(places.queries, places.keys) / call.temperature).to(q.dtype)
        if allowed is not None:
            added = added.masked_fill(~allowed, -math.inf)
    if added is not None and added.shape[2] != q.shape[2]:  # the kernels broadcast over rows and heads only
        added = added.expand(-1, -1, q.shape[2], -1)
    context = F.scaled_dot_product_attention(
        q, k, call.v, attn_mask=added, is_causal=causal, scale=call.factor, dropout_p=call.dropout,
        enable_gqa=q.shape[1] != k.shape[1])
    if allowed is not None:
        # Some kernels give the mean of all values to a row that may see nothing.
        context = context.where(allowed.any(-1, keepdim=True), 0.0)
    return context


def _sees_all(mask: Mask, places: AttentionPositions | None) -> bool:
    """True where the newest token looks, and every key stands before it. Only a CPU can tell without waiting."""
    return (
        places is not None and places.in_order and places.queries.shape[1] == 1 and places.queries.device.type == "cpu"
        and mask.only_causal and int(places.queries.min()) + 1 >= places.keys.shape[1])


KERNEL = Kernel("attention.sdpa", serves, run)
