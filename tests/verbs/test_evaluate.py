"""`regard eval` of labelled texts: other files, shifted copies, and the drop of each."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.presets import base
from regard.tasks.base import Confusion
from regard.training.loop import train
from regard.verbs.charts import taken_for
from regard.verbs.evaluate import Others, main, table


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It learns which colour a text names, at its end."""
    folder = tmp_path_factory.mktemp("eval")
    rows = [(f"{thing} number {n} is {colour}", colour) for n in range(12) for colour in ("red", "blue")
            for thing in ("a car", "the house")]
    (folder / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    (folder / "test.tsv").write_text("my car is red\tred\nyour house is blue\tblue\nred\tred\nblue\tblue\n")
    settings = ["model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "tokens.vocabulary=300",
                "train.batch_tokens=512", "train.steps=40", "train.warmup=5", "train.rate=0.01", "device=cpu",
                f"data.paths={folder}"]
    train(load(None, settings, base=base("classify", built_in=False)), folder / "run", quiet=True)
    return folder / "run"


def told(capsys: pytest.CaptureFixture[str], run: Path, *splits: str, **others: object) -> dict[str, dict[str, float]]:
    capsys.readouterr()
    main(run, splits, None, "cpu", "float32", None, True, Others(**others))  # type: ignore[arg-type]
    answer = json.loads(capsys.readouterr().out)
    assert {name: answer[name] for name in ("accuracy", "loss")}.items() <= answer["splits"][answer["split"]].items()
    return dict(answer["splits"])


def test_other_files_are_measured_with_their_drop_against_the_first(run: Path, tmp_path: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("label,text\nred,a red car\nred,a blue car\n")
    other = tmp_path / "other.csv"
    splits = told(capsys, run, "test", data=[other])
    assert list(splits) == ["test", str(other)]
    assert (splits["test"]["accuracy"], splits["test"]["drop"]) == (1.0, 0.0)
    assert (splits[str(other)]["accuracy"], splits[str(other)]["drop"]) == (0.5, 0.5)
    assert splits[str(other)]["examples"] == 2
    assert list(told(capsys, run, data=[other, run.parent])) == [str(other), str(run.parent / "test.tsv")]


def test_columns_of_other_files_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("id,review,colour\n1,a red car,red\n")
    splits = told(capsys, run, data=[tmp_path / "other.csv"], source="review", target="colour")
    assert splits[str(tmp_path / "other.csv")]["accuracy"] == 1.0


def test_a_column_that_is_not_named_is_the_runs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text("words,kind\n" + "".join(f"{n} cars,{'ab'[n % 2]}\n" for n in range(12)))
    settings = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=1",
                "device=cpu", f"data.paths={tmp_path / 'train.csv'}", "data.source=words", "data.target=kind"]
    train(load(None, settings, base=base("classify", built_in=False)), tmp_path / "run", quiet=True)
    (tmp_path / "other.csv").write_text("review,kind\na car,a\n")
    splits = told(capsys, tmp_path / "run", data=[tmp_path / "other.csv"], source="review")
    assert splits[str(tmp_path / "other.csv")]["examples"] == 1


def test_a_shifted_copy_drops_against_its_own(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = told(capsys, run, shift="length,case")
    assert list(splits) == ["test", "test length", "test case"]
    # Half of the texts lose the word that decides.
    assert splits["test length"]["drop"] == 1.0 - splits["test length"]["accuracy"]
    assert splits["test length"]["loss"] > splits["test"]["loss"]
    assert told(capsys, run, shift="length,case") == splits


def test_the_table_has_a_line_for_each(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(run, [], None, "cpu", "float32", "int8", False, Others(shift="typos"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["split", "accuracy", "macro_f1", "loss", "examples", "drop"]
    assert [line.split("  ")[0] for line in lines[1:5]] == ["test", "test typos", "test int8", "test typos int8"]
    assert lines[5].startswith("test: int8 changes the accuracy by ")
    assert "drop" not in table({"test": {"loss": 1.0}})


def test_what_is_taken_for_what_is_drawn_and_told(run: Path, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    main(run, [], None, "cpu", "float32", None, True, plot=tmp_path / "a.png")
    assert json.loads(capsys.readouterr().out)["confusion"] == {"labels": ["blue", "red"], "counts": [[2, 0], [0, 2]]}
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_the_picture_has_a_cell_for_every_two_labels() -> None:
    figure = taken_for(Confusion(["a", "$b$", "c" * 40], np.array([[8, 0, 2], [0, 5, 0], [0, 0, 0]])), title="a run")
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "$b$", "c" * 23 + "…"]
    assert sorted(text.get_text() for text in axes.texts) == ["100%", "2", "5", "8", "80%"]
    assert any("13 of 15 right" in text.get_text() for text in figure.texts)
    many = taken_for(Confusion([str(n) for n in range(200)], np.eye(200, dtype=np.int64)), title="a run")
    assert many.get_figwidth() < 20


@pytest.mark.parametrize(("others", "message"), [
    ({"shift": "tpyos"}, "--shift tpyos: no such shift; did you mean typos"),
    ({"data": [Path("absent.tsv")]}, "absent.tsv: no such file or directory"),
])
def test_what_cannot_be_measured_is_refused(run: Path, others: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(run, [], None, "cpu", "float32", None, False, Others(**others))  # type: ignore[arg-type]
