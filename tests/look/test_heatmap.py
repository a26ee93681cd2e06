"""Heat maps name their rows and columns, choose a scale on which something is seen, and are written as asked."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from regard.look.axes import AxisPair
from regard.look.heatmap import READABLE, grid, head, matrix, positions, save, scaling, triangle
from regard.look.record import Record
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.nn.positions import Fourier, Learned, PositionTable, Sinusoidal
from regard.settings.errors import UserError
from regard.settings.schema import Tower

CROSS, SELF = "decoder.blocks.0.cross", "decoder.blocks.0.self"


def some_weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


@pytest.fixture
def record() -> Record:
    labels = {CROSS: AxisPair((" I", " am", "</s>"), (" je", " suis", "$x", "</s>")),
              SELF: AxisPair((" I", " am", "</s>"), ("<s>", " I", " am"))}
    return Record({CROSS: some_weights(4, 3, 4), SELF: some_weights(3, 3, 3)}, labels,
                  {CROSS: (0, 1, 2, 5), SELF: (0, 1, 2)})


def maps(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def labels(figure: Figure, place: int = 0) -> tuple[list[str], list[str]]:
    axes = figure.axes[place]
    return [text.get_text() for text in axes.get_yticklabels()], [text.get_text() for text in axes.get_xticklabels()]


def test_a_head_is_drawn_under_its_own_number_with_readable_words(record: Record) -> None:
    figure = head(record, CROSS, 5)
    np.testing.assert_array_equal(maps(figure)[0], record[CROSS][3])
    assert labels(figure) == (["I", "am", "</s>"], ["je", "suis", "$x", "</s>"])


def test_a_grid_has_a_map_for_each_head_and_names_sources_that_change(record: Record) -> None:
    figure = grid(record)
    assert len(maps(figure)) == 7
    assert labels(figure)[1] == ["je", "suis", "$x", "</s>"]
    assert labels(figure, 4)[1] == ["<s>", "I", "am"]
    assert len(maps(grid(record, "*.cross"))) == 4


def test_a_glob_that_chooses_nothing_is_refused(record: Record) -> None:
    with pytest.raises(UserError, match=r"encoder\.\*: chooses no site; there are decoder\.blocks\.0\.cross"):
        grid(record, "encoder.*")


def test_the_scale_is_logarithmic_where_one_token_swallows_it() -> None:
    plain = some_weights(6, 5)
    sink = np.concatenate([np.full((6, 1), 0.9), plain * 0.1], axis=1)
    words = AxisPair(tuple("abcdef"), tuple("abcdef"))
    less = AxisPair(words.targets, words.sources[:5])

    def norm(figure: Figure) -> Normalize:
        return figure.axes[0].images[0].norm

    assert isinstance(norm(matrix(sink, words)), LogNorm)
    assert not isinstance(norm(matrix(plain, less)), LogNorm)
    assert not isinstance(norm(matrix(sink, words, scale="linear")), LogNorm)
    assert isinstance(norm(matrix(plain, less, scale="log")), LogNorm)


def test_more_words_than_one_can_read_are_left_out() -> None:
    many = tuple(f" {n}" for n in range(READABLE + 1))
    assert labels(matrix(some_weights(3, READABLE + 1), AxisPair((" a", " b", " c"), many))) == (["a", "b", "c"], [])


def test_any_words_and_no_weights_at_all_are_written(tmp_path: Path) -> None:
    hostile = AxisPair((" $\\frac{", "日本", "\\x00"), (" <b>", " ̈", "🙂"))
    save(matrix(some_weights(3, 3), hostile, title="$x_"), tmp_path / "new" / "x.png")
    save(matrix(np.zeros((3, 3)), hostile), tmp_path / "zero.svg")
    assert (tmp_path / "new" / "x.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "zero.svg").read_bytes()


@pytest.mark.parametrize("table", [Sinusoidal(16), Fourier(16, longest=32), Learned(16, longest=32)])
def test_positions_are_drawn_row_by_row(table: PositionTable) -> None:
    for parameter in table.parameters():
        torch.nn.init.normal_(parameter)
    [drawn] = [each for each in maps(positions(table, 20)) if each.shape == (20, 16)]
    np.testing.assert_allclose(drawn, table.vectors(torch.arange(20)[None])[0].detach().numpy())


def test_scaled_weights_stand_beside_unscaled_ones() -> None:
    scaled, unscaled = maps(scaling(length=12))[:2]
    assert scaled.max() < unscaled.max()


def test_the_triangle_shows_that_the_future_is_not_seen() -> None:
    decoder = Decoder(Tower(width=32, depth=1, heads=4, dropout=0.0), vocabulary=40).eval()
    initialize(decoder, seed=0)

    def look() -> Record:
        decoder(decoder.embed(torch.arange(4)[None]))
        words = AxisPair(tuple("abcd"), tuple("abcd"))
        return Record({"blocks.0.self": np.zeros((1, 4, 4), np.float32)}, {"blocks.0.self": words},
                      {"blocks.0.self": (0,)})

    every, mask, taken = maps(triangle(decoder, "blocks.0.self", 2, look))[:3]
    assert np.triu(every, 1).sum() > 0
    assert np.triu(taken, 1).sum() == 0
    np.testing.assert_array_equal(mask, np.tri(4))
    np.testing.assert_allclose(taken.sum(-1), 1, rtol=1e-5)
