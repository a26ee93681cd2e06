"""Weights under another rule are the definition's, from the very queries and keys of the pass."""

import numpy as np
import pytest
import torch

from regard.look.counterfactual import ask, scaled_and_not
from regard.look.measure import entropy
from regard.look.watch import watch
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Tower

SITE = "blocks.1.self"


@pytest.fixture
def decoder() -> Decoder:
    model = Decoder(Tower(width=32, depth=2, heads=4, dropout=0.0), vocabulary=40)
    initialize(model, seed=0)
    return model.eval()


def read(decoder: Decoder) -> torch.Tensor:
    with torch.no_grad():
        return decoder(decoder.embed(torch.arange(7)[None]))


def test_under_its_own_rule_the_weights_are_those_that_are_watched(decoder: Decoder) -> None:
    with watch(decoder) as seen:
        states = read(decoder)
    question, given = ask(decoder, SITE, lambda: read(decoder))
    np.testing.assert_allclose(question.weights(), seen[SITE].numpy(), atol=1e-6)
    assert torch.equal(given, states)
    assert np.array_equal(question.allowed(), np.tri(7, dtype=bool))


def test_a_mask_keeps_what_may_be_seen_and_makes_it_one(decoder: Decoder) -> None:
    question, _ = ask(decoder, SITE, lambda: read(decoder))
    product = question.weights(mask=Mask()) * question.allowed()
    np.testing.assert_allclose(product / product.sum(-1, keepdims=True), question.weights(), atol=1e-6)


def test_heat_makes_all_alike_and_cold_makes_one(decoder: Decoder) -> None:
    question, _ = ask(decoder, SITE, lambda: read(decoder))
    np.testing.assert_allclose(question.weights(mask=Mask(), temperature=1e6), 1 / 7, atol=1e-4)
    np.testing.assert_allclose(question.weights(temperature=1e-6).max(-1), 1, atol=1e-4)
    assert question.attend.temperature == 1


@pytest.mark.parametrize("seed", range(3))
def test_before_training_scaled_weights_are_spread_and_unscaled_ones_peaked(seed: int) -> None:
    scaled, unscaled = scaled_and_not(width=64, length=24, seed=seed)
    assert entropy(scaled).mean() > 0.8 * np.log2(24)
    assert entropy(unscaled).mean() < 0.4 * np.log2(24)


def test_hooks_are_gone_afterwards_even_after_an_error(decoder: Decoder) -> None:
    with pytest.raises(ZeroDivisionError):
        ask(decoder, SITE, lambda: 1 / 0)
    assert not any(module._forward_pre_hooks for module in decoder.modules())
