"""The decode step: one new token of each row through all blocks. `Block` is its definition.

A product with one row takes about 50 µs on a CPU and less on a GPU. Python's overhead for a general mask, cache
and number of tokens takes nearly as long again, and so does each launch. Here the choices are made once for many
steps, and on a GPU norms, nonlinearities and residual sums join the products beside them.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from functools import partial
from itertools import count
from operator import getitem, is_
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels import attention_batched, attention_explicit, attention_sdpa, linear_onednn
from regard.kernels.calls import AttentionCall, LinearCall, NormCall
from regard.kernels.fixed_kv_cache import FixedCache
from regard.kernels.fused_linear import ACTIVATIONS, Slots, few_rows, fused_linear, projected_into_cache, weights_of
from regard.kernels.kernel import Kernel, allowed, choose
from regard.kernels.norm import norm_of_sum, normed
from regard.nn.kv_cache import BlockCache, LayerCache, Stored
from regard.nn.mask import Mask

__all__ = ["CPU", "GPU", "DecodeCall", "DecodePlan"]

Product = Callable[[Tensor], Tensor]

_numbers = count()


class DecodePlan:
    """The blocks of one decoder, laid out for many steps."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        self.number = next(_numbers)
        """Identifies the plan in cached kernel choices, so that they hold no reference to its weights."""
        self.blocks: Sequence[Any] = list(blocks)
        # A hook on a module that is passed over would never be called.
        self.hooks, self.attention_hooks = list[dict[int, Any]](), list[dict[int, Any]]()
        # Where each part and each weight is held, its name there, and the thing itself.
        self.holders, self.names, self.parts = list[dict[str, Any]](), list[str](), list[object]()
        for part in blocks.modules():
            hooks = self.attention_hooks if hasattr(type(part), "scores") else self.hooks
            hooks += part._forward_hooks, part._forward_pre_hooks
            for held in (part._modules, part._parameters):
                self.holders += [held] * len(held)
                self.names += held
                self.parts += held.values()
        self.is_plain = all(map(_is_plain, self.blocks))
        self.on_cpu: tuple[Hashable, list[_CpuLayer]] = None, []

    def __deepcopy__(self, known: dict[int, Any]) -> "DecodePlan":
        """A copied state goes on with the same weights; only what is laid out for its rows is its own."""
        plan = copy(self)
        plan.on_cpu = None, []
        return plan

    def is_current(self) -> bool:
        """Whether the blocks still have the parts and the weights that the plan was made from."""
        return all(map(is_, map(getitem, self.holders, self.names), self.parts))

    def has_no_hooks(self) -> bool:
        return not any(self.hooks)

    def has_unwatched_attention(self) -> bool:
        """Only a CPU passes attention over; on a GPU it is called, and so are its hooks."""
        return not any(self.attention_hooks)


class DecodeCall(NamedTuple):
    """One token of each row, after the embedding and before the last norm."""

    plan: DecodePlan
    x: Tensor  # (rows, 1, width)
    positions: Tensor
    caches: Sequence[BlockCache]
    mask: Mask
    memory: Any
    in_order: bool
    """All rows stand at one position, and the keys of each lie in its own row, or in a store that it shares."""

    @property
    def cache_key(self) -> Hashable:
        plan = self.plan
        return (plan.number, self.x.shape, self.in_order, self.mask.only_causal, plan.blocks[0].training,
                plan.has_no_hooks(), plan.has_unwatched_attention(), plan.is_current())


# On a CPU: a token that sees all that came before it, and perhaps a memory.


def _serves_cpu(call: DecodeCall) -> bool:
    x, plan = call.x, call.plan
    return (
        x.shape[1] == 1 and call.in_order and call.mask.only_causal and plan.is_plain
        and not plan.blocks[0].training and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        and plan.has_no_hooks() and plan.has_unwatched_attention() and plan.is_current())


def _run_cpu(call: DecodeCall) -> Tensor:
    x, layouts = call.x, linear_onednn.layouts_in_use()
    made_for, layers = call.plan.on_cpu
    if made_for != (now := (len(x), x.dtype, layouts and layouts.choices, allowed())):
        layers = [_CpuLayer(block, x) for block in call.plan.blocks]
        call.plan.on_cpu = now, layers
    for layer, cache in zip(layers, call.caches, strict=True):
        x = layer(x, call, cache)
    return x


def _is_plain(block: Any) -> bool:
    """Whether its attentions are dot products of heads of one width, without a bias."""
    attentions = [block.self] if block.cross is None else [block.self, block.cross]
    return (all(each.equal and isinstance(each.attend.scale, float) for each in attentions)
            and block.self.positions.bias() is None)


def _product(layer: nn.Module, like: Tensor) -> Product:
    """The layer's product of an input of such a shape, the kernel chosen once."""
    if not getattr(layer, "is_plain", False):  # its weights are packed, or otherwise its own affair
        return layer.forward
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    x = like.new_empty(len(like), 1, weight.shape[1])
    if choose((linear_onednn.KERNEL,), LinearCall(x, weight, bias), x) is None:  # type: ignore[arg-type]
        return partial(F.linear, weight=weight, bias=bias)  # type: ignore[arg-type]
    return lambda x: linear_onednn.run(LinearCall(x, weight, bias))  # type: ignore[arg-type]


def _norm(norm: Any, like: Tensor) -> Product:
    """The definition. Where nothing has to be turned into another precision, with its arguments at hand."""
    _, weight, bias, kind, epsilon, definition = norm.call(like)
    if kind != "layer":
        return definition  # type: ignore[no-any-return]
    shape = weight.shape

    def normed(x: Tensor) -> Tensor:
        if x.dtype != weight.dtype or (bias is not None and x.dtype != bias.dtype):
            return definition(x)  # type: ignore[no-any-return]
        return F.layer_norm(x, shape, weight, bias, epsilon)

    return normed


class _CpuLayer:
    """The computation of a block, with its parts looked up in advance."""

    def __init__(self, block: Any, like: Tensor) -> None:
        attention, feed_forward = block.self, block.feed_forward
        self.post, self.attention = block.post, attention
        self.self_norm, self.feed_norm = _norm(block.self_norm, like), _norm(block.feed_forward_norm, like)
        self.qkv, self.out = _product(attention.qkv, like), _product(attention.out, like)
        self.up, self.down = _product(feed_forward.up, like), _product(feed_forward.down, like)
        activation = feed_forward.activation
        self.activation = activation.forward if activation.gated else activation.bend
        self.heads, self.head = [attention.heads, attention.groups, attention.groups], attention.head
        self.shared = attention.heads != attention.groups
        self.factor = attention.attend.scale / attention.attend.temperature
        self.rotate, self.qk_norm = attention.positions.rotate, attention.qk_norm
        self.stores_plain_keys = attention.stores_plain_keys
        self.cross = None if block.cross is None else _CpuCross(block, like)

    def __call__(self, x: Tensor, call: DecodeCall, cache: BlockCache) -> Tensor:
        if self.post:
            x = self.self_norm(x + self.attend(x, call, cache.own))
            if self.cross is not None:
                x = self.cross.norm(x + self.cross(x, call, cache))
            return self.feed_norm(x + self.feed(x))
        x = x + self.attend(self.self_norm(x), call, cache.own)
        if self.cross is not None:
            x = x + self.cross(self.cross.norm(x), call, cache)
        return x + self.feed(self.feed_norm(x))

    def attend(self, x: Tensor, call: DecodeCall, cache: LayerCache) -> Tensor:
        rows = x.shape[0]
        heads = self.qkv(x).view(rows, -1, 1, self.head)  # of one token: nothing has to change places
        q, k, v = heads.split_with_sizes(self.heads, 1)
        if self.qk_norm:
            q, k = self.attention.query_norm(q), self.attention.key_norm(k)
        if not self.stores_plain_keys:
            q, k = self.rotate(q, call.positions), self.rotate(k, call.positions)
        stored = cache.append(k, v, positions=call.positions)
        if stored.visible_keys is not None:
            return self.out(self.attend_to_shared(q, stored, call).reshape(rows, 1, -1).to(x.dtype))
        context = F.scaled_dot_product_attention(
            q.to(stored.k.dtype), stored.k, stored.v, scale=self.factor, enable_gqa=self.shared)
        return self.out(context.view(rows, 1, -1).to(x.dtype))

    def attend_to_shared(self, q: Tensor, stored: Stored, call: DecodeCall) -> Tensor:
        """Rows that share a store of keys are more queries of it."""
        attend = self.attention.attend
        q = q.unflatten(0, (len(stored.k), -1)).transpose(1, 2).flatten(2, 3)
        asked = AttentionCall(q, stored.k, stored.v, call.mask, stored.places(call.positions), None, attend.scale,
                              attend.temperature, 0.0, attend.context)
        return attention_explicit.run(asked).transpose(1, 2)

    def feed(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class _CpuCross:
    """A look at the memory. The kernel is chosen at the first token: for the others nothing is different."""

    def __init__(self, block: Any, like: Tensor) -> None:
        cross = block.cross
        self.norm = _norm(block.cross_norm, like)
        self.q, self.out, self.attention = _product(cross.q, like), _product(cross.out, like), cross
        self.kernel: Kernel[AttentionCall, Tensor] | None = None
        self.is_chosen = False

    def __call__(self, x: Tensor, call: DecodeCall, cache: BlockCache) -> Tensor:
        known, cross, attend = cache.cross, self.attention, self.attention.attend
        assert known is not None
        q = cross.split(self.q(x).reshape(len(known.keys), -1, cross.query_width))
        asked = AttentionCall(q, known.keys, known.values, call.memory.mask, None, None, attend.scale,
                              attend.temperature, 0.0, attend.context)
        if not self.is_chosen:
            self.kernel, self.is_chosen = choose(TO_MEMORY, asked, q), True
        context = attend.context(asked) if self.kernel is None else self.kernel.run(asked)
        return self.out(cross.merge(context).reshape(len(x), 1, -1))


TO_MEMORY = (attention_batched.KERNEL, attention_explicit.KERNEL, attention_sdpa.KERNEL)  # those of a CPU, in order


# On a GPU: any mask, any cache, with a memory or without.


def _serves_gpu(call: DecodeCall) -> bool:
    x, plan = call.x, call.plan
    return (x.shape[1] == 1 and not plan.blocks[0].training and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cuda") and plan.has_no_hooks())


def _run_gpu(call: DecodeCall) -> Tensor:
    x = call.x
    for block, cache in zip(call.plan.blocks, call.caches, strict=True):
        x = _gpu_layer(block, x, cache, call)
    return x


def _gpu_layer(block: Any, x: Tensor, cache: BlockCache, call: DecodeCall) -> Tensor:
    x = _residual(block, x, block.self_norm, partial(_self_attention, block.self, cache=cache.own, call=call))
    if block.cross is not None:
        x = _residual(block, x, block.cross_norm, partial(_cross_attention, block.cross, cache=cache, call=call))
    return _residual(block, x, block.feed_forward_norm, partial(_feed_forward, block.feed_forward))


def _residual(block: Any, x: Tensor, norm: Any, part: Callable[..., Tensor]) -> Tensor:
    if block.post:
        return norm_of_sum(norm.call(x), part(x, norm=None, add=None))
    return part(x, norm=norm.call(x), add=x)


def _self_attention(attention: Any, x: Tensor, *, norm: NormCall | None, add: Tensor | None, cache: LayerCache,
                    call: DecodeCall) -> Tensor:
    here, weights = call.positions, weights_of(attention.qkv)
    q = None
    if isinstance(cache, FixedCache) and attention.stores_plain_keys and weights is not None:
        q = projected_into_cache(x, weights, Slots(cache.keys, cache.values, here), norm=norm)
    if q is not None:
        assert isinstance(cache, FixedCache)
        q, stored = attention.split(q), cache.stored()
    else:
        q, k, v = attention.projected(linear(x, attention.qkv, norm=norm), here)
        stored = cache.append(k, v, positions=here)
    context = attention.attend(q, stored.k, stored.v, mask=call.mask, positions=stored.places(here),
                               bias=attention.positions.bias()).context
    return linear(attention.merge(context), attention.out, add=add)


def _cross_attention(attention: Any, x: Tensor, *, norm: NormCall | None, add: Tensor | None, cache: BlockCache,
                     call: DecodeCall) -> Tensor:
    known = cache.cross
    assert known is not None
    q = attention.split(linear(x, attention.q, norm=norm).reshape(len(known.keys), -1, attention.query_width))
    context = attention.attend(q, known.keys, known.values, mask=call.memory.mask).context
    return linear(attention.merge(context).reshape(len(x), -1, attention.merged_width), attention.out, add=add)


def _feed_forward(feed_forward: Any, x: Tensor, *, norm: NormCall | None, add: Tensor | None) -> Tensor:
    weights, activation = weights_of(feed_forward.up), feed_forward.activation
    if weights is not None and few_rows(x, weights) and activation.name in ACTIVATIONS:
        h = fused_linear(x, weights, norm=norm, activation=activation.name, gated=activation.gated)
    else:
        h = feed_forward.hidden(x if norm is None else normed(norm))
    return linear(h, feed_forward.down, add=add)


def linear(x: Tensor, layer: nn.Module, *, norm: NormCall | None = None, add: Tensor | None = None) -> Tensor:
    """add + layer(norm(x)), in one kernel where there are few rows."""
    weights = weights_of(layer)
    if weights is not None and few_rows(x, weights) and (add is None or add.is_contiguous()):
        return fused_linear(x, weights, norm=norm, add=add)
    y: Tensor = layer(x if norm is None else normed(norm))
    return y if add is None else add + y


CPU = Kernel("decode_step.cpu", _serves_cpu, _run_cpu, device="cpu")
GPU = Kernel("decode_step.gpu", _serves_gpu, _run_gpu, device="gpu")
