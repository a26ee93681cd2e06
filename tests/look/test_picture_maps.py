"""A map over a picture is brightest where the weight is, and is drawn for each word."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from browsing import Tab
from regard.look.axes import AxisPair, Grid, Mixed
from regard.look.page import page
from regard.look.picture_maps import SHADOW, data_url, opened, overlay, sheet, smoothed, word_maps
from regard.look.record import Record
from regard.settings.errors import UserError

SITE = "decoder.cross"


def photograph(width: int = 200, height: int = 140) -> Image.Image:
    """Smooth colours, all different."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([255 * x / width, 255 * y / height, 128 + 0 * x], -1).astype(np.uint8))


def some_weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.7), shape[:-1])


def lightness(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L"), float)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 70), st.integers(1, 70))
def test_a_smooth_map_stays_within_the_weights_and_an_even_one_is_even(
        rows: int, columns: int, height: int, width: int) -> None:
    weights = some_weights(1, rows * columns, seed=rows).reshape(rows, columns)
    fine = smoothed(weights, height, width)
    assert fine.shape == (height, width)
    assert weights.min() - 1e-9 <= fine.min()
    assert fine.max() <= weights.max() + 1e-9
    np.testing.assert_allclose(smoothed(np.ones((rows, columns)), height, width), 1)


def test_light_keeps_the_colours_of_the_strongest_patch_and_darkens_the_others() -> None:
    picture, weights = photograph(), np.full((2, 2), 0.1)
    weights[0, 1] = 0.7
    plain = np.asarray(overlay(picture, np.ones((2, 2)) / 4, shape="patches"), float)  # all are the strongest
    drawn = np.asarray(overlay(picture, weights, shape="patches"), float)
    height, width, _ = drawn.shape
    assert (width, height) == (448, 314)  # the longer side is given, the other one follows
    bright, dark = np.s_[: height // 2, width // 2 :], np.s_[height // 2 + 1 :, :]
    np.testing.assert_array_equal(drawn[bright], plain[bright])
    shadow = 0.8 * (1 - 0.1 / 0.7)
    np.testing.assert_allclose(drawn[dark], (1 - shadow) * plain[dark] + shadow * np.array(SHADOW), atol=1)


@pytest.mark.parametrize("paint", ["light", "heat"])
@pytest.mark.parametrize("shape", ["smooth", "patches"])
def test_more_weight_is_brighter(paint: Any, shape: Any) -> None:
    weights = np.full((5, 5), 0.01)
    weights[1, 3] = 1 - 0.24
    drawn = lightness(overlay(Image.new("RGB", (150, 150), "white"), weights, paint=paint, shape=shape, side=100))
    middles = drawn[10::20, 10::20]
    assert middles.argmax() == 8
    assert middles[1, 3] > middles[3, 1] + 80
    assert (drawn.max() - drawn[30, 70]) < 12  # it is the strongest patch that is brightest


def test_a_hard_choice_is_a_patch_with_a_line_around_it() -> None:
    drawn = np.asarray(overlay(photograph(), np.eye(9)[4].reshape(3, 3), side=300), float)
    inside, outside = drawn[80:130, 120:180], drawn[10:60, 10:80]
    np.testing.assert_allclose(inside, np.asarray(overlay(photograph(), np.ones((3, 3)), shape="patches", side=300),
                                                  float)[80:130, 120:180], atol=1)
    assert outside.mean() < 60
    orange = (np.abs(drawn - np.array([0xB0, 0x4A, 0x00])).sum(-1) == 0).sum()
    assert orange > 100


def test_a_map_without_a_picture_or_without_weight_is_drawn_too() -> None:
    drawn = lightness(overlay(None, np.array([[1.0, 0.0], [0.0, 0.5]]), shape="patches", side=40))
    assert drawn[5, 5] > drawn[35, 35] > drawn[5, 35]
    assert lightness(overlay(photograph(), np.zeros((2, 2)))).max() < 70


def test_every_word_has_its_map_under_its_name() -> None:
    address = data_url(photograph(64, 64))
    weights = some_weights(2, 3, 4).astype(np.float32)
    axes = AxisPair((" a", " box", " a"), Grid(2, 2, picture=address))
    record = Record({SITE: weights}, {SITE: axes}, {SITE: (0, 5)})
    found = word_maps(record, SITE, shape="patches", side=40)
    assert list(found) == ["a 1", "box", "a 2"]
    picture = opened(address)
    for row, each in enumerate(found.values()):
        expected = overlay(picture, weights[:, row].mean(0).reshape(2, 2), shape="patches", side=40)
        assert each.tobytes() == expected.tobytes()
    one = word_maps(record, SITE, head=5, side=40)["box"]
    assert one.tobytes() == overlay(picture, weights[1, 1].reshape(2, 2), side=40).tobytes()
    whole = sheet(found, across=2)
    assert whole.width > 2 * 40
    assert whole.height > 2 * (40 + 14)


def test_a_class_token_or_else_the_mean_of_all_patches_is_drawn_and_words_see_several_pictures() -> None:
    weights = some_weights(1, 5, 5).astype(np.float32)
    grid = Grid(2, 2, ("[CLS]",))
    assert list(word_maps(Record({SITE: weights}, {SITE: AxisPair(grid, grid)}, {SITE: (0,)}), SITE)) == ["[CLS]"]
    bare = Grid(1, 5)
    assert list(word_maps(Record({SITE: weights}, {SITE: AxisPair(bare, bare)}, {SITE: (0,)}), SITE)) == ["all patches"]
    two = Mixed((Grid(1, 2), (" a",), Grid(2, 1)))
    seen = word_maps(Record({SITE: weights}, {SITE: AxisPair(two, two)}, {SITE: (0,)}), SITE, side=40)
    assert (list(seen), seen["a"].size) == (["a"], (40 + 8 + 20, 40))


def test_what_is_no_picture_is_refused() -> None:
    words = Record({SITE: some_weights(1, 2, 2).astype(np.float32)}, {SITE: AxisPair((" a", " b"), (" c", " d"))},
                   {SITE: (0,)})
    with pytest.raises(UserError, match=r"decoder\.cross: looks at no picture"):
        word_maps(words, SITE)
    for address in ("data:image/png,x", "data:image/png;base64,aGVsbG8="):
        with pytest.raises(UserError, match="picture"):
            opened(address)


@pytest.mark.parametrize(("paint", "shape"), [("light", "smooth"), ("light", "patches"), ("heat", "smooth")])
def test_the_page_draws_the_same(browser: Any, tmp_path: Path, paint: Any, shape: Any) -> None:
    picture, written = photograph(240, 240), io.BytesIO()
    picture.save(written, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
    weights = some_weights(1, 2, 16).astype(np.float32)
    record = Record({SITE: weights}, {SITE: AxisPair((" a", " b"), Grid(4, 4, picture=address))}, {SITE: (0,)})
    file = tmp_path / "look.html"
    file.write_text(page(record).html, encoding="utf-8")
    tab = Tab(browser).open(file, f"#paint={paint}&shape={shape}")
    tab.page.wait_for_timeout(50)
    canvas = tab.page.evaluate("document.querySelector('figure canvas').toDataURL()")
    shown = np.asarray(opened(canvas), float)
    drawn = np.asarray(overlay(picture, weights[0, 0].reshape(4, 4), paint=paint, shape=shape, side=len(shown)), float)
    difference = np.abs(shown - drawn).mean(-1)
    assert np.median(difference) < 4
    assert np.quantile(difference, 0.97) < 16  # the edges of patches fall between pixels
    tab.context.close()
