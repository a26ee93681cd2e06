"""Adapters: the model that was, plus few numbers that learn; together they are one matrix again."""

import copy

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoint import load_weights, named_tensors
from regard.models.build import text_encoder, translator
from regard.models.encoder import Encoder
from regard.nn.init import initialize
from regard.nn.lora import PARTS, adapt, adapters, merged
from regard.settings.schema import Tower

ALL = tuple(PARTS)
SMALL = Tower(width=12, depth=2, heads=4, ffn_width=20, dropout=0.0)
SHAPES = {"plain": SMALL, "shared keys": Tower(width=12, depth=2, heads=4, kv_heads=2, bias=False, dropout=0.0),
          "gated": Tower(width=12, depth=1, heads=2, activation="swiglu", dropout=0.0)}


def learned(tower: Tower, on: tuple[str, ...], *, scale: float = 2.0) -> tuple[Encoder, Encoder]:
    """An encoder, and the same with adapters that are no longer zero."""
    plain = text_encoder(tower, vocabulary=30)
    initialize(plain, seed=0)
    adapted = copy.deepcopy(plain)
    adapt(adapted, on, rank=3, scale=scale)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".adapters." in name:
                parameter.normal_(0, 0.3)
    return plain, adapted


def states(encoder: Encoder) -> Tensor:
    return encoder(encoder.embed(torch.arange(24).view(2, 12)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("on", [("q",), ("k",), ("v",), ("q", "v"), ("out", "up", "down"), ALL])
def test_a_model_with_adapters_is_the_one_with_the_merged_matrices(shape: str, on: tuple[str, ...]) -> None:
    plain, adapted = learned(SHAPES[shape], on)
    before = states(plain)
    load_weights(plain, merged(named_tensors(adapted), scale=2.0), origin="the merged")
    with torch.no_grad():
        # In double precision they are one; in single, sums differ in their last bits.
        torch.testing.assert_close(states(adapted.double()), states(plain.double()), rtol=1e-6, atol=1e-6)
        assert not torch.allclose(before, states(plain.float()), atol=1e-3)


def test_a_model_begins_as_what_it_was_before_it_had_adapters() -> None:
    plain = text_encoder(SMALL, vocabulary=30)
    initialize(plain, seed=0)
    adapted = text_encoder(SMALL, vocabulary=30)
    adapt(adapted, ALL, rank=3, scale=2.0)
    initialize(adapted, seed=1)
    adapted.load_state_dict(named_tensors(plain), strict=False)
    assert torch.equal(states(adapted), states(plain))
    assert all(bool(a.any()) and not b.any() for a, b in adapters(named_tensors(adapted)).values())


@pytest.mark.parametrize(("part", "changed"), [("q", slice(0, 12)), ("k", slice(12, 18)), ("v", slice(18, 24))])
def test_an_adapter_of_a_slice_leaves_the_other_rows_alone(part: str, changed: slice) -> None:
    plain, adapted = learned(SHAPES["shared keys"], (part,))
    name = "blocks.0.self.qkv.weight"
    before, after = named_tensors(plain)[name], merged(named_tensors(adapted), scale=2.0)[name]
    moved = (before != after).any(1)
    assert moved[changed].all()
    moved[changed] = False
    assert not moved.any()


def test_an_adapter_needs_no_gradient_of_the_matrix_it_belongs_to() -> None:
    _, adapted = learned(SMALL, ("q", "v"))
    for name, parameter in adapted.named_parameters():
        parameter.requires_grad_(".adapters." in name)
    states(adapted).square().sum().backward()
    for name, parameter in adapted.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == (".adapters." in name), name


def test_a_decoder_s_look_at_its_source_has_adapters_too() -> None:
    model = translator(SMALL, sources=30, targets=30)
    adapt(model, ("q", "k", "v"), rank=2, scale=1.0)
    layers = {name for name, _ in adapters(named_tensors(model))}
    assert {"decoder.blocks.0.cross.q", "decoder.blocks.0.cross.kv", "encoder.blocks.1.self.qkv"} <= layers


def test_adapters_work_in_the_precision_of_the_products() -> None:
    _, adapted = learned(SMALL, ALL)
    with torch.autocast("cpu", torch.bfloat16):
        close = states(adapted)
    torch.testing.assert_close(close.float(), states(adapted), rtol=0.1, atol=0.1)


def test_what_is_no_block_has_no_adapter() -> None:
    model = nn.ModuleDict({"up": nn.Linear(3, 3)})
    adapt(model, ALL, rank=1, scale=1.0)
    assert not adapters(named_tensors(model))
