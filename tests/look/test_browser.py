"""The page in a browser: every view, every key, nothing that runs or leaves, and no barrier for anyone."""

import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch

from browsing import Tab
from regard.look.axes import AxisPair
from regard.look.choices import Choice, Output
from regard.look.explain import AttentionSteps, Caught, catch_all
from regard.look.page import Page, page
from regard.look.record import Record
from regard.look.vectors import vectors
from regard.look.watch import watch
from regard.models.build import translator
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import ScaledDotAttend
from regard.settings.schema import Tower

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: pip install '.[dev]'")

VIEWS = ["alignment", "heads", "matrix", "steps", "measures", "explain"]
SOURCES = (" je", " ne", " dors", " pas", "</s>")
TARGETS = (" I", " do", " not", " sleep", "</s>")
HOSTILE = (" <img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", " <b>bold</b>", " \u202eabc", "</s>")
CROSS, OWN = "decoder.blocks.1.cross", "decoder.blocks.0.self"
SMOOTH = 50.0  # milliseconds of a frame


def attention(heads: int, rows: int, columns: int) -> np.ndarray:
    scores = np.random.default_rng(rows).normal(size=(heads, rows, columns)).astype(np.float32) * 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def call(site: str) -> Caught:
    """A call of four heads, five queries and five keys."""
    attend, mask, draw = ScaledDotAttend((8,) * 4), Mask(causal=site == OWN), torch.Generator().manual_seed(len(site))
    q, k, v = (torch.randn(1, 4, 5, 8, generator=draw) * 1.5 for _ in range(3))
    return Caught(attend, (q, k, v), {"mask": mask}, attend(q, k, v, mask=mask))


def translation(targets: tuple[str, ...] = TARGETS, sources: tuple[str, ...] = SOURCES) -> Record:
    weights = {}
    for site in (OWN, CROSS):
        one = call(site)
        weights[site] = one.attend.weights(*one.inputs[:2], mask=one.options["mask"])[0].numpy()
    labels = {OWN: AxisPair(targets, ("<s>", *targets[:-1])), CROSS: AxisPair(targets, sources)}
    return Record(weights, labels, dict.fromkeys(weights, (0, 1, 2, 3)))


def written_page(targets: tuple[str, ...] = TARGETS, sources: tuple[str, ...] = SOURCES, **more: Any) -> Page:
    record = translation(targets, sources)
    return page(record, output=told(targets), vectors=vectors({site: call(site) for site in record}, record), **more)


def told(targets: tuple[str, ...] = TARGETS) -> Output:
    return Output("".join(targets[:-1]).strip(), tuple(
        Choice(token, 0.75, ((token, 0.75), (" other", 0.125), (" <i>third</i>", 0.0625))) for token in targets))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "look.html"
    file.write_text(written_page(source="je ne dors pas").html, encoding="utf-8")
    return file


@pytest.fixture
def tab(browser: Any, written: Path) -> Iterator[Tab]:
    tab = Tab(browser)
    yield tab.open(written)
    assert tab.complaints == []
    # Nothing was asked for but the file itself, and pictures that the page made.
    assert {url.split("#")[0] for url in tab.requests if not url.startswith(("data:", "blob:"))} <= {
        written.as_uri(), "about:blank"}
    tab.context.close()


def test_every_view_has_its_digit_its_tab_and_its_address(tab: Tab, written: Path) -> None:
    tab.page.get_by_role("tab", name="Heads").click()
    assert tab.shown() == ["heads"]
    for digit, view in enumerate(VIEWS, 1):
        tab.press(str(digit))
        assert tab.shown() == [view]
        assert f"view={view}" in tab.address
    assert tab.open(written, "#view=measures").shown() == ["measures"]


def test_an_address_brings_back_what_was_shown(tab: Tab, written: Path) -> None:
    tab.press("3", "]", "]", "ArrowDown", "ArrowDown", "ArrowRight", "t")
    tab.page.locator("#temperature").fill("1")
    tab.settle()
    address, status = tab.address, tab.status
    assert all(part in address for part in ("view=matrix", f"site={CROSS}", "head=1", "row=1", "temperature=2"))
    assert tab.open(written, address).status == status
    tab.open(written, "#view=nothing&site=nobody&head=99&row=-3&temperature=x")
    assert tab.shown() == ["alignment"]


def test_back_returns_to_the_view_before(tab: Tab) -> None:
    tab.press("2", "3")
    tab.page.go_back()
    tab.settle()
    assert tab.shown() == ["heads"]


def test_a_token_that_is_pointed_at_shows_its_own_lines(tab: Tab) -> None:
    weights = translation()[CROSS].mean(0)
    lines = tab.page.locator("#panel-alignment path")
    assert lines.count() == (weights >= 0.02).sum()
    tab.page.locator("[data-key=target2]").hover()
    assert lines.count() == (weights[2] >= 0.02).sum()
    best = int(weights[2].argmax())
    assert tab.status.startswith(f"“not” looks at “{SOURCES[best].strip()}” {round(100 * weights[2, best])} %")
    tab.page.locator("[data-key=source1]").hover()
    assert lines.count() == (weights[:, 1] >= 0.02).sum()
    tab.page.locator("[data-key=source1]").click()
    tab.page.mouse.move(5, 5)
    tab.settle()
    assert tab.status.startswith("“ne” is looked at by")  # a click holds it
    tab.page.locator("[data-key=source1]").click()
    tab.page.mouse.move(5, 5)
    tab.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert "“not” looks at" in tab.status
    tab.press("Escape")
    assert lines.count() == (weights >= 0.02).sum()


def test_a_thumbnail_grows_into_its_matrix(tab: Tab) -> None:
    tab.press("2")
    assert tab.page.locator(".thumbnail canvas").count() == 2 * (4 + 1)
    tab.page.get_by_role("button", name="decoder self, layer 0, head 2").click()
    tab.settle()
    assert tab.shown() == ["matrix"]
    assert f"site={OWN}&head=2" in tab.address
    tab.press("Escape")
    assert tab.shown() == ["heads"]


def test_the_matrix_says_the_weight_of_a_cell(tab: Tab) -> None:
    weights = translation()[CROSS][3]
    tab.press("3", "]", "]", "]", "]", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight")
    assert tab.status == f"“do” (1) looks at “dors” (2): {round(100 * weights[1, 2])} %"
    box = tab.page.locator(".matrix canvas").bounding_box()
    before = tab.page.locator(".matrix canvas").screenshot()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.page.mouse.wheel(0, -300)
    tab.press("Shift+ArrowRight", "+", "-", "0")
    tab.page.mouse.move(5, 5)
    tab.settle()
    assert tab.page.locator(".matrix canvas").screenshot() == before  # 0 shows all of it again


def test_the_temperature_flattens_and_sharpens_a_row(tab: Tab) -> None:
    weights = translation()[CROSS][0, 1].astype(np.float64)
    tab.press("]", "ArrowRight", "ArrowRight")
    for power in (-2, -1, 0, 1, 3):
        tab.page.locator("#temperature").fill(str(power))
        tab.settle()
        expected = weights ** (1 / 2**power)
        expected = expected / expected.sum()
        said = [float(number) for number in re.findall(r"([\d.]+) %", tab.status)]
        assert said == pytest.approx((100 * np.sort(expected)[::-1][:4]).tolist(), abs=0.55)


def test_the_steps_play_and_go_back_and_forth(tab: Tab) -> None:
    tab.press("4", "ArrowRight")
    assert tab.status == "Step 2: “do” with a probability of 75 %."
    drawn = tab.page.locator("#panel-steps svg").text_content()
    assert all(part in drawn for part in ("other", "13 %", "<i>third</i>", "6.3 %"))
    assert "sleep" not in drawn  # it is not said yet
    tab.press("Home", " ")
    tab.page.locator("#status", has_text="Step 3").wait_for(timeout=8000)
    tab.press(" ")
    assert tab.page.get_by_role("button", name="Play").is_visible()
    tab.page.get_by_role("button", name="Back").click()
    tab.settle()
    assert tab.status.startswith("Step 2")
    tab.press("End")
    tab.page.get_by_role("button", name="Forward").click()
    assert tab.status.startswith("Step 5")


def test_one_answer_to_a_whole_text_is_shown_at_every_step(browser: Any, tmp_path: Path) -> None:
    """As a classifier gives it: its rows are what was read, and none of them said it."""
    answer = Output("question", (Choice("question", 0.75, (("question", 0.75), ("statement", 0.25))),))
    (tmp_path / "look.html").write_text(page(translation(), output=answer).html, encoding="utf-8")
    own = Tab(browser).open(tmp_path / "look.html", "#view=steps")
    for _ in range(2):
        own.press("ArrowRight")
        drawn = own.page.locator("#panel-steps svg").text_content()
        assert "has read" in drawn
        assert "statement25 %" in drawn
        assert "“question” with a probability of 75 %" in own.status
    assert own.complaints == []
    own.context.close()


def test_the_measures_are_those_of_the_weights(tab: Tab) -> None:
    tab.press("5")
    weights = translation()[CROSS][2].astype(np.float64)
    row = tab.page.get_by_role("row", name=re.compile("decoder cross · layer 1 · head 2"))
    entropy, distance, first = row.locator(".number").all_inner_texts()
    places = np.abs(np.arange(5)[:, None] - np.arange(5))
    assert float(entropy) == pytest.approx(-(weights * np.log2(weights)).sum(-1).mean(), abs=0.006)
    assert float(distance) == pytest.approx((weights * places).sum(-1).mean(), abs=0.06)
    assert float(first.removesuffix(" %")) == pytest.approx(100 * weights[:, 0].mean(), abs=0.55)
    tab.page.get_by_role("button", name="entropy").click()
    column = [float(text) for text in tab.page.locator("tbody td:nth-child(2) .number").all_inner_texts()]
    assert column == sorted(column)


def column(tab: Tab, heading: str) -> list[float | None]:
    """The numbers below a heading of the six steps, for each key; none where the key is hidden."""
    headings = [text.split("\n")[0] for text in tab.page.locator(".six thead th").all_inner_texts()]
    place = next(i for i, text in enumerate(headings) if text.endswith(heading))
    cells = tab.page.locator(f".six tr[data-row] > :nth-child({place + 1}), .six tr.rest > :nth-child({place + 1})")
    return [number(text) for text in cells.all_inner_texts()]


def number(text: str) -> float | None:
    return float(text.replace("−", "-")) if re.search(r"\d", text) else None


def assert_shown(tab: Tab, steps: AttentionSteps, place: int = 0) -> None:
    """The steps are in the table, to the digits that it has; and its parts add up to its sum."""
    close = {"abs": 6e-5}
    seen = steps.seen.tolist()
    assert column(tab, "key") == pytest.approx(steps.keys[:, place].tolist(), **close)
    assert column(tab, "value") == pytest.approx(steps.values[:, place].tolist(), **close)
    assert column(tab, "score") == pytest.approx(steps.scores.tolist(), rel=1e-5, **close)
    if steps.divisor != 1:
        assert column(tab, "divide") == pytest.approx(steps.divided.tolist(), rel=1e-5, **close)
    for heading, values in (("softmax", steps.weights), ("weigh", steps.parts[:, place])):
        shown = column(tab, heading)
        assert [each is not None for each in shown] == seen
        assert [each or 0.0 for each in shown] == pytest.approx(values.tolist(), **close)
    total = number(tab.page.locator(".six tfoot td").last.inner_text())
    assert total == pytest.approx(float(steps.sum[place]), **close)
    assert sum(part or 0.0 for part in column(tab, "weigh")) == pytest.approx(total, abs=6e-5 * len(seen))


@pytest.mark.parametrize(("site", "head", "row"), [(CROSS, 0, 2), (CROSS, 3, 4), (OWN, 1, 0), (OWN, 2, 3)])
def test_the_six_steps_are_the_model_s_own(tab: Tab, written: Path, site: str, head: int, row: int) -> None:
    tab.open(written, f"#view=explain&site={site}&head={head}&row={row}")
    steps = call(site).steps(head=head, row=row)
    assert_shown(tab, steps)
    own = call(site).context(head=head, row=row)
    assert number(tab.page.locator(".six tfoot td").last.inner_text()) == pytest.approx(float(own[0]), abs=6e-5)
    note = tab.page.locator("#panel-explain .note").last.inner_text()
    [difference] = re.findall(r"differs from the sum by at most (\S+)\.", note)
    assert float(difference.replace("−", "-")) < 1e-5
    assert "÷ √8" in tab.page.locator(".six thead").inner_text()


def test_the_six_steps_follow_what_is_chosen_elsewhere(tab: Tab, written: Path) -> None:
    tab.page.locator("[data-key=target2]").click()
    tab.press("6")
    assert tab.page.locator(".chips [aria-pressed=true]").inner_text() == "not"
    assert f"site={CROSS}&head=0&row=2" in tab.address  # a mean has no steps: the first head has
    assert_shown(tab, call(CROSS).steps(head=0, row=2))
    tab.press("]", "ArrowRight", "ArrowDown")
    assert f"view=explain&site={CROSS}&head=1&row=3&column=0" in tab.address
    assert_shown(tab, call(CROSS).steps(head=1, row=3))
    assert tab.page.locator(".six tr.chosen").get_attribute("data-row") == "0"
    assert tab.status.startswith("“sleep” looks")
    tab.page.locator(".chips").get_by_role("button", name="I", exact=True).click()
    tab.page.locator("#kind").select_option("decoder self")
    tab.settle()
    assert_shown(tab, call(OWN).steps(head=1, row=0))
    tab.press("ArrowDown")
    assert tab.status == "“I” may not see “I”."
    assert_shown(tab.open(written, tab.address), call(OWN).steps(head=1, row=0))
    tab.page.locator("#head").select_option("mean")
    tab.settle()
    assert tab.status == "A mean of heads has no six steps: choose a head."


def test_any_number_of_the_vectors_can_be_read(tab: Tab, written: Path) -> None:
    steps = call(CROSS).steps(head=2, row=1)
    tab.open(written, f"#view=explain&site={CROSS}&head=2&row=1")
    strip = tab.page.locator(".six tr[data-row='3'] .strip").last
    box = strip.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 5.5 / 8, box["y"] + 5)
    tab.settle()
    assert_shown(tab, steps, 5)
    said = re.search(r"score (\S+), weight .*Number 6: q (\S+), k (\S+), v (\S+), w · v (\S+), z (\S+)\.$", tab.status)
    assert said is not None
    wanted = [steps.scores[3], steps.query[5], steps.keys[3, 5], steps.values[3, 5], steps.parts[3, 5], steps.sum[5]]
    assert [number(text) for text in said.groups()] == pytest.approx([float(each) for each in wanted], abs=6e-5)
    tab.press("Shift+ArrowLeft", "Shift+ArrowLeft")
    assert_shown(tab, steps, 3)
    assert re.match(r"weigh of pas: 8 numbers from −?\d", str(strip.get_attribute("aria-label")))


def test_the_temperature_is_a_step_of_its_own(tab: Tab, written: Path) -> None:
    tab.open(written, f"#view=explain&site={CROSS}&head=0&row=0&temperature=2")
    one = call(CROSS)
    one.attend.temperature = 2.0
    steps = one.steps(head=0, row=0)
    assert_shown(tab, steps)
    assert column(tab, "temperature") == pytest.approx(steps.logits.tolist(), abs=6e-5)
    assert "at 1 the sum is the model's own output" in tab.page.locator("#panel-explain").inner_text()


@pytest.mark.parametrize(("score", "positions", "kv_heads"), [
    ("additive", "relative", 2), ("distance", "alibi", None), ("dot", "rotary", 1), ("bilinear", "none", None)])
def test_every_score_has_its_steps_and_so_has_every_site(browser: Any, tmp_path: Path, score: str, positions: str,
                                                         kv_heads: int | None) -> None:
    tower = Tower(width=32, depth=1, heads=4, score=score, positions=positions, kv_heads=kv_heads, temperature=0.8)
    model = translator(tower, sources=40, targets=40).eval()
    initialize(model, seed=0)
    with torch.no_grad(), catch_all(model) as caught, watch(model) as seen:
        model(torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 11, 12, 13]]))
    labels = {site: AxisPair(TARGETS[: weights.shape[2]], SOURCES[: weights.shape[3]])
              for site, weights in seen.items()}
    record = Record({site: weights[0].numpy() for site, weights in seen.items()}, labels, seen.heads)
    file = tmp_path / "scores.html"
    file.write_text(page(record, vectors=vectors(caught, record)).html, encoding="utf-8")
    tab = Tab(browser)
    for site in record:
        tab.open(file, f"#view=explain&site={site}&head=3&row=2")
        with torch.no_grad():
            steps = caught[site].steps(head=3, row=2)
        assert_shown(tab, steps)
        assert column(tab, "temperature") == pytest.approx(steps.logits.tolist(), rel=1e-5, abs=6e-5)
        assert steps.bias is None or column(tab, "add") == pytest.approx(
            (steps.divided + steps.bias).tolist(), rel=1e-5, abs=6e-5)
        assert "There is no step 3" in tab.page.locator("#panel-explain").inner_text()
    assert tab.complaints == []
    tab.context.close()


def test_many_keys_are_the_heaviest_and_one_row_for_the_rest(browser: Any, tmp_path: Path) -> None:
    words = tuple(f" w{i}" for i in range(300))
    attend, mask = ScaledDotAttend((4,)), Mask(causal=True)
    q, k, v = (torch.randn(1, 1, 300, 4) for _ in range(3))
    caught = Caught(attend, (q, k, v), {"mask": mask}, attend(q, k, v, mask=mask))
    record = Record({"blocks.0.self": attend.weights(q, k, mask=mask)[0].numpy()},
                    {"blocks.0.self": AxisPair(words, words)}, {"blocks.0.self": (0,)})
    file = tmp_path / "long.html"
    file.write_text(page(record, vectors=vectors({"blocks.0.self": caught}, record)).html, encoding="utf-8")
    tab = Tab(browser).open(file, "#view=explain&row=280&column=290")
    steps = caught.steps(head=0, row=280)
    weights, parts = column(tab, "softmax"), column(tab, "weigh")
    assert len(weights) == 40 + 1 + 1  # the chosen one is shown, too, though it is hidden
    assert sum(weight or 0.0 for weight in weights) == pytest.approx(1, abs=2e-3)
    assert sum(part or 0.0 for part in parts) == pytest.approx(float(steps.sum[0]), abs=3e-3)
    assert tab.page.locator(".six tr.rest th").inner_text() == "259 others"
    assert tab.page.locator(".chips small").inner_text() == "241 to 300 of 300"
    assert tab.complaints == []
    tab.context.close()


def test_what_is_shown_can_be_kept_as_a_picture(tab: Tab, tmp_path: Path) -> None:
    for view in range(1, 7):
        tab.press(str(view))
        for kind in ("svg", "png") if VIEWS[view - 1] in ("alignment", "matrix") else ("svg",):
            with tab.page.expect_download() as download:
                tab.page.locator(f"#{kind}").click()
            file = tmp_path / f"{view}.{kind}"
            download.value.save_as(file)
            assert VIEWS[view - 1] in download.value.suggested_filename
            if kind == "png":
                assert file.read_bytes().startswith(b"\x89PNG")
                assert file.stat().st_size > 3_000
            else:
                drawn = xml.parse(file).getroot()
                assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
                assert not drawn.findall(".//{*}script")


def test_dark_is_as_the_machine_has_it_until_one_chooses(browser: Any, written: Path) -> None:
    tab = Tab(browser, color_scheme="dark").open(written)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(background)
    tab.press("t")
    assert tab.page.evaluate(background) != dark
    assert tab.open(written).page.evaluate(background) != dark  # it remembers
    tab.context.close()


def test_help_opens_with_its_key_and_closes(tab: Tab) -> None:
    tab.press("?")
    assert tab.page.get_by_role("dialog").is_visible()
    tab.press("Escape")
    assert not tab.page.get_by_role("dialog").is_visible()


def test_every_tone_is_darker_or_lighter_than_the_last_to_every_eye(tab: Tab) -> None:
    for _ in ("light", "dark"):
        tab.press("3", "t")
        pixels = tab.page.evaluate("""() => { const strip = document.querySelector('.legend canvas');
            return [...strip.getContext('2d').getImageData(0, 0, 256, 1).data] }""")
        light = np.array(pixels).reshape(256, 4)[:, :3] @ [0.2126, 0.7152, 0.0722]
        steps = np.diff(light)
        assert (steps <= 0).all() or (steps >= 0).all()
        assert abs(light[-1] - light[0]) > 180


def test_a_hostile_word_is_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    made = written_page(HOSTILE, HOSTILE, source=HOSTILE[1], about=HOSTILE[0])
    file.write_text(made.html, encoding="utf-8")
    tab = Tab(browser).open(file)
    for view in "123456":
        tab.press(view, "ArrowRight")
        assert tab.page.locator("img, b:not(.step b), i").count() == 0
        assert tab.page.locator("script").count() == 2 + 2 * len(translation())
    assert HOSTILE[1] in tab.page.locator("h1").inner_text()
    assert tab.complaints == []
    tab.context.close()


def test_what_was_left_out_is_said_and_8_bits_still_know_a_weight(browser: Any, tmp_path: Path) -> None:
    words = tuple(f" w{i}" for i in range(100))
    record = Record({CROSS: attention(1, 100, 100)}, {CROSS: AxisPair(words, words[::-1])}, {CROSS: (0,)})
    made = page(record, limit=len(page(record).html) - 2_000)
    file = tmp_path / "left.html"
    file.write_text(made.html, encoding="utf-8")
    tab = Tab(browser).open(file, "#row=7")
    assert "half the digits" in tab.page.locator("footer").inner_text()
    said = [float(number) for number in re.findall(r"([\d.]+) %", tab.status)]
    assert said == pytest.approx((100 * np.sort(record[CROSS][0, 7])[::-1][:4]).tolist(), rel=0.05, abs=0.55)
    assert tab.complaints == []
    tab.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_one_is_shut_out(browser: Any, written: Path, theme: str) -> None:
    tab = Tab(browser, color_scheme=theme)
    for view in VIEWS:
        tab.open(written, f"#view={view}&row=1")
        found = axe.Axe().run(tab.page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found
                if each["impact"] in ("serious", "critical")] == []
    tab.context.close()


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(tab: Tab) -> None:
    reached = []
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        id, outline = tab.page.evaluate("""() => [document.activeElement.id || document.activeElement.dataset.key,
            getComputedStyle(document.activeElement).outlineStyle
            + getComputedStyle(document.activeElement.querySelector('rect') ?? document.activeElement).stroke]""")
        reached.append(id)
        assert id is None or outline != "nonenone"
    wanted = ["png", "svg", "theme", "ask", "tab-alignment", "kind", "layer", "head", "temperature", "target0"]
    places = [reached.index(id) for id in wanted if id not in ("layer",)]  # one layer is no choice
    assert places == sorted(places)


@pytest.mark.parametrize(("name", "rows", "columns", "heads"), [
    ("encoder.blocks.0.self", 6, 6, (0, 1)), ("attention", 1, 1, (3,)), ("blocks.0.self", 1, 700, (-1,)),
    ("vision.2.pool", 300, 3, (0, 5))])
def test_any_record_has_its_page(browser: Any, tmp_path: Path, name: str, rows: int, columns: int,
                                 heads: tuple[int, ...]) -> None:
    words = tuple(f" w{i}" for i in range(700))
    record = Record({name: attention(len(heads), rows, columns)}, {name: AxisPair(words[:rows], words[:columns])},
                    {name: heads})
    file = tmp_path / "any.html"
    file.write_text(page(record).html, encoding="utf-8")
    tab = Tab(browser).open(file)
    for view in "12345":
        tab.press(view, "ArrowRight")
        assert tab.status
    assert tab.complaints == []
    tab.context.close()


def test_a_matrix_of_4096_squared_is_moved_smoothly(browser: Any, tmp_path: Path) -> None:
    size = 4096
    weights = np.random.default_rng(0).random((1, size, size), np.float32)
    weights /= weights.sum(-1, keepdims=True)
    words = tuple(f" w{i}" for i in range(size))
    file = tmp_path / "large.html"
    file.write_text(page(Record({"blocks.0.self": weights}, {"blocks.0.self": AxisPair(words, words)},
                                {"blocks.0.self": (0,)})).html, encoding="utf-8")
    tab = Tab(browser).open(file, "#view=matrix")
    tab.page.mouse.move(600, 450)
    for zoom in (0, 5, 8):  # all of it, a part, single cells
        for _ in range(zoom):
            tab.page.mouse.wheel(0, -200)
        tab.settle()
        tab.page.evaluate("""() => { window.times = []; window.over = false;
            requestAnimationFrame(function frame(time) { times.push(time); over || requestAnimationFrame(frame) }) }""")
        tab.page.mouse.down()
        for step in range(40):
            tab.page.mouse.move(600 - 7 * step, 450 - 4 * step)
        tab.page.mouse.up()
        times = tab.page.evaluate("() => { over = true; return times }")
        frames = np.diff(times).tolist()
        assert len(frames) > 10
        assert median(frames) < SMOOTH, frames
        tab.page.mouse.move(600, 450)
    assert tab.complaints == []
    tab.context.close()
