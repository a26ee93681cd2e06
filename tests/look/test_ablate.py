"""A model without a head is the model whose output projection never heard of it."""

import pytest
import torch
from torch import Tensor

from regard.look.ablate import without
from regard.look.watch import sites
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Tower

SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 13], [1, 14, 15, 0]])


@pytest.fixture
def model() -> EncoderDecoder:
    model = translator(Tower(width=32, depth=2, heads=4, dropout=0.0), sources=40, targets=40)
    initialize(model, seed=0)
    return model.eval()


@torch.no_grad()
def read(model: EncoderDecoder) -> Tensor:
    return model(SOURCE, TARGET, mask=Mask(keys=SOURCE != 0))


@pytest.mark.parametrize("site", ["encoder.blocks.0.self", "decoder.blocks.1.self", "decoder.blocks.0.cross"])
@pytest.mark.parametrize("head", [0, 3])
def test_a_head_removed_is_its_part_of_the_projection_removed(model: EncoderDecoder, site: str, head: int) -> None:
    with without(model, site, head):
        removed = read(model)
    assert not torch.allclose(removed, read(model), atol=1e-4)
    out = model.get_submodule(site).out
    out.weight.data[:, head * 8 : head * 8 + 8] = 0
    torch.testing.assert_close(removed, read(model))


def test_the_model_is_as_it_was_afterwards(model: EncoderDecoder) -> None:
    before = read(model)
    with pytest.raises(ZeroDivisionError), without(model, "decoder.blocks.1.cross", 2):
        raise ZeroDivisionError
    assert torch.equal(before, read(model))
    assert not any(attend._forward_hooks for attend in sites(model).values())
