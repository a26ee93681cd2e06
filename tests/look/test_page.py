"""The page holds what the record holds, within its size, and nothing that it holds runs but its own script."""

import base64
import hashlib
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.axes import AxisPair
from regard.look.choices import Output
from regard.look.document import STATIC
from regard.look.page import Page, pack, page
from regard.look.record import Record
from regard.look.terminal import draw
from regard.predictor import Predictor, load
from regard.settings.errors import UserError
from regard.settings.load import load as settings
from regard.training.loop import train
from regard.verbs.look import main


def record_of(heads: int = 4, rows: int = 24, columns: int = 32, sites: int = 3) -> Record:
    random = np.random.default_rng(0)
    weights = {f"decoder.blocks.{i}.cross": random.dirichlet(np.ones(columns), (heads, rows)).astype(np.float32)
               for i in range(sites)}
    labels = AxisPair(tuple(f" t{i}" for i in range(rows)), tuple(f" s{i}" for i in range(columns)))
    return Record(weights, dict.fromkeys(weights, labels), dict.fromkeys(weights, tuple(range(heads))))


def facts(made: Page) -> dict[str, object]:
    [text] = re.findall(r'id="facts">(.*?)</script>', made.html, re.DOTALL)
    return json.loads(text)  # type: ignore[no-any-return]


def unpacked(codes: bytes, floor: float, bits: int) -> np.ndarray:
    """As record.js reads it."""
    highest = (1 << bits) - 1
    numbers = np.frombuffer(codes, "<u2" if bits == 16 else "u1").astype(np.float64)
    return np.where(numbers > 0, np.exp(floor * ((highest - numbers) / (highest - 1)) ** 2), 0)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.sampled_from([8, 16]))
def test_a_weight_comes_back_and_a_zero_stays_a_zero(weights: list[float], bits: int) -> None:
    array = np.array(weights, np.float32)[None, None]
    back = unpacked(*pack(array, bits), bits)
    assert ((back > 0) == (array[0, 0] > 0)).all()
    seen = array[0, 0] > 1e-3  # 8 bits know the weights that can be seen to a few per cent, whatever else is there
    assert np.allclose(back[seen], array[0, 0][seen], rtol=1e-3 if bits == 16 else 0.12)


@pytest.mark.parametrize("exponent", [1, 8, 30])
def test_the_smallest_weights_keep_their_logarithms(exponent: int) -> None:
    array = np.full((1, 2, 3), 10.0**-exponent, np.float32)
    assert np.allclose(np.log(unpacked(*pack(array, 16), 16)), np.log(array[0, 0, 0]), rtol=1e-4)


def test_a_small_record_is_held_whole() -> None:
    made = page(record_of(), source="a")
    assert made.left_out == ()
    assert facts(made)["bits"] == 16


def test_whatever_the_limit_the_page_keeps_to_it_and_says_what_it_left_out() -> None:
    record = record_of(heads=8, rows=100, columns=100)  # 240,000 weights
    least = len(page(record_of(heads=1, rows=100, columns=100, sites=1)).html)
    seen = []
    for room in (800_000, 500_000, 60_000, 30_000, 10_000, 3_000):
        made = page(record, limit=least + room)
        assert len(made.html.encode()) <= least + room
        assert facts(made)["leftOut"] == list(made.left_out)
        seen.append(len(made.left_out))
    assert seen == sorted(seen)
    assert {0, 1, 2, 3} <= set(seen)
    assert "rows" in page(record, limit=least - 14_000).left_out[-1]


def test_a_record_that_was_cut_names_its_last_rows() -> None:
    record = record_of(heads=1, rows=400, columns=100, sites=1)
    bare = len(page(record_of(heads=1, rows=1, columns=1, sites=1)).html)
    made = page(record, limit=bare + 20_000)
    [site], texts = facts(made)["sites"], facts(made)["texts"]  # type: ignore[misc]
    assert texts[site["targets"]][-1] == " t399"
    assert site["first"] == 400 - len(texts[site["targets"]]) > 0


def test_an_empty_record_is_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        page(Record({}, {}, {}))


HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "{{script}}", "<!--", "\ud800",
           "\u202e"]


def test_no_word_becomes_markup() -> None:
    words = tuple(HOSTILE)
    weights = {"<b>.0": np.full((1, 6, 6), 1 / 6, np.float32)}
    record = Record(weights, {"<b>.0": AxisPair(words, words)}, {"<b>.0": (0,)})
    made = page(record, source="".join(words), output=Output(HOSTILE[1], ()), about="<i>")
    made.html.encode()
    tags = re.findall(r"<(script|img|b>|i>|!--)", made.html)
    assert tags == ["script"] * 3  # the facts, one site's weights, the script
    assert facts(made)["texts"] == [list(words)]


def test_the_policy_allows_this_script_and_this_style_and_nothing_from_elsewhere() -> None:
    html = page(record_of()).html
    [policy] = re.findall(r'Content-Security-Policy" content="(.*?)"', html)
    for kind, pattern in (("script", r'<script type="module">(.*?)</script>'), ("style", r"<style>(.*?)</style>")):
        [text] = re.findall(pattern, html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|unsafe", html)


def test_every_module_is_in_the_page() -> None:
    html = page(record_of()).html
    assert not re.search(r"^(import|export) ", html, re.MULTILINE)
    for file in STATIC.iterdir():
        if file.name.endswith(".js") and file.name != "gallery.js":
            assert file.read_text(encoding="utf-8").splitlines()[0] in html, file.name


# The command.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    tiny = settings(None, ["data.built_in_size=12", "train.steps=2", "model.width=16", "model.depth=1", "model.heads=2",
                           "search.max_tokens=8", "search.beam=1", "tokens.vocabulary=300", "device=cpu"])
    train(tiny, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run, device="cpu")


def test_the_command_writes_a_page_and_prints_its_path(
        run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a page.html"
    main("il dort", run, None, "*", file, False, "cpu", False)
    assert capsys.readouterr().out == f"{file}\n"
    main("il dort", run, "she sleeps", "decoder.*.cross", file, False, "cpu", True)
    said = json.loads(capsys.readouterr().out)
    assert (said["page"], said["output"], said["bytes"]) == (str(file), "she sleeps", file.stat().st_size)
    assert re.findall(r'"name": "(.*?)"', file.read_text(encoding="utf-8")) == ["decoder.blocks.0.cross"]
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_the_command_prints_a_heat_map_instead(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main("il dort", run, "she sleeps", "*", None, True, "cpu", False, terminal=True)
    first, blank, *drawn = capsys.readouterr().out.splitlines()
    assert (first, blank) == ("decoder.blocks.0.cross, mean of 2 heads", "")
    record = load(run, device="cpu").look("il dort", "she sleeps")
    assert drawn == draw(record.mean(), "decoder.blocks.0.cross", -1).splitlines()
    monkeypatch.setenv("COLUMNS", "16")
    main("il dort", run, "she sleeps", "decoder.*", None, True, "cpu", False, head=1, terminal=True)
    said = capsys.readouterr().out
    assert re.findall(r"^(\S+), (.*)$", said, re.MULTILINE) == [
        ("decoder.blocks.0.self", "head 1"), ("decoder.blocks.0.cross", "head 1")]
    assert draw(record, "decoder.blocks.0.cross", 1, 16) in said
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("environment", "is_coloured"), [
    ({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_a_terminal_has_colours_unless_it_wants_none(run: Path, monkeypatch: pytest.MonkeyPatch,
                                                     environment: dict[str, str], is_coloured: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    with redirect_stdout(screen):
        main("il dort", run, None, "*", None, True, "cpu", False, terminal=True)
    assert ("\033[" in screen.getvalue()) == is_coloured


def test_a_heat_map_has_no_file_and_no_json(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--out"):
        main("il dort", run, None, "*", tmp_path / "x.html", False, "cpu", False, terminal=True)
    with pytest.raises(UserError, match="--json"):
        main("il dort", run, None, "*", None, False, "cpu", True, terminal=True)


def test_a_page_of_one_head_has_its_weights_and_its_six_steps(run: Path, tmp_path: Path) -> None:
    main("il dort", run, None, "*.cross", tmp_path / "x.html", False, "cpu", False, head=1)
    [site] = facts(Page((tmp_path / "x.html").read_text(encoding="utf-8"), ()))["sites"]  # type: ignore[misc]
    assert site["heads"] == [1]
    assert (site["steps"]["score"], site["steps"]["groups"]) == ("scaled-dot", [1])


@pytest.mark.parametrize(("text", "only", "out", "message"), [
    ("  ", "*", "x.html", "empty"), ("il dort", "nothing.*", "x.html", "no attention of this name"),
    ("il dort", "*", "no/such/x.html", "no such folder"), ("il dort", "*", ".", "a folder")])
def test_what_cannot_be_looked_at_is_said(run: Path, tmp_path: Path, text: str, only: str, out: str,
                                          message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(text, run, None, only, tmp_path / out, False, "cpu", False)


def test_what_could_have_been_said_belongs_to_what_was(predictor: Predictor) -> None:
    told, record = predictor.choices("il dort", best=3), predictor.look("il dort")
    assert predictor.task.predict(predictor.model, ["il dort"])[0].text == told.text
    assert record.axes["decoder.blocks.0.cross"].targets == tuple(choice.token for choice in told.choices)
    for choice in told.choices[:-1]:  # the last may be the end that no search would wait for
        assert choice.best[0] == (choice.token, pytest.approx(choice.probability))  # beam 1 takes the likeliest
    for choice in told.choices:
        chances = [chance for _, chance in choice.best]
        assert len(chances) == 3
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1


def test_any_output_can_be_weighed(predictor: Predictor) -> None:
    told = predictor.choices("il dort", "a cat", best=100_000)
    assert told.text == "a cat"
    for choice in told.choices:
        assert sum(chance for _, chance in choice.best) == pytest.approx(1, abs=1e-4)
        assert dict(choice.best)[choice.token] == pytest.approx(choice.probability)
