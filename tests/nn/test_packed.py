"""Packed weights give what plain ones give."""

import pytest
import torch
from torch import nn

from regard.nn.packed import PackedLinear, pack


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (3, 1), (2, 7), (1_100,)])
@torch.no_grad()
def test_packed_weights_multiply_as_plain_ones(bias: bool, shape: tuple[int, ...]) -> None:
    layer, x = nn.Linear(37, 53, bias=bias), torch.randn(*shape, 37)
    model = nn.Sequential(layer)
    wanted = model(x)
    pack(model)
    assert isinstance(model[0], PackedLinear)
    assert (model(x) - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_what_is_not_of_float32_stays_as_it_is() -> None:
    model = nn.ModuleDict({"narrow": nn.Linear(4, 4, dtype=torch.bfloat16), "output": nn.Linear(4, 4)})
    pack(model)
    assert [type(part) for part in model.values()] == [nn.Linear, nn.Linear]
