"""Tensors leave a model under one name each and find their way back."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.checkpoint import load_weights, named_tensors, write_model
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.schema import Tower


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in model.parameters()])


def tower(tied: str) -> EncoderDecoder:
    model = translator(Tower(width=16, depth=1, heads=2, tied=tied), sources=50, targets=50)
    initialize(model, seed=0)
    return model


def test_tied_weights_are_saved_once_and_come_back_tied(tmp_path: Path) -> None:
    model, other = tower("all"), tower("all")
    saved = named_tensors(model)
    assert sum(tensor.shape == (50, 16) for tensor in saved.values()) == 1
    write_model(tmp_path, saved, {})
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_weights(other, load_file(tmp_path / "model.safetensors"), origin="here")
    assert other.encoder.inputs.tokens.table.weight is other.decoder.tokens.table.weight is other.decoder.output.weight
    assert torch.equal(weights(other), weights(model))


def test_separate_weights_are_all_saved() -> None:
    assert sum(tensor.shape == (50, 16) for tensor in named_tensors(tower("none")).values()) == 3


def test_weights_that_do_not_fit_are_named_and_none_is_loaded() -> None:
    model = tower("all")
    before = weights(model)
    tensors = {name: torch.zeros_like(tensor) for name, tensor in named_tensors(model).items()}
    tensors["encoder.blocks.0.self.out.wieght"] = tensors.pop("encoder.blocks.0.self.out.weight")
    tensors["decoder.norm.weight"] = torch.zeros(17)
    with pytest.raises(UserError) as caught:
        load_weights(model, tensors, origin="model.safetensors")
    message = str(caught.value)
    assert message.startswith("model.safetensors does not fit the model: ")
    assert "decoder.norm.weight: (17,) instead of (16,)" in message
    assert "encoder.blocks.0.self.out.weight: missing" in message
    assert "encoder.blocks.0.self.out.wieght: unknown" in message
    assert torch.equal(weights(model), before)


def test_of_many_tensors_that_do_not_fit_some_are_named_and_the_rest_counted() -> None:
    model = tower("all")
    with pytest.raises(UserError, match=rf"\(and {len(named_tensors(model)) - 8} more\)"):
        load_weights(model, {}, origin="here")


def test_of_tensors_that_share_their_memory_only_equal_ones_are_one() -> None:
    """A part of a matrix begins where the matrix does; nothing empty lies anywhere."""
    model = nn.Module()
    matrix = torch.arange(6.0).reshape(2, 3)
    for name, tensor in {"matrix": matrix, "again": matrix, "row": matrix[0], "turned": matrix.T,
                         "empty": torch.empty(0), "hollow": torch.empty(0)}.items():
        model.register_buffer(name, tensor)
    assert list(named_tensors(model)) == ["matrix", "row", "turned", "empty", "hollow"]
