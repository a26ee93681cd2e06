"""The gallery is one file that shows every mistake, asks for nothing from outside, and runs no text as code."""

import base64
import hashlib
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from browsing import Tab
from regard.look.axes import AxisPair, Grid
from regard.look.gallery import AnswerWeights, Mistake, page, spread
from regard.look.picture_maps import data_url, opened

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \"'&"


def mistake(source: str = "le chat", answer: str = "a cat", *, loss: float = 1.0, sharp: bool = True) -> Mistake:
    weights = np.eye(2, dtype=np.float32) if sharp else np.full((2, 2), 0.5, dtype=np.float32)
    return Mistake(source, "the cat", answer, loss, len(source.split()),
                   AnswerWeights(AxisPair((" a", " cat"), (" le", " chat")), weights))


class Seen(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def shown(*mistakes: Mistake) -> Seen:
    return Seen(page(mistakes, title="The worst mistakes of run", summary="so many"))


def test_the_worst_comes_first_and_each_can_be_sorted() -> None:
    seen = shown(mistake(loss=0.5), mistake("un grand chat noir", loss=2.0, sharp=False), mistake(loss=1.0))
    cards = seen.all("article")
    assert [float(card["data-loss"] or "") for card in cards] == [2.0, 1.0, 0.5]
    assert [card["data-length"] for card in cards] == ["4", "2", "2"]
    assert [float(card["data-spread"] or "") for card in cards] == [2.0, 1.0, 1.0]
    assert [button["data-by"] for button in seen.all("button")] == ["loss", "length", "spread"]


def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else() -> None:
    content = page([mistake()], title="t", summary="s")
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", content, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_the_page_asks_for_nothing_from_outside() -> None:
    seen = shown(mistake())
    for tag, attributes in seen.tags:
        assert tag not in {"link", "img", "iframe", "object", "a"}
        assert not {"src", "href", "style", "xlink:href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)


def test_a_hostile_text_is_shown_and_never_run() -> None:
    harmless = {tag for tag, _ in shown(mistake()).tags}
    looked = AnswerWeights(AxisPair((HOSTILE, HOSTILE), (HOSTILE, HOSTILE)), np.eye(2, dtype=np.float32))
    seen = shown(Mistake(HOSTILE, HOSTILE, "", 1.0, 1, looked))
    assert {tag for tag, _ in seen.tags} <= harmless | {"i", "mark"}
    assert len(seen.all("script")) == 1
    assert "<img src=x onerror=alert(2)>" in seen.text


def test_a_model_without_attention_has_its_mistakes_shown_without_a_picture() -> None:
    seen = shown(Mistake("le chat", "the cat", "a cat", 1.0, 2, None))
    assert len(seen.all("article")) == 1
    assert seen.all("figure") == seen.all("svg") == []
    assert "1.00 loss 2 words" in seen.text


def test_a_source_that_is_an_image_is_shown_and_may_be() -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAAC"
    content = page([Mistake("cat.png", "cat", "dog", 1.0, None, None, pixel)], title="t", summary="s")
    assert [image["src"] for image in Seen(content).all("img")] == [pixel]
    assert "img-src data:" in content
    assert "1.00 loss" in Seen(content).text
    assert "words" not in Seen(content).text
    assert "img-src" not in page([mistake()], title="t", summary="s")


def seen_picture() -> Mistake:
    address = data_url(Image.new("RGB", (60, 40), "white"))
    attention = AnswerWeights(AxisPair((" a", "<b>"), Grid(2, 3, picture=address)), np.full((2, 6), 1 / 6, np.float32))
    return Mistake("dog.jpg", "a dog", "a cat", 1.0, 6, attention, address)


def test_a_picture_is_shown_with_a_map_for_each_word() -> None:
    content = page([mistake(), seen_picture()], title="t", summary="s")
    seen = Seen(content)
    pictures = [str(each["src"]) for each in seen.all("img")]
    assert len(pictures) == 1 + 2
    assert all(each.startswith("data:image/jpeg;base64,") for each in pictures)
    assert {opened(each).size for each in pictures} == {(60, 40), (160, 107)}
    assert "6 patches" in seen.text
    assert seen.text.count("<b>") == 1  # it is shown, and no tag
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', content)
    assert "img-src data: blob:;" in policy
    assert "img-src" not in page([mistake()], title="t", summary="s")


def test_the_rows_of_an_answer_are_its_words_or_the_mean_of_patches() -> None:
    grid, weights = Grid(1, 2, ("[CLS]",)), np.array([[0.2, 0.8, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    axes = AxisPair(grid, grid)
    first = AnswerWeights.of_rows(range(3), axes, weights)
    assert (first.axes, first.weights.tolist()) == (AxisPair(("[CLS]",), grid), [[0.2, 0.8, 0.0]])
    mean = AnswerWeights.of_rows([1, 2], axes, weights)
    assert (mean.axes.targets, mean.weights.tolist()) == ((" all patches",), [[0.0, 0.5, 0.5]])


def test_the_words_that_differ_are_marked() -> None:
    content = page([mistake(answer="the big cat")], title="t", summary="s")
    assert "the <mark>big</mark> cat" in content
    assert "<dd dir=\"auto\">the cat</dd>" in content


def test_a_cell_is_as_dark_as_its_weight() -> None:
    cells = [rect for rect in shown(mistake(sharp=False)).all("rect") if "fill-opacity" in rect]
    assert [cell["fill-opacity"] for cell in cells] == ["0.50"] * 4
    assert len({(cell["x"], cell["y"]) for cell in cells}) == 4


def test_no_mistake_makes_a_page_too() -> None:
    assert shown().all("article") == []


@given(st.integers(1, 20), st.integers(1, 9))
def test_attention_is_spread_over_between_one_word_and_all(words: int, rows: int) -> None:
    assert spread(np.full((rows, words), 1 / words)) == pytest.approx(words)
    assert spread(np.eye(words)) == 1.0
    drawn = np.random.default_rng(rows).dirichlet(np.ones(words), rows)
    assert 1.0 <= spread(drawn) <= words + 1e-9
    assert math.isfinite(spread(drawn))


def test_a_button_sorts_the_page_and_nothing_is_asked_for(browser: Any, tmp_path: Path) -> None:
    some = [mistake(loss=0.5, sharp=False), mistake("un grand chat noir", HOSTILE, loss=2.0), mistake(loss=1.0)]
    (tmp_path / "page.html").write_text(page(some, title="t", summary="s"), encoding="utf-8")
    tab = Tab(browser).open(tmp_path / "page.html")
    for by in ("length", "spread", "loss"):
        tab.page.click(f"button[data-by={by}]")
        order = tab.page.eval_on_selector_all("article", f"cards => cards.map(card => Number(card.dataset.{by}))")
        assert order == sorted(order, reverse=True)
        assert tab.page.eval_on_selector_all("[aria-pressed=true]", "all => all.map(one => one.dataset.by)") == [by]
    assert tab.complaints == []  # what the policy forbids would be told here
    assert {*tab.requests} <= {"about:blank", (tmp_path / "page.html").as_uri()}
    tab.context.close()


def test_the_policy_lets_the_pictures_be_seen(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page([seen_picture()], title="t", summary="s"), encoding="utf-8")
    tab = Tab(browser).open(tmp_path / "page.html")
    widths = tab.page.eval_on_selector_all("img", "all => all.map(each => each.naturalWidth)")
    assert widths == [60, 160, 160]
    assert tab.complaints == []
    tab.context.close()
