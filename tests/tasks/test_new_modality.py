"""A task of another package, whose inputs are no text: every verb serves it, and no line of regard knows it.

The task is the one file `vectors.py`; a folder beside it stands for its installed package.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from killing import killed_at
from regard.look.axes import Time
from regard.predictor import load
from regard.tasks.traits import TASKS
from typed import regard_says

HERE = Path(__file__).parent
SMALL = [word for setting in (
    "model.width=16", "model.depth=1", "model.heads=2", "train.steps=80", "train.batch_tokens=256",
    "train.evaluate_every=20", "train.save_every=10", "train.learning_rate=0.01", "train.precision=float32",
    "device=cpu") for word in ("--set", setting)]
RISING = "[[-0.9, 0.3], [-0.1, 0.9], [0.8, -0.5]]"


def write_paths(file: Path, *, seed: int, count: int) -> Path:
    """Points that rise or fall along their first axis."""
    random = np.random.default_rng(seed)
    with open(file, "w") as lines:
        for label in random.choice(["rise", "fall"], size=count).tolist():
            length = int(random.integers(3, 12))
            along = np.linspace(-1, 1, length) * (1 if label == "rise" else -1)
            path = np.stack([along, random.normal(size=length)], axis=1).round(3).tolist()
            lines.write(json.dumps({"path": path, "label": label}) + "\n")
    return file


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The folders that a process needs to find the package: its code, and what pip writes."""
    site = tmp_path_factory.mktemp("site")
    about = site / "vectors_task-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vectors-task\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[regard.tasks]\nvectors = vectors:TRAITS\n")
    with patch.object(sys, "path", [str(HERE), str(site), *sys.path]):
        yield [HERE, site]
    TASKS.pop("vectors", None)
    sys.modules.pop("vectors", None)


@pytest.fixture(scope="module")
def data(installed: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paths(tmp_path_factory.mktemp("data") / "paths.jsonl", seed=0, count=160)


@pytest.fixture(scope="module")
def trained(data: Path) -> Path:
    out = data.parent / "run"
    code, _, said = train(data, out)
    assert code == 0, said
    return out


def train(data: Path, out: Path, *more: str) -> tuple[int, str, str]:
    return regard_says("train", "vectors", "--data", data, *SMALL, "--out", out, *more)


def says(*words: str | Path) -> str:
    """What a command prints that succeeds."""
    code, out, said = regard_says(*words)
    assert code == 0, said
    return out


def answers(trained: Path, words: Sequence[str], stdin: str = "") -> list[dict[str, Any]]:
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))):
        return [json.loads(line) for line in says("predict", "--run", trained, "--json", *words).splitlines()]


def test_it_learns(trained: Path) -> None:
    assert json.loads((trained / "scores.json").read_text())["val"] == {"accuracy": 1.0, "examples": 20}


def test_an_argument_a_line_of_stdin_and_all_of_stdin_are_inputs(trained: Path) -> None:
    [answer] = answers(trained, [RISING])
    assert answer["input"] == RISING
    assert answer["text"] == "rise"
    assert answers(trained, [], f"{RISING}\n{RISING}\n") == [answer, answer]
    assert answers(trained, ["-"], RISING.replace("], ", "],\n")) == [answer]
    assert load(trained).predict([np.array(json.loads(RISING), np.float32)]) == ["rise"]


@pytest.mark.parametrize(("words", "sentence"), [
    (["up, then down"], "input 1: up, then down: must be lists of numbers"),
    ([RISING, "[1, 2]"], "input 2: [1, 2]: must be lists of numbers")])
def test_an_input_that_cannot_be_read_is_refused_with_its_place(
    trained: Path, words: list[str], sentence: str
) -> None:
    code, _, said = regard_says("predict", "--run", trained, *words)
    assert code == 2
    assert said.startswith(f"regard: {sentence}")


def test_it_is_evaluated_on_its_own_data_and_on_other(trained: Path, tmp_path: Path) -> None:
    assert json.loads(says("eval", "--run", trained, "--json"))["accuracy"] == 1.0
    other = write_paths(tmp_path / "other.jsonl", seed=1, count=20)
    scores = json.loads(says("eval", "--run", trained, "--data", other, "--json"))
    assert scores["splits"][str(other)]["examples"] == 20
    assert scores["accuracy"] > 0.8


def test_its_attention_is_seen_over_its_own_axis(trained: Path, tmp_path: Path) -> None:
    record = load(trained).look(np.array(json.loads(RISING), np.float32))
    assert record.axes["encoder.blocks.0.self"].sources == Time((0.0, 0.02, 0.04))
    page = tmp_path / "look.html"
    said = json.loads(says("look", "--run", trained, RISING, "--out", page, "--no-open", "--json"))
    assert (said["input"], said["output"]) == (RISING, "rise")
    assert "0.02 s" in page.read_text()
    assert "0.04 s" in says("look", "--run", trained, RISING, "--terminal")
    explained = json.loads(says("explain", "--run", trained, RISING, "--word", "1", "--json"))
    assert (explained["input"], explained["word"]) == (RISING, " 0.02 s")
    assert explained["difference"] < 1e-5
    assert "encoder.blocks.0.self" in says("measure", "--run", trained)


def test_its_mistakes_are_shown(trained: Path, tmp_path: Path) -> None:
    """With the same answer to all: it is wrong for one of the two labels."""
    page = tmp_path / "wrong.html"
    with patch("vectors.VectorTask.greedy_answers", lambda task, model, examples, **_: ["fall"] * len(examples)):
        said = json.loads(says("wrong", "--run", trained, "--out", page, "--json"))
    assert 0 < said["wrong"] < said["examples"] == 20
    assert said["worst"][0]["source"] in page.read_text()
    assert "moments" in page.read_text()


def test_it_is_checked(trained: Path) -> None:
    checked = json.loads(says("check", "--run", trained, "--json"))
    assert checked["holds"]
    assert {"batch = single", "padded = unpadded", "fused = explicit"} <= {each["name"] for each in checked["checks"]}


def test_it_is_planned_from_its_own_data(data: Path) -> None:
    about = json.loads(says("plan", "vectors", "--data", data, *SMALL, "--json"))
    assert about["parts"]["embeddings"] == 3 * 16
    assert about["assumed"] == []
    assert about["fits"]
    code, _, said = regard_says("plan", "vectors")
    assert (code, said) == (2, "regard: vectors: no data comes with this task; give yours with --data PATH\n")


@pytest.mark.parametrize("step", [3, 25])
def test_after_a_kill_it_ends_as_if_it_had_not_been(trained: Path, data: Path, tmp_path: Path, step: int) -> None:
    with killed_at(step):
        regard_says("train", "vectors", "--data", data, *SMALL, "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "scores.json").exists()
    code, _, said = train(data, tmp_path / "run")
    assert code == 0, said
    assert ("resuming from step 20" in said) == (step == 25)
    for name in ("model.safetensors", "scores.json"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes(), name


def test_another_run_starts_from_its_model(trained: Path, data: Path, tmp_path: Path) -> None:
    code, _, said = regard_says("train", "vectors", "--data", data, "--from", trained, "--set", "train.steps=1",
                                "--out", tmp_path / "run")
    assert code == 0, said
    assert "new: head.output (34)" in said


def test_a_process_finds_it_where_its_package_is_installed(trained: Path, installed: list[Path]) -> None:
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [source, *installed]))}
    command = [sys.executable, "-m", "regard", "predict", "--run", str(trained), RISING]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "rise\n"), found.stderr
