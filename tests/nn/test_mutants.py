"""A proof that the proof can fail: each fault, put into a fast way of attention by hand, is seen by the comparison."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attention_cases import HEADS, Case, agree, call
from attention_paths import WAYS, forced, patched, with_faulty_kernel
from regard.kernels.calls import AttentionCall
from regard.nn.attend import AttentionPositions, Bias
from regard.nn.mask import Mask

Wrap = Callable[[Any], Any]

# Few calls that together have everything: masks, biases, shared keys, a cache, a window in blocks, a temperature.
CASES = [
    Case(mask="causal", queries=6, keys=6, temperature=1.5),
    Case(mask="causal keys", queries=6, keys=6, groups=2, temperature=1.5),
    Case(mask="causal", queries=2, keys=7, start=3),
    Case(mask="none", bias="relative", queries=6, keys=6, temperature=1.5),
    Case(mask="causal window", queries=12, keys=12),
    Case(mask="keys", queries=6, keys=6, temperature=1.5),
]


def kernel(change: Callable[..., Tensor]) -> tuple[Any, str, Wrap]:
    """A fault of torch's kernel: how it is called, or what comes out."""
    return F, "scaled_dot_product_attention", lambda whole: lambda q, k, v, **how: change(whole, q, k, v, **how)


def called(**changes: Callable[[Any], Any]) -> tuple[Any, str, Wrap]:
    """A fault of the kernel's named arguments."""
    def change(whole: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
        return whole(q, k, v, **how | {name: fault(how[name]) for name, fault in changes.items()})

    return kernel(change)


def masked(fault: Callable[[Mask], Mask]) -> tuple[Any, str, Wrap]:
    """A fault of the mask on its way to the kernel."""
    return with_faulty_kernel("attention.sdpa", lambda call: call._replace(mask=fault(call.mask)))


def biased(fault: Callable[[Bias, float], Bias]) -> tuple[Any, str, Wrap]:
    """A fault of the bias on its way to the kernel."""
    return with_faulty_kernel(
        "attention.sdpa", lambda call: call._replace(bias=call.bias and fault(call.bias, call.temperature)))


def placed(fault: Callable[[AttentionPositions], AttentionPositions]) -> tuple[Any, str, Wrap]:
    """A fault of the positions on their way to the kernel."""
    return with_faulty_kernel(
        "attention.sdpa", lambda call: call._replace(positions=call.positions and fault(call.positions)))


def windowed(fault: Callable[[int], int]) -> tuple[Any, str, Wrap]:
    """A fault of the window on its way to the blocks."""
    return with_faulty_kernel("attention.window_blocks", lambda call: call._replace(
        mask=replace(call.mask, window=fault(call.mask.window or 0))))


def of_the_products(call: Callable[[AttentionCall], AttentionCall] = lambda call: call,
                    out: Callable[[Tensor], Tensor] = lambda out: out) -> tuple[Any, str, Wrap]:
    """A fault of the batched products."""
    return with_faulty_kernel("attention.batched", call, out)


def of_held_weights(call: Callable[[AttentionCall], AttentionCall] = lambda call: call,
                    out: Callable[[Tensor], Tensor] = lambda out: out) -> tuple[Any, str, Wrap]:
    """A fault of the kernel that holds the weights."""
    return with_faulty_kernel("attention.explicit", call, out)


def half_of_the_gradient(x: Tensor) -> Tensor:
    return (x + x.detach()) / 2


def only_bools(fault: Callable[[Tensor], Tensor]) -> Callable[[Tensor | None], Tensor | None]:
    return lambda added: fault(added) if added is not None and added.dtype == torch.bool else added


FUSED = {
    "causality off": called(is_causal=lambda _: False),
    "mask rolled by a key": called(attn_mask=only_bools(lambda allowed: allowed.roll(1, -1))),
    "mask inverted": called(attn_mask=only_bools(Tensor.logical_not)),
    "mask left out": called(attn_mask=only_bools(torch.ones_like)),
    "scale times 1.3": called(scale=lambda scale: 1.3 * scale),
    "scale times 1.001": called(scale=lambda scale: 1.001 * scale),
    "temperature left out": kernel(
        lambda whole, q, k, v, **how: whole(q, k, v, **how | {"scale": q.shape[-1] ** -0.5})),
    "heads permuted": kernel(lambda whole, *given, **how: whole(*given, **how).roll(1, 1)),
    "queries rolled": kernel(lambda whole, q, k, v, **how: whole(q.roll(1, 2), k, v, **how)),
    "values rolled": kernel(lambda whole, q, k, v, **how: whole(q, k, v.roll(1, 2), **how)),
    "shared keys of the wrong group": kernel(lambda whole, q, k, v, **how: whole(
        q, k.roll(1, 1) if k.shape[1] < HEADS else k, v, **how)),
    "dropout at evaluation": called(dropout_p=lambda _: 0.1),
    "half of the queries' gradient": kernel(lambda whole, q, k, v, **how: whole(half_of_the_gradient(q), k, v, **how)),
    "half of the keys' gradient": kernel(lambda whole, q, k, v, **how: whole(q, half_of_the_gradient(k), v, **how)),
    "half of the values' gradient": kernel(lambda whole, q, k, v, **how: whole(q, k, half_of_the_gradient(v), **how)),
    "key mask dropped": masked(lambda mask: replace(mask, keys=None)),
    "window too wide by one": windowed(lambda window: window + 1),
    "window too narrow by one": windowed(lambda window: window - 1),
    "bias times 1.5": biased(lambda bias, _: lambda q, k: 1.5 * bias(q, k)),
    "bias not divided by the temperature": biased(lambda bias, t: lambda q, k: t * bias(q, k)),
    "bias left out": biased(lambda bias, _: lambda q, k: 0.0 * bias(q, k)),
    "sign of relative positions": biased(lambda bias, _: lambda q, k: bias(-q, -k)),
    "bias without a gradient": biased(lambda bias, _: lambda q, k: half_of_the_gradient(bias(q, k))),
    "cache off by one": placed(lambda places: places._replace(queries=places.queries + 1)),
    "positions left out": placed(lambda places: places._replace(queries=places.queries - places.queries[:, :1])),
}
BATCHED = {
    "key mask dropped": of_the_products(lambda call: call._replace(mask=Mask())),
    "scale times 1.3": of_the_products(lambda call: call._replace(scale=1.3 * call.scale)),
    "dropout at evaluation": of_the_products(lambda call: call._replace(dropout=0.1)),
    "heads permuted": of_the_products(out=lambda out: out.roll(1, 1)),
    "half of the keys' gradient": of_the_products(lambda call: call._replace(k=half_of_the_gradient(call.k))),
}
EXPLICIT = {
    "causality off": of_held_weights(lambda call: call._replace(mask=replace(call.mask, causal=False))),
    "scale times 1.3": of_held_weights(lambda call: call._replace(scale=1.3 * call.scale)),
    "temperature left out": of_held_weights(lambda call: call._replace(temperature=1.0)),
    "bias left out": of_held_weights(lambda call: call._replace(bias=None)),
    "window too wide by one": of_held_weights(lambda call: call._replace(
        mask=replace(call.mask, window=None if call.mask.window is None else call.mask.window + 1))),
    "dropout at evaluation": of_held_weights(lambda call: call._replace(dropout=0.1)),
    "positions left out": of_held_weights(lambda call: call._replace(positions=None)),
    "half of the values' gradient": of_held_weights(lambda call: call._replace(v=half_of_the_gradient(call.v))),
}
FAULTS = {"fused": FUSED, "batched": BATCHED, "explicit": EXPLICIT}


@pytest.mark.parametrize(("path", "fault"), [
    (path, fault) for path, faults in FAULTS.items() for fault in faults])
def test_a_fault_in_a_fast_way_of_attention_fails_the_comparison(path: str, fault: str) -> None:
    seen = []
    with patched(*FAULTS[path][fault]), forced(path):
        for case in CASES:
            try:
                agree(call(replace(case, seed=1)))
            except AssertionError:
                seen.append(case)
    assert seen


@pytest.mark.parametrize("path", WAYS)
def test_without_a_fault_it_holds(path: str) -> None:
    with forced(path) as taken:
        for case in CASES:
            agree(call(replace(case, seed=1)))
    assert path in taken
