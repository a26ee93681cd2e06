"""docs/lectures.md: both sides of every point on which the lectures disagree."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.look.rollout import rollout
from regard.models.build import text_encoder
from regard.models.encoder import Encoder
from regard.models.parts import input_positions
from regard.nn.block import Block, PostNormBlock
from regard.nn.head import pooled
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.load import load
from regard.training import dry_run
from regard.verbs import plan
from regard.verbs.train import settled

PAGE = (Path(__file__).parents[1] / "docs" / "lectures.md").read_text(encoding="utf-8")
SMALL = ["model.width=16", "model.depth=2", "model.heads=2", "model.dropout=0"]


def encoder(*settings: str) -> Encoder:
    model = text_encoder(load(overrides=[*SMALL, *settings]).model, vocabulary=20)
    initialize(model, seed=0)
    return model.double().eval()


def shuffled(model: Encoder) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States and means of a text and of the same text in another order, whose states are put back."""
    tokens, order = torch.arange(7)[None], torch.tensor([3, 0, 5, 1, 6, 2, 4])
    real = torch.ones(1, 7, dtype=torch.bool)
    with torch.no_grad():
        states, other = model(model.embed(tokens)), model(model.embed(tokens[:, order]))
    return (states, other[:, order.argsort()], pooled(states, real, how="mean"), pooled(other, real, how="mean"))


def test_the_page_has_six_points_whose_settings_exist() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "one says" not in line]
    assert len(rows) == 6
    for row in rows:
        default, other = row.split("|")[4:6]
        assert default.strip()
        assert other.strip()
        load(overrides=re.findall(r"`(model\.\w+=\w+)`", other))
        of_default = re.findall(r"`(model\.\w+=\w+)`", default)
        assert load(overrides=of_default) == load(), "is the default"


def test_without_positions_states_are_equivariant_and_their_mean_invariant_and_with_them_neither() -> None:
    states, back, mean, other_mean = shuffled(encoder("model.positions=none"))
    torch.testing.assert_close(back, states, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(other_mean, mean, rtol=1e-10, atol=1e-12)
    states, back, mean, other_mean = shuffled(encoder("model.positions=sinusoidal"))
    assert (back - states).abs().max() > 1e-2
    assert (other_mean - mean).abs().max() > 1e-3


def test_sinusoidal_frequencies_are_geometric_and_fourier_ones_linear() -> None:
    sinusoidal, fourier = (input_positions(load(overrides=[*SMALL, f"model.positions={kind}"]).model).frequencies
                           for kind in ("sinusoidal", "fourier"))
    assert isinstance(sinusoidal, Tensor)
    assert isinstance(fourier, Tensor)
    ratios, steps = sinusoidal[1:] / sinusoidal[:-1], fourier.diff()
    torch.testing.assert_close(ratios, ratios[:1].expand(7))
    torch.testing.assert_close(steps, fourier[:1].expand(7))


@pytest.mark.parametrize(("place", "kind"), [("pre", Block), ("post", PostNormBlock)])
def test_the_norm_stands_where_it_is_asked_for(place: str, kind: type[nn.Module]) -> None:
    [first, _] = encoder(f"model.norm_place={place}").blocks
    assert type(first) is kind
    first.self.out.weight.data.zero_()  # then its part adds nothing
    first.feed_forward.down.weight.data.zero_()
    x = 5 * torch.randn(1, 3, 16, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(first(x, mask=Mask()), x) == (place == "pre")


@pytest.mark.parametrize(("setting", "ratio"), [((), 4), (("model.ffn_width=16",), 1)])
def test_the_feed_forward_is_four_times_as_wide_or_as_wide_as_its_input(setting: tuple[str, ...], ratio: int) -> None:
    model = encoder(*setting)
    assert all(block.feed_forward.up.weight.shape == (16 * ratio, 16) for block in model.blocks)
    model(model.embed(torch.arange(5)[None])).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_rollout_is_the_product_of_the_layers_with_or_without_the_identity() -> None:
    layers = [np.random.default_rng(seed).dirichlet(np.ones(4), size=(2, 4)) for seed in range(3)]
    a, b, c = (layer.mean(0) for layer in layers)
    np.testing.assert_allclose(rollout(layers, identity=0), c @ b @ a)
    one = np.eye(4)
    np.testing.assert_allclose(rollout(layers), (c + one) @ (b + one) @ (a + one) / 8)


def test_gpt3_takes_the_work_of_300_or_of_499_billion_tokens() -> None:
    small = dry_run.make_dry_run(settled("language", [], None, None, None, ["model.depth=1"]))
    parameters, each = 174_604_259_328, int(np.prod(small.shape))  # of all 96 blocks: tests/verbs/test_plan.py
    days = [plan.work(small, parameters, steps=round(tokens / each))["petaflop_days"]
            for tokens in (300e9, 499e9)]
    assert days == pytest.approx([3640, 6050], rel=0.005)
    assert all(f"{figure:,}" in PAGE for figure in (3640, 6050))
