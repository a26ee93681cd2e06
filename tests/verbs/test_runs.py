"""`regard runs` shows every run of a folder, and what is no run too, without ever failing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.cli import main
from regard.runs.lock import hold
from regard.runs.summary import summary
from regard.settings.load import load, to_json

ROOT = Path(__file__).parents[2]
SCORES = {"val": {"bleu": 14.0}, "test": {"bleu": 16.375, "chrf": 33.1, "bleu_signature": "x"}, "test_b": {"bleu": 9.0}}


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """`regard runs ARGUMENTS`: its exit code, stdout and stderr."""
    before, sys.argv = sys.argv, ["regard", "runs", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def listed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, dict[str, object]]:
    """The objects that --json prints, by name."""
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return {record["name"]: record for record in json.loads(out)}


def make(folder: Path, *, lines: list[dict[str, object]] | None = None, scores: object = None,
         overrides: tuple[str, ...] = ()) -> Path:
    """A run directory; a finished one if there are scores."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(to_json(load(overrides=["train.steps=900", *overrides]))))
    if lines is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if scores is not None:
        (folder / "scores.json").write_text(json.dumps(scores))
        (folder / "model.safetensors").write_bytes(b"x" * 2_000_000)
    return folder


def step(number: int, loss: float) -> dict[str, object]:
    return {"kind": "step", "step": number, "loss": loss}


def evaluation(number: int, loss: float) -> dict[str, object]:
    return {"kind": "evaluation", "step": number, "loss": loss}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


# What is said of a run.


def test_a_run_that_was_trained_is_listed_as_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pairs").mkdir()
    for split in ("train", "val", "test"):
        Path("pairs", f"{split}.tsv").write_text("".join(f"le chat {n}\tthe cat {n} {split}\n" for n in range(20)))
    settings = load(overrides=["data.paths=pairs", "train.steps=3", "model.width=16", "search.max_tokens=8",
                               "tokens.vocabulary=300", "search.beam=1", "device=cpu"])
    scores = regard.train(settings, "runs/mine", quiet=True)
    record = listed(capsys)["mine"]
    lines = [json.loads(line) for line in Path("runs/mine/metrics.jsonl").read_text().splitlines()]
    assert record["validation_loss"] == min(line["loss"] for line in lines if line["kind"] == "evaluation")
    assert record["score"] == {"split": "test", "name": "bleu", "value": scores["test"]["bleu"]}
    assert (record["state"], record["step"], record["steps"]) == ("finished", 3, 3)
    assert (record["task"], record["data"]) == ("translate", ["pairs"])
    assert record["bytes"] == sum(file.stat().st_size for file in Path("runs/mine").rglob("*") if file.is_file())


def test_a_table_has_a_line_for_each_run_the_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    make(Path("runs/old"), scores=SCORES, lines=[step(900, 0.5), evaluation(900, 0.61234)])
    make(Path("runs/new"), overrides=("data.paths=here/train.en, here/train.de",), lines=[step(50, 1.0)])
    for file in Path("runs/old").iterdir():
        os.utime(file, (time.time() - 7300,) * 2)
    heading, new, old = run(capsys)[1].splitlines()
    assert heading.split() == ["name", "state", "step", "val", "loss", "score", "task", "data", "size", "touched"]
    assert new.split()[:3] == ["new", "stopped", "50/900"]
    assert "train.en, train.de" in new
    assert old.split() == ["old", "finished", "900/900", "0.6123", "bleu", "16.38", "translate", "built-in", "2", "MB",
                           "2", "h", "ago"]


def test_a_run_that_is_trained_now_is_running_and_one_that_was_killed_has_stopped(
        capsys: pytest.CaptureFixture[str]) -> None:
    make(Path("runs/killed"), lines=[step(50, 1.0)])
    make(Path("runs/going"), lines=[step(50, 1.0)])
    with hold(Path("runs/going")), hold(Path("runs/preparing")):
        records = listed(capsys)
        run(capsys)  # the table of a run that has no settings yet
    assert {name: record["state"] for name, record in records.items()} == {
        "killed": "stopped", "going": "running", "preparing": "running"}
    assert records["preparing"]["task"] is None
    assert listed(capsys)["going"]["state"] == "stopped"


@pytest.mark.parametrize(("scores", "shown"), [
    ({"val": {"bleu": 14.0}}, "bleu 14.00 (val)"),
    ({"test_b": {"note": "x", "accuracy": 0.5}, "test": {"accuracy": 1}}, "accuracy 0.50"),
    ({"test": {}, "test_b": 3}, "translate"), ({}, "translate"),
])
def test_the_score_is_the_first_figure_of_the_first_test(capsys: pytest.CaptureFixture[str], scores: object,
                                                         shown: str) -> None:
    make(Path("runs/mine"), scores=scores)
    assert shown in run(capsys)[1]
    assert listed(capsys)["mine"]["state"] == "finished"


# Its curves.


def test_what_a_run_says_again_after_a_kill_replaces_what_it_had_said(tmp_path: Path) -> None:
    lines = [step(50, 5.0), evaluation(60, 4.9), step(100, 4.0), evaluation(120, 3.0), step(130, 3.5), step(150, 3.4),
             step(100, 4.5), evaluation(120, 3.2), step(140, 3.6)]
    curves = summary(make(tmp_path / "mine", lines=lines)).curves
    assert curves.training == {50: 5.0, 100: 4.5, 140: 3.6}
    assert curves.validation == {60: 4.9, 120: 3.2}
    assert (curves.step, curves.best) == (140, 3.2)


def test_a_loss_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    lines = [evaluation(1, float("nan")), evaluation(2, 5.0), evaluation(3, float("-inf")), evaluation(4, float("nan"))]
    assert summary(make(tmp_path / "mine", lines=lines)).curves.best == 5.0
    assert summary(make(tmp_path / "none", lines=lines[:1])).curves.best is None


def test_a_line_that_a_kill_has_cut_costs_no_other(tmp_path: Path) -> None:
    folder = make(tmp_path / "mine", lines=[step(50, 5.0), step(100, 4.0)])
    file = folder / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    assert summary(folder).curves.training == {50: 5.0}
    with open(file, "a") as more:
        more.write("\n" + json.dumps(step(150, 3.0)))
    assert summary(folder).curves.training == {50: 5.0, 150: 3.0}


# What is no run.


def test_what_is_no_run_is_listed_with_the_reason_beside_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    make(Path("runs/good"), scores=SCORES)
    make(Path("runs/scoreless"), scores=SCORES).joinpath("scores.json").write_text("[1]")
    make(Path("runs/folder")).joinpath("metrics.jsonl").mkdir()
    for name, content in {"broken": '{"format": 2,', "newer": '{"format": 99}', "binary": "\0\x1b[31m", "void": "",
                          "odd": '{"format": 2, "model": {"widht": 3}}'}.items():
        Path("runs", name).mkdir()
        Path("runs", name, "run.json").write_text(content)
    Path("runs/empty").mkdir()
    Path("runs/thesis").mkdir()
    Path("runs/thesis/chapter.tex").touch()
    Path("runs/a file").touch()
    Path("runs/.hidden").mkdir()
    problems = {name: record["problem"] for name, record in listed(capsys).items()}
    assert problems.pop("good") is None
    for name, problem in {"scoreless": "scores.json: is not a JSON object", "folder": "metrics.jsonl: Is a directory",
                          "broken": "run.json: line 1, column 14: ", "newer": "format: the file has version 99",
                          "binary": "run.json: line 1, column 1: ", "void": "run.json: line 1, column 1: ",
                          "odd": "model.widht: no such setting; ", "empty": "an empty folder",
                          "thesis": "it has no run.json"}.items():
        assert str(problems.pop(name)).startswith(problem)
    assert not problems
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()][1] == ["good", "finished"]
    assert out.count("unreadable") == 7
    assert [line.split(maxsplit=3)[:3] for line in out.splitlines()[-2:]] == [
        ["empty", "no", "run"], ["thesis", "no", "run"]]


JUNK = st.binary(max_size=80) | st.recursive(
    st.none() | st.integers() | st.floats() | st.sampled_from(["step", "evaluation", "test", "bleu"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["kind", "step", "loss", "test", "bleu"]), inner),
    max_leaves=8).map(lambda value: json.dumps(value).encode())


@given(metrics=st.lists(JUNK, max_size=4).map(b"\n".join), scores=JUNK)
def test_whatever_is_in_a_folder_can_be_listed(metrics: bytes, scores: bytes,
                                               tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = make(tmp_path_factory.mktemp("any") / "mine", scores=SCORES)
    (folder / "metrics.jsonl").write_bytes(metrics)
    (folder / "scores.json").write_bytes(scores)
    about = summary(folder)
    assert about.state in ("finished", "unreadable")
    assert (about.problem is None) == (about.state == "finished")
    json.dumps(about.curves.best, allow_nan=False)


@pytest.mark.parametrize("arguments", [[], ["empty"]])
def test_a_folder_without_runs_is_no_mistake(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    Path("empty").mkdir()
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (0, "")
    assert err.startswith(f"no run in {(arguments or ['runs'])[0]} yet")
    assert run(capsys, *arguments, "--json")[1] == "[]\n"


@pytest.mark.parametrize(("arguments", "said"), [
    (["nowhere"], "nowhere: no such folder"), (["file"], "file: a file, not a folder of runs"),
    (["--run", "empty"], "empty: not a run directory (it has no run.json)"),
    (["empty", "--run", "empty"], "name a folder of runs, or one run"),
    (["empty", "nowhere"], "empty and nowhere: give at most one folder and one picture"),
    (["curves.png"], "curves.png: a picture is drawn with --plot curves.png"),
])
def test_a_place_that_is_not_there_is_a_mistake(capsys: pytest.CaptureFixture[str], arguments: list[str],
                                                said: str) -> None:
    Path("empty").mkdir()
    Path("file").touch()
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err


# How it looks.


def test_one_run_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    make(Path("runs/one"))
    make(Path("runs/two"))
    assert list(listed(capsys, "runs/one")) == list(listed(capsys, "--run", "runs/one")) == ["one"]


def test_eighty_columns_are_enough_and_columns_stand_under_their_names(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make(Path("runs/translate-phrasebook"), scores=SCORES, lines=[step(123456, 1.0), evaluation(123456, 0.5)])
    make(Path("runs/a-name-that-is-so-long-that-no-line-could-hold-it-with-all-the-rest"), lines=[evaluation(50, 11.5)])
    Path("runs/empty").mkdir()
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(capsys)[1].splitlines()
    assert max(map(len, lines)) <= 80
    end = lines[0].index("val loss") + len("val loss")
    assert {line[:end].split()[-1] for line in lines[1:3]} == {"0.5000", "11.5000"}
    assert all("…" in line for line in lines if line.startswith("a-name"))
    monkeypatch.setenv("COLUMNS", "20")
    assert run(capsys)[0] == 0


def test_a_name_that_would_move_the_cursor_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/\x1b[2J\nred").mkdir(parents=True)
    out = run(capsys)[1]
    assert out.count("\n") == 2
    assert "\x1b" not in out


WITHOUT_TORCH = """
import sys
from regard.verbs.runs import main
main([], None, False, False)
assert "torch" not in sys.modules
"""


def test_runs_are_listed_without_importing_torch(elsewhere: Path) -> None:
    make(Path("runs/mine"), scores=SCORES, lines=[step(50, 1.0)])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], env=environment, text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
