"""The picture of the learning curves shows what metrics.jsonl says."""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes

import regard.cli
from regard.look.plots.loss_curves import draw, picture, spread
from regard.runs.summary import Curves
from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.verbs.runs import main

PNG = b"\x89PNG\r\n\x1a\n"
ONE = Curves({50: 5.0, 100: 2.0, 150: 1.0}, {75: 3.0, 150: 1.25})
OTHER = Curves({50: 5.5, 100: 4.5}, {75: 4.75})


def drawn(curves: dict[str, Curves]) -> Axes:
    (axes,) = picture(curves).axes
    return axes


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def make(folder: Path, curves: Curves) -> None:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(to_json(load())))
    lines = [{"kind": "step", "step": step, "loss": loss} for step, loss in curves.training.items()]
    lines += [{"kind": "evaluation", "step": step, "loss": loss} for step, loss in curves.validation.items()]
    lines.sort(key=lambda line: line["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_run_has_its_training_and_its_validation_losses_in_one_colour() -> None:
    axes = drawn({"one": ONE, "other": OTHER})
    lines = [dict(zip(*line.get_data(), strict=True)) for line in axes.lines]
    assert lines == [ONE.training, ONE.validation, OTHER.training, OTHER.validation]
    one, one_too, other, other_too = (line.get_color() for line in axes.lines)
    assert one == one_too != other == other_too


def test_a_curve_is_named_at_its_end_with_the_best_validation_loss() -> None:
    axes = drawn({"one": ONE, "other": OTHER, "young": Curves({50: 5.0}, {})})
    assert {"one  1.25", "other  4.75", "young"} <= set(words(axes))


def test_a_run_alone_has_its_curves_named() -> None:
    axes = drawn({"a $5$ run": ONE})
    assert {"training  1", "validation  1.25"} <= set(words(axes))
    assert axes.get_title(loc="left") == "Loss of a $5$ run"


def test_the_axis_is_logarithmic_only_where_losses_differ_by_much() -> None:
    near = Curves({1: 2.0, 2: 1.9}, {})
    assert drawn({"near": near}).get_yscale() == "linear"
    assert drawn({"far": Curves({1: 9.0, 2: 0.1}, {})}).get_yscale() == "log"
    assert drawn({"below": Curves({1: 9.0, 2: -0.1}, {})}).get_yscale() == "linear"


floats = st.floats(-1e30, 1e30) | st.sampled_from([math.nan, math.inf, -math.inf])
losses = st.dictionaries(st.integers(1, 2**53), floats, max_size=5).map(lambda curve: dict(sorted(curve.items())))


@settings(max_examples=25)
@given(st.dictionaries(st.text(max_size=40), st.builds(Curves, losses, losses), min_size=1, max_size=3))
def test_any_losses_and_names_can_be_drawn(curves: dict[str, Curves]) -> None:
    picture(curves)


@pytest.mark.parametrize("curves", [
    {"not a number": Curves({1: math.nan, 2: 3.0, 3: math.inf}, {3: math.nan})}, {"nothing": Curves()},
    {"日本語 \x1b": OTHER, "a" * 200: ONE}, {f"run {number}": ONE for number in range(40)},
], ids=["not finite", "nothing", "names", "many"])
def test_odd_curves_make_a_picture(curves: dict[str, Curves]) -> None:
    draw(curves, Path("new folder/curves.png"))
    assert Path("new folder/curves.png").read_bytes().startswith(PNG)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), max_size=10))
def test_labels_stand_apart_inside_the_picture_and_in_the_order_of_their_curves(heights: list[float]) -> None:
    placed = spread(heights, 0.1)
    assert all(low + 0.1 <= high + 1e-9 for low, high in pairwise(sorted(placed)))
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)
    assert all(placed[a] < placed[b] for a in range(len(heights)) for b in range(len(heights))
               if heights[a] < heights[b])


# The command.


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["regard", "runs", *arguments])
    with pytest.raises(SystemExit, match="0"):
        regard.cli.main()


def test_the_picture_goes_where_it_is_told_or_into_the_folder(capsys: pytest.CaptureFixture[str],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    make(Path("runs/one"), ONE)
    make(Path("runs/other"), OTHER)
    Path("runs/empty").mkdir()
    for arguments, file in {
        ("--plot",): "runs/learning-curves.png", ("--plot", "mine.png"): "mine.png", ("--plot", "a.svg"): "a.svg",
        ("--plot", "to/mine.png", "runs"): "to/mine.png", ("runs", "--plot", "to/it.png"): "to/it.png",
        ("--run", "runs/one", "--plot"): "runs/one/learning-curves.png",
    }.items():
        command(monkeypatch, *arguments)
        assert capsys.readouterr() == (f"{file}\n", "")
        assert Path(file).read_bytes().startswith(b"<?xml" if file.endswith("svg") else PNG)
    command(monkeypatch, "--plot", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["picture"], sorted(printed["runs"])) == ("runs/learning-curves.png", ["one", "other"])


def test_runs_that_have_said_nothing_yet_cannot_be_drawn() -> None:
    make(Path("runs/young"), Curves())
    with pytest.raises(UserError, match="nothing to draw yet: young said no loss"):
        main([], None, True, False)
    assert not Path("runs/learning-curves.png").exists()


def test_without_matplotlib_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    make(Path("runs/one"), ONE)
    monkeypatch.delitem(sys.modules, "regard.look.plots.loss_curves")
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"--plot needs matplotlib: pip install matplotlib"):
        main([], None, True, False)
