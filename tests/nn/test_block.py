"""One layer: norms, feed-forward and residual sums, against their formulas."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.attention import Memory
from regard.nn.block import Block, PostNormBlock, norm
from regard.nn.feed_forward import FeedForward
from regard.nn.mask import Mask
from regard.nn.positions import Positions
from regard.settings.schema import Tower

TOWER = replace(Tower(), width=8, heads=2, ffn_width=12, dropout=0.0)
PHI = {
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu-tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
GATED = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


def ready(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hidden", [8, 3, 32])
@pytest.mark.parametrize("activation", PHI)
def test_the_feed_forward_is_phi_of_x_w1_times_w2(activation: str, hidden: int, bias: bool) -> None:
    part, x = ready(FeedForward(8, hidden, activation=activation, bias=bias)), torch.randn(2, 5, 8)
    b1, b2 = (part.up.bias, part.down.bias) if bias else (0, 0)
    assert (part.up.bias is not None) == bias
    expected = PHI[activation](x @ part.up.weight.T + b1) @ part.down.weight.T + b2
    torch.testing.assert_close(part(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", GATED)
def test_a_gated_feed_forward_is_phi_of_x_w1_by_x_v_times_w2(activation: str) -> None:
    part, x = ready(FeedForward(8, 12, activation=activation, bias=False)), torch.randn(2, 5, 8)
    first, gated = part.up.weight.split(12)
    expected = (PHI[GATED[activation]](x @ first.T) * (x @ gated.T)) @ part.down.weight.T
    torch.testing.assert_close(part(x), expected, rtol=1e-4, atol=1e-4)


def test_the_feed_forward_sees_each_token_alone() -> None:
    part, x = ready(FeedForward(8, 12)), torch.randn(2, 5, 8)
    alone = torch.cat([part(token) for token in x.split(1, dim=1)], dim=1)
    torch.testing.assert_close(part(x), alone)


@given(st.floats(1e-8, 0.1), st.floats(0.01, 100))
def test_layer_norm_is_centred_and_divided_by_the_deviation(epsilon: float, size: float) -> None:
    part, x = ready(norm(replace(TOWER, norm_epsilon=epsilon))), size * torch.randn(2, 5, 8)
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()
    torch.testing.assert_close(part(x), scaled * part.weight + part.bias, rtol=1e-4, atol=1e-4)


@given(st.floats(1e-8, 0.1), st.floats(0.01, 100))
def test_rms_norm_is_divided_by_the_root_mean_square_alone(epsilon: float, size: float) -> None:
    part, x = ready(norm(replace(TOWER, norm="rms", norm_epsilon=epsilon))), size * torch.randn(2, 5, 8)
    scaled = x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()
    torch.testing.assert_close(part(x), scaled * part.weight, rtol=1e-4, atol=1e-4)


def test_without_biases_there_are_none() -> None:
    block = Block(replace(TOWER, bias=False), positions=Positions(), memory_width=8)
    assert not [name for name, _ in block.named_parameters() if name.endswith("bias")]


def block_and_input(place: str, *, memory: bool) -> tuple[Block, Tensor, Memory | None]:
    tower = replace(TOWER, norm_place=place)
    block = ready((PostNormBlock if tower.norm_place == "post" else Block)(
        tower, positions=Positions(), memory_width=8 if memory else None))
    return block, torch.randn(2, 5, 8), Memory(torch.randn(2, 3, 8)) if memory else None


@pytest.mark.parametrize("with_memory", [True, False])
def test_post_norm_is_the_norm_of_x_plus_part_of_x(with_memory: bool) -> None:
    block, x, memory = block_and_input("post", memory=with_memory)
    expected = block.self_norm(x + block.self(x, mask=Mask(causal=True)))
    if with_memory:
        expected = block.cross_norm(expected + block.cross(expected, memory))
    expected = block.feed_forward_norm(expected + block.feed_forward(expected))
    torch.testing.assert_close(block(x, memory, mask=Mask(causal=True)), expected)


@pytest.mark.parametrize("with_memory", [True, False])
def test_pre_norm_is_x_plus_part_of_the_norm_of_x(with_memory: bool) -> None:
    block, x, memory = block_and_input("pre", memory=with_memory)
    expected = x + block.self(block.self_norm(x), mask=Mask(causal=True))
    if with_memory:
        expected = expected + block.cross(block.cross_norm(expected), memory)
    expected = expected + block.feed_forward(block.feed_forward_norm(expected))
    torch.testing.assert_close(block(x, memory, mask=Mask(causal=True)), expected)


def test_dropout_acts_in_training_alone() -> None:
    block = ready(Block(replace(TOWER, dropout=0.5), positions=Positions()))
    x = torch.randn(2, 5, 8)
    assert torch.equal(block(x, mask=Mask()), block(x, mask=Mask()))
    block.train()
    assert not torch.equal(block(x, mask=Mask()), block(x, mask=Mask()))
