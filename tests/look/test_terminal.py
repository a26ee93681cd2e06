"""A heat map for the terminal fits it, keeps its columns straight and darkens with the weight."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.look.axes import Axis, AxisPair, Grid, Mixed
from regard.look.record import Record
from regard.look.terminal import SHADES, _columns, default_site, draw

SITE = "decoder.blocks.0.cross"
WORD = st.text(st.sampled_from("abcé日本"), min_size=1, max_size=16).map(lambda word: f" {word}")


def record(weights: list[list[float]], targets: list[str], sources: list[str]) -> Record:
    array = np.array([weights], dtype=np.float32)
    return Record({SITE: array}, {SITE: AxisPair(tuple(targets), tuple(sources))}, {SITE: (5,)})


def test_it_is_a_picture_of_the_weights() -> None:
    small = record([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], [" I", " am"], [" je", " suis", "</s>"])
    assert draw(small, SITE, 5).splitlines() == [
        "   je suis </s>",
        " I ██",
        "am ░░ ░░░░ ▒▒▒▒",
        "",
        "░ 0.18  ▒ 0.36  ▓ 0.54  █ 0.72"]


@given(st.lists(WORD, min_size=1, max_size=12), st.lists(WORD, min_size=1, max_size=5), st.integers(40, 100))
def test_it_fits_the_width_and_shows_every_word(sources: list[str], targets: list[str], width: int) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(len(sources)), len(targets)).tolist()
    lines = draw(record(weights, targets, sources), SITE, 5, width).splitlines()
    assert all(_columns(line) <= width for line in lines)
    shown = "\n".join(lines)
    assert all(word.strip()[:4] in shown for word in (*sources, *targets))


def test_wide_characters_leave_the_columns_straight() -> None:
    lines = draw(record([[0.0, 1.0]], ["日"], [" 日本語", " b"]), SITE, 5).splitlines()
    assert _columns(lines[0][: lines[0].index("b")]) == _columns(lines[1][: lines[1].index(SHADES[-1])])


@given(st.lists(WORD, min_size=1, max_size=6), st.lists(WORD, min_size=1, max_size=4))
def test_colour_changes_no_character(sources: list[str], targets: list[str]) -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(len(sources)), len(targets)).tolist()
    some = record(weights, targets, sources)
    coloured = draw(some, SITE, 5, colour=True)
    assert "\033[" in coloured
    assert re.sub(r"\033\[\d+m", "", coloured) == draw(some, SITE, 5)


def test_the_last_attention_between_two_texts_tells_most() -> None:
    one, other = (" a", " b"), (" c", " d")
    labels = {"encoder.0": AxisPair(one, one), "cross.0": AxisPair(other, one), "cross.1": AxisPair(other, one),
              "decoder.1": AxisPair(other, ("<s>", " c"))}
    weights = dict.fromkeys(labels, np.full((1, 2, 2), 0.5, np.float32))
    assert default_site(Record(weights, labels, dict.fromkeys(labels, (0,)))) == "cross.1"
    own = {site: labels[site] for site in ("encoder.0", "decoder.1")}
    assert default_site(Record(dict.fromkeys(own, weights["cross.0"]), own, dict.fromkeys(own, (0,)))) == "decoder.1"


def test_weights_that_are_all_zero_are_white() -> None:
    assert "█" not in draw(record([[0.0, 0.0]], ["a"], ["b", "c"]), SITE, 5).splitlines()[1]


def looked(weights: list[list[float]], targets: Axis, sources: Axis) -> Record:
    return Record({SITE: np.array([weights], np.float32)}, {SITE: AxisPair(targets, sources)}, {SITE: (0,)})


def test_each_word_has_a_small_map_of_the_patches() -> None:
    seen = looked([[0.8, 0.2, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]], (" red", " box"), Grid(2, 2))
    assert draw(seen, SITE, 0).splitlines() == [
        "red     box",
        "▕██░░▏  ▕    ▏",
        "▕    ▏  ▕▓▓▓▓▏",
        "",
        "░ 0.16  ▒ 0.32  ▓ 0.48  █ 0.64"]
    assert draw(seen, SITE, 0, 6).splitlines()[3:7] == ["", "box", "▕    ▏", "▕▓▓▓▓▏"]


def test_a_class_token_is_drawn_and_without_one_the_mean() -> None:
    grid = Grid(1, 2, ("[CLS]",))
    assert draw(looked([[0.2, 0.8, 0.0], [0, 0, 1], [0, 0, 1]], grid, grid), SITE, 0).splitlines()[:2] == [
        "[CLS]", "▕██  ▏"]
    bare = Grid(1, 2)
    assert draw(looked([[0, 1], [1, 0]], bare, bare), SITE, 0).splitlines()[:2] == ["all p…", "▕████▏"]


def test_words_beside_a_picture_have_their_table() -> None:
    axis = Mixed(((" <s>",), Grid(1, 2), (" red",)))
    lines = draw(looked([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0.25, 0.5, 0, 0.25]], axis, axis), SITE, 0)
    assert lines.splitlines() == [
        "<s>     red", "▕    ▏  ▕██  ▏", "", "    <s> red", "<s> ███", "red ▒▒▒ ▒▒▒", "",
        "░ 0.1  ▒ 0.2  ▓ 0.3  █ 0.4"]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(8, 90), st.integers(1, 4))
def test_a_map_fits_the_width_and_keeps_its_strongest_patch(height: int, columns: int, width: int, words: int) -> None:
    weights = np.random.default_rng(height).dirichlet(np.ones(height * columns), words)
    names = tuple(f" w{word}" for word in range(words))
    drawn = draw(looked(weights.tolist(), names, Grid(height, columns)), SITE, 0, width)
    *maps, _ = drawn.split("\n")
    assert all(_columns(line) <= width for line in maps)
    assert any(SHADES[-1] in line for line in maps)
    assert all(name.strip() in drawn for name in names)
