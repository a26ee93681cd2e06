"""The plots of models of patches show the distances of the heads, and how alike the positions are."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard.look.axes import AxisPair, Grid
from regard.look.measure import MEASURES, by_head
from regard.look.plots.patches import attention_distance, position_similarity, similarity
from regard.look.record import Record
from regard.models.inputs import PatchInputs
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.schema import Image, Tower


def inputs(positions: str) -> PatchInputs:
    made = PatchInputs(Tower(width=32, depth=1, heads=2, positions=positions, image=Image(size=12, patch=4)))
    initialize(made, seed=0)
    return made


def record() -> Record:
    grid = Grid(2, 3, ("[CLS]",))
    weights = {f"encoder.blocks.{layer}.self": np.random.default_rng(layer).dirichlet(np.ones(7), (2, 7)).astype(
        np.float32) for layer in range(3)}
    weights["decoder.blocks.0.self"] = np.full((2, 2, 2), 0.5, np.float32)
    words = (" a", " b")
    axes = dict.fromkeys(weights, AxisPair(grid, grid)) | {"decoder.blocks.0.self": AxisPair(words, words)}
    return Record(weights, axes, dict.fromkeys(weights, (0, 1)))


@pytest.mark.parametrize("patch", [1, 16])
def test_each_head_is_a_dot_at_its_distance_and_its_layer(patch: int) -> None:
    seen = record()
    [axes] = attention_distance([seen], patch=patch).axes
    *dots, line = axes.lines
    distances = by_head([seen], MEASURES["distance"])
    for layer, each in enumerate(dots):
        expected = [patch * distances[f"encoder.blocks.{layer}.self", head] for head in (0, 1)]
        assert each.get_xdata().tolist() == [layer, layer]
        assert each.get_ydata() == pytest.approx(expected)
        assert line.get_ydata()[layer] == pytest.approx(np.mean(expected))
    assert len(dots) == 3  # words are no patches
    assert ("pixels" in axes.texts[0].get_text()) == (patch == 16)


def test_records_without_patches_are_refused() -> None:
    with pytest.raises(UserError, match="no attention of patches"):
        attention_distance([record().only(["decoder.blocks.0.self"])])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_position_is_like_itself_and_each_pair_like_each_other(positions: str) -> None:
    made = inputs(positions)
    alike = similarity(made)
    assert alike.shape == (9, 9)
    np.testing.assert_allclose(np.diag(alike), 1, rtol=1e-5)
    np.testing.assert_allclose(alike, alike.T, atol=1e-6)
    figure = position_similarity(made)
    assert isinstance(figure, Figure)
    drawn = figure.axes[0].images[0].get_array().filled(math.nan)
    assert drawn.shape == (11, 11)
    np.testing.assert_allclose(drawn[4:7, 8:11], alike[5].reshape(3, 3), rtol=1e-6)  # row 1, column 2
    assert np.isnan(drawn[3]).all()


def test_sinusoidal_positions_are_like_their_neighbours() -> None:
    alike = similarity(inputs("sinusoidal")).reshape(3, 3, 3, 3)
    assert alike[0, 0, 0, 1] > alike[0, 0, 0, 2]
    assert alike[0, 0, 1, 0] > alike[0, 0, 2, 0]


def test_positions_without_vectors_are_refused() -> None:
    with pytest.raises(UserError, match=r"no vectors; they have with model\.positions=learned"):
        similarity(inputs("rotary"))
