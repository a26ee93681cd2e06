"""Pictures in the page: each map has its weights, and every word, patch and head can be reached."""

import base64
import io
import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float
from PIL import Image

from browsing import Tab
from regard.look.axes import Axis, AxisPair, Grid, Mixed
from regard.look.choices import Choice, Output
from regard.look.measure import MEASURES, by_head
from regard.look.page import page
from regard.look.record import Record
from regard.look.rollout import rollout_of_record

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: pip install '.[dev]'")

WORDS = (" a", " red", " circle", "</s>")
CROSS, HARD, OWN = "decoder.blocks.1.cross", "decoder.hard", "decoder.blocks.0.self"
HEIGHT, WIDTH = 3, 4
DARKNESS, HIDDEN = np.array([13, 16, 23]), 0.8  # as `overlay.js` has them


def white(height: int = 96, width: int = 128) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


GRID = Grid(HEIGHT, WIDTH, picture=white())


def some_weights(heads: int, rows: int, columns: int) -> Float[np.ndarray, "heads rows columns"]:
    return np.random.default_rng(rows).dirichlet(np.full(columns, 0.5), (heads, rows)).astype(np.float32)


def chosen_patches(rows: int, columns: int) -> Float[np.ndarray, "1 rows columns"]:
    return np.eye(columns, dtype=np.float32)[np.arange(rows) * 3 % columns][None]


def captioned() -> Record:
    axes = {CROSS: AxisPair(WORDS, GRID), OWN: AxisPair(WORDS, ("<s>", *WORDS[:-1])), HARD: AxisPair(WORDS, GRID)}
    weights = {CROSS: some_weights(3, 4, 12), OWN: some_weights(2, 4, 4), HARD: chosen_patches(4, 12)}
    return Record(weights, axes, {CROSS: (0, 1, 2), OWN: (0, 1), HARD: (0,)})


def classified(before: tuple[str, ...] = ("[CLS]",)) -> Record:
    return one_sequence(Grid(HEIGHT, WIDTH, before, white()))


def mixed() -> Record:
    return one_sequence(Mixed((("<s>",), GRID, (" what", "?", " red", "</s>"))))


def one_sequence(axis: Axis) -> Record:
    sites = [f"encoder.blocks.{layer}.self" for layer in range(3)]
    weights = {site: some_weights(2, len(axis) * (layer + 1), len(axis))[:, -len(axis) :]
               for layer, site in enumerate(sites)}
    return Record(weights, dict.fromkeys(sites, AxisPair(axis, axis)), dict.fromkeys(sites, (0, 1)))


def choice(token: str) -> Choice:
    return Choice(token, 0.75, ((token, 0.75), (" other", 0.25)))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the page of a record. Afterwards, nothing may have been asked for and nothing complained about."""
    tabs: list[Tab] = []

    def open(record: Record, address: str = "", output: Output | None = None, **options: Any) -> Tab:
        file = tmp_path / "look.html"
        file.write_text(page(record, source="dog.png", output=output).html, encoding="utf-8")
        tabs.append(Tab(browser, **options).open(file, address))
        tabs[-1].page.wait_for_timeout(50)  # the pictures are decoded
        return tabs[-1]

    yield open
    for tab in tabs:
        assert tab.complaints == []
        assert {url.split(":")[0] for url in tab.requests} <= {"file", "about", "data", "blob"}
        tab.context.close()


def pixels_of(tab: Tab, side: str) -> np.ndarray:
    address = tab.page.evaluate("side => document.querySelector(`figure[data-side=${side}] canvas`).toDataURL()", side)
    with Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) as image:
        return np.asarray(image.convert("RGB"))


def shown_map(tab: Tab, side: str = "looks") -> np.ndarray:
    """Each patch's share of the strongest one, read from the middle of it: the picture is white and gets darker."""
    pixels = pixels_of(tab, side)
    rows, columns = (((np.arange(count) + 0.5) * size / count).astype(int) for count, size in zip(
        (HEIGHT, WIDTH), pixels.shape, strict=False))
    return (1 - ((255.0 - pixels[np.ix_(rows, columns)]) / (255 - DARKNESS)).mean(-1) / HIDDEN).ravel()


def assert_map(tab: Tab, weights: np.ndarray, side: str = "looks") -> None:
    np.testing.assert_allclose(shown_map(tab, side), weights / weights.max(), atol=0.02)


def over_patch(tab: Tab, row: int, column: int, side: str = "looks") -> dict[str, float]:
    box = tab.page.locator(f"figure[data-side={side}] canvas").bounding_box()
    return {"x": box["x"] + (column + 0.5) * box["width"] / WIDTH, "y": box["y"] + (row + 0.5) * box["height"] / HEIGHT}


def test_a_record_with_a_picture_begins_with_it(opened: Any) -> None:
    tab = opened(captioned(), f"#site={OWN}")
    assert tab.shown() == ["picture"]
    assert f"site={HARD}" in tab.address  # the attention that was asked for has no picture
    for digit, view in enumerate(("picture", "alignment", "heads", "matrix", "steps", "measures"), 1):
        tab.press(str(digit))
        assert tab.shown() == [view]
    tab.page.locator("#kind").select_option("decoder self")
    tab.press("1")
    assert tab.page.locator("figure").first.is_visible()


def test_each_word_has_its_map(opened: Any) -> None:
    record = captioned()
    tab = opened(record, f"#site={CROSS}&shape=patches")
    for row, word in enumerate(WORDS):
        assert_map(tab, record[CROSS][:, row].mean(0))
        best = int(record[CROSS][:, row].mean(0).argmax())
        assert tab.status.startswith(f"“{word.strip()}” looks at patch {best // WIDTH},{best % WIDTH} ")
        assert tab.page.locator("#panel-picture .player .count").inner_text() == f"{row + 1} / 4"
        tab.press("ArrowRight")
    tab.press("Home", "]", "]")
    assert_map(tab, record[CROSS][1, 0])
    small = tab.page.locator(".film button")
    assert [re.sub(r"\s.*", "", text) for text in small.all_inner_texts()] == [word.strip() for word in WORDS]
    small.nth(2).click()
    tab.settle()
    assert_map(tab, record[CROSS][1, 2])
    tab.page.locator("#panel-picture .chips button", has_text="red").first.click()
    tab.settle()
    assert_map(tab, record[CROSS][1, 1])


def test_a_smooth_map_is_brightest_at_its_strongest_patch(opened: Any) -> None:
    weights = np.full((1, 4, 12), 0.02, np.float32)
    weights[0, :, 6] = 1 - 11 * 0.02
    tab = opened(Record({CROSS: weights}, {CROSS: AxisPair(WORDS, GRID)}, {CROSS: (0,)}), f"#site={CROSS}")
    shown = shown_map(tab)
    assert int(shown.argmax()) == 6
    assert shown[6] == pytest.approx(1, abs=0.03)
    assert shown[5] > shown[4]  # it falls off from patch to patch


def test_the_caption_plays_word_by_word(opened: Any) -> None:
    tab = opened(captioned(), f"#site={CROSS}")
    tab.press(" ")
    tab.page.locator("#status", has_text="circle").wait_for(timeout=8000)
    tab.press(" ")
    assert tab.page.locator("#panel-picture").get_by_role("button", name="Play").is_visible()
    tab.press("End")
    assert tab.status.startswith("“</s>” looks at")


def test_a_patch_that_is_pointed_at_says_which_words_look_at_it(opened: Any) -> None:
    record = captioned()
    tab = opened(record, f"#site={CROSS}&row=1")
    place = over_patch(tab, 2, 1)
    tab.page.mouse.move(**place)
    tab.settle()
    column = record[CROSS][:, :, 2 * WIDTH + 1].mean(0)
    best = WORDS[int(column.argmax())].strip()
    assert f"patch 2,1 is looked at by “{best}” " in tab.status
    assert "“red” looks at" in tab.status  # the map stays
    tab.page.mouse.click(**place)
    tab.page.mouse.move(2, 2)
    tab.settle()
    assert "column=9" in tab.address
    assert "patch 2,1 is looked at by" in tab.status
    tab.page.locator("figure canvas").focus()
    tab.press("ArrowUp", "ArrowRight")
    assert "patch 1,2 is looked at by" in tab.status
    tab.press("Escape")
    assert "is looked at by" not in tab.status


def test_a_class_token_comes_first_and_any_patch_shows_both_directions(opened: Any) -> None:
    record = classified()
    last = record["encoder.blocks.2.self"].mean(0)
    tab = opened(record, "#shape=patches")
    assert_map(tab, last[0, 1:])
    assert_map(tab, last[1:, 0], "seen")
    tab.page.mouse.move(**over_patch(tab, 1, 2, "seen"))
    tab.settle()
    place = 1 + WIDTH + 2
    assert "patch 1,2 looks at" in tab.status
    assert "patch 1,2 is looked at by" in tab.status
    for side, weights in (("looks", last[place, 1:]), ("seen", last[1:, place])):
        expected, shown = weights / weights.max(), shown_map(tab, side)
        np.testing.assert_allclose(np.delete(shown, place - 1), np.delete(expected, place - 1), atol=0.02)
    tab.page.mouse.click(**over_patch(tab, 1, 2))
    tab.page.mouse.move(2, 2)
    tab.press("ArrowLeft", "ArrowDown")
    assert tab.status.startswith("patch 2,1 looks at")


def test_patches_without_a_class_token_begin_with_their_mean(opened: Any) -> None:
    record = classified(())
    tab = opened(record, "#shape=patches")
    assert_map(tab, record["encoder.blocks.2.self"].mean((0, 1)))
    assert tab.status.startswith("All patches together look at patch")
    tab.press("ArrowRight")
    assert tab.status.startswith("patch 1,1 looks at")


@pytest.mark.parametrize(("name", "identity"), [("rollout", 0.5), ("product", 0.0)])
def test_rollout_on_the_page_is_that_of_the_library(opened: Any, name: str, identity: float) -> None:
    record = classified()
    for weights in record.values():
        weights[:, 3] = 0  # a patch that may see nothing
    tab = opened(record, f"#shape=patches&map={name}&strip=layers")
    for layer, through in reversed(list(enumerate(rollout_of_record(record, identity=identity).values()))):
        assert tab.status.startswith(f"Rollout through layers 0 to {layer}: “[CLS]” looks at")
        assert_map(tab, through[0, 0, 1:])
        assert_map(tab, through[0, 1:, 0], "seen")
        tab.press(",")
    assert tab.page.locator(".film button").count() == 3


def test_heads_and_layers_stand_side_by_side(opened: Any) -> None:
    tab = opened(classified())
    assert tab.page.locator(".film button .caption").all_inner_texts() == ["mean", "head 0", "head 1"]
    tab.page.locator(".film button", has_text="head 1").click()
    tab.settle()
    assert "head=1" in tab.address
    tab.page.locator("#choose-strip").select_option("layers")
    tab.settle()
    tab.page.locator(".film button", has_text="layer 0").click()
    tab.settle()
    assert all(part in tab.address for part in ("site=encoder.blocks.0.self", "head=1", "strip=layers"))


def test_words_and_patches_of_one_sequence_lead_to_each_other(opened: Any) -> None:
    record = mixed()
    last = record["encoder.blocks.2.self"].mean(0)
    tab = opened(record, "#shape=patches", Output("red", (choice(" red"), choice("</s>"))))
    red = 1 + HEIGHT * WIDTH + 2
    assert_map(tab, last[red, 1:13])  # the answer's first word is where one begins
    assert_map(tab, last[1:13, red], "seen")
    tab.press("ArrowLeft", "ArrowLeft")
    assert_map(tab, last[red - 2, 1:13])
    tab.page.mouse.click(**over_patch(tab, 0, 0))
    tab.page.mouse.move(2, 2)
    tab.settle()
    words = dict(zip(("<s>", "what", "?", "red", "</s>"), last[1][[0, 13, 14, 15, 16]], strict=True))
    shown = tab.page.locator("figure[data-side=looks] .chips button").all_inner_texts()
    figures = {word: float(share) for word, share in re.findall(r"(\S+)\s+([\d.]+) %", "\n".join(shown))}
    assert figures == pytest.approx({word: 100 * weight for word, weight in words.items() if weight >= 0.005}, abs=0.51)


def test_a_hard_choice_is_one_outlined_patch_beside_the_soft_map(opened: Any) -> None:
    record = captioned()
    both = Record.beside({"soft": record.only([CROSS]), "hard": record.only([HARD])})
    tab = opened(both, f"#site=hard.{HARD}&row=2")
    assert tab.page.locator("figure .share").inner_text() == "A hard choice: this patch, and no other"
    shown = shown_map(tab)
    assert int(shown.argmax()) == 6
    assert shown[6] == pytest.approx(1, abs=0.02)
    assert np.delete(shown, 6).max() < 0.02  # not smoothed
    pixels = pixels_of(tab, "looks")
    orange = ((pixels[..., 0] > 150) & (pixels[..., 2] < 60)).sum()
    assert orange > 50
    tab.page.locator("#choose-strip").select_option("sites")
    tab.settle()
    assert [text.split("\n")[-1] for text in tab.page.locator(".film button").all_inner_texts()].count("hard") == 1
    assert tab.page.locator(".film button").count() == 2


def test_the_address_brings_back_the_map(opened: Any) -> None:
    tab = opened(classified())
    for name, value in (("map", "product"), ("paint", "heat"), ("shape", "patches"), ("strip", "layers")):
        if name != "strip":
            tab.page.locator(f"#choose-{name}").select_option(value)
        tab.settle()
    tab.press("ArrowRight", "t")
    again = opened(classified(), tab.address)
    again.press("t")
    assert again.status == tab.status
    assert [again.page.locator(f"#choose-{name}").input_value() for name in ("map", "paint", "shape")] == [
        "product", "heat", "patches"]


def test_the_steps_of_an_answer_show_the_picture_and_the_words_beside_it(opened: Any) -> None:
    tab = opened(captioned(), f"#view=steps&site={CROSS}&row=1")
    drawn = tab.page.locator("#panel-steps svg")
    assert drawn.locator("image").count() == 1
    assert "0,1" not in drawn.text_content()
    tab = opened(mixed(), "#view=steps&row=13")
    drawn = tab.page.locator("#panel-steps svg")
    assert drawn.locator("image").count() == 1
    assert drawn.text_content().startswith("looks at<s>")


def test_the_measures_of_patches_are_those_of_the_library(opened: Any) -> None:
    record = classified()
    tab = opened(record, "#view=measures")
    tab.page.locator("tbody tr").last.wait_for()
    shown = [float(row.locator("td .number").nth(1).inner_text()) for row in tab.page.locator("tbody tr").all()]
    assert shown == pytest.approx(list(by_head([record], MEASURES["distance"]).values()), abs=0.051)
    tab = opened(captioned(), "#view=measures")
    tab.page.locator("tbody tr").last.wait_for()
    distances = [row.locator("td .number").nth(1).inner_text() for row in tab.page.locator("tbody tr").all()]
    assert distances.count("–") == 3 + 1  # from words to a picture there is none
    assert len(distances) == 3 + 1 + 2


def test_the_map_can_be_kept_as_a_picture(opened: Any, tmp_path: Path) -> None:
    tab = opened(captioned(), f"#site={CROSS}")
    tab.page.wait_for_timeout(100)
    for kind in ("svg", "png"):
        with tab.page.expect_download() as download:
            tab.page.locator(f"#{kind}").click()
        download.value.save_as(tmp_path / f"map.{kind}")
    drawn = xml.parse(tmp_path / "map.svg").getroot()
    assert len(drawn.findall(".//{*}image")) == 1 + len(WORDS)
    assert "a\u2069” looks at" in "".join(drawn.itertext())
    with Image.open(tmp_path / "map.png") as image:
        colours = np.asarray(image.convert("RGB"))
    assert colours.min() < 80  # the veil
    assert colours.shape[0] > 800


def test_a_grid_without_its_picture_is_drawn_as_a_map(opened: Any) -> None:
    grid = Grid(HEIGHT, WIDTH)
    tab = opened(Record({CROSS: some_weights(1, 4, 12)}, {CROSS: AxisPair(WORDS, grid)}, {CROSS: (0,)}))
    assert len(np.unique(shown_map(tab).round(2))) > 4
    seen = Record({CROSS: some_weights(1, 12, 4)}, {CROSS: AxisPair(grid, WORDS)}, {CROSS: (0,)})
    tab = opened(seen, "#shape=patches")  # patches that look at words
    assert "“a” is looked at by patch" in tab.status
    tab.press("ArrowRight")
    assert "“red” is looked at by patch" in tab.status


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [captioned, classified, mixed])
def test_no_one_is_shut_out_of_the_pictures(opened: Any, theme: str, make: Any) -> None:
    tab = opened(make(), color_scheme=theme)
    found = axe.Axe().run(tab.page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found
            if each["impact"] in ("serious", "critical")] == []


def test_the_picture_fits_a_narrow_screen(opened: Any) -> None:
    tab = opened(mixed())
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.settle()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
