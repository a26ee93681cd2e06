"""The summary of a run directory, read without torch; damaged files do not stop it."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regard import manifest
from regard.runs.lock import is_held
from regard.settings.errors import UserError
from regard.settings.files import parsed
from regard.settings.load import load
from regard.settings.opening import to_read
from regard.settings.schema import Run

__all__ = ["Curves", "Score", "Summary", "read_scores", "summaries", "summary"]

LARGEST_STEP = 2**53  # floats are exact up to here, and so are plots


@dataclass(frozen=True)
class Curves:
    """Losses by step, in the order of the steps."""

    training: Mapping[int, float] = field(default_factory=dict)
    validation: Mapping[int, float] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The last step so far."""
        return max([0, *self.training, *self.validation])

    @property
    def best(self) -> float | None:
        """The lowest validation loss."""
        return min((loss for loss in self.validation.values() if math.isfinite(loss)), default=None)


@dataclass(frozen=True)
class Score:
    """The score of the model: the first metric of the first test split, or of the first split if there is no test."""

    split: str
    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The readable information about a run."""

    folder: Path
    state: Literal["finished", "converted", "running", "stopped", "unreadable", "no run"]
    size: int  # bytes
    touched: float  # seconds since 1970
    problem: str | None = None  # the reason why it is unreadable, or not a run
    run: Run | None = None  # absent while a run prepares its data
    curves: Curves = field(default_factory=Curves)
    score: Score | None = None

    @property
    def name(self) -> str:
        return self.folder.name or self.folder.resolve().name  # resolve: for `.`


def summaries(folder: Path) -> list[Summary]:
    """The runs in a folder, the newest first; then other folders."""
    found = [summary(place) for place in folder.iterdir() if place.is_dir() and not place.name.startswith(".")]
    last = {"unreadable": 1, "no run": 2}
    return sorted(found, key=lambda run: (last.get(run.state, 0), -run.touched, run.folder.name))


def summary(folder: Path) -> Summary:
    size, touched = _extent(folder)
    try:
        if missing := _what_is_missing(folder):
            return Summary(folder=folder, state="no run", size=size, touched=touched, problem=missing)
        return _read(folder, size, touched)
    except UserError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    problem = problem.replace(f"{folder}{os.sep}", "")  # the listing already names the folder
    return Summary(folder=folder, state="unreadable", size=size, touched=touched, problem=problem)


def _what_is_missing(folder: Path) -> str | None:
    """The reason why a folder is not a run. A running one may not have its run.json yet."""
    names = os.listdir(folder)
    if "run.json" in names or is_held(folder):
        return None
    return "it has no run.json" if names else "an empty folder"


def _read(folder: Path, size: int, touched: float) -> Summary:
    is_running, names = is_held(folder), os.listdir(folder)
    # Only small files: reading the model would take too long. A running process may just be writing them.
    if not is_running and (wrong := manifest.damage(folder, *manifest.SETTINGS, *manifest.SCORES)):
        raise UserError(wrong)
    run = load(folder / "run.json") if "run.json" in names else None
    is_finished = {"scores.json", "model.safetensors"} <= set(names)
    state: Literal["finished", "converted", "running", "stopped"]
    match is_running, is_finished, "model.safetensors" in names and "metrics.jsonl" not in names:
        case True, _, _:
            state = "running"
        case _, True, _:
            state = "finished"
        case _, _, True:
            state = "converted"  # it was trained elsewhere
        case _:
            state = "stopped"
    return Summary(
        folder=folder, state=state,
        size=size, touched=touched, run=run,
        curves=_curves(folder / "metrics.jsonl") if "metrics.jsonl" in names else Curves(),
        score=_score(folder / "scores.json") if is_finished else None)


def _extent(folder: Path) -> tuple[int, float]:
    """Bytes of all its files, and the time of the newest one."""
    size, touched = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                about = os.lstat(os.path.join(place, name))
            except OSError:  # a running process deletes its old checkpoints
                continue
            size, touched = size + about.st_size, max(touched, about.st_mtime)
    return size, touched or folder.stat().st_mtime


def _curves(file: Path) -> Curves:
    """The curves of a log. A killed run repeats the steps since its last checkpoint: the last line of a step counts."""
    training: dict[int, float] = {}
    validation: dict[int, float] = {}
    for kind, step, loss in _losses(file):
        own = training if kind == "step" else validation
        own.pop(step, None)
        for curve in (training, validation):
            while curve and next(reversed(curve)) > step:
                curve.popitem()
        own[step] = loss
    return Curves(training, validation)


def _losses(file: Path) -> Iterator[tuple[str, int, float]]:
    """Kind, step and loss of each line that has them. Skips a line that a kill has cut."""
    with open(file, "rb", opener=to_read) as lines:
        for line in lines:
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                continue
            match content:
                case {"kind": "step" | "evaluation" as kind, "step": int(step), "loss": float(loss)}:
                    if 0 < step < LARGEST_STEP:
                        yield kind, step, loss


def read_scores(file: Path) -> dict[str, dict[str, float | str | dict[str, float]]]:
    """The metrics of each split by name, tables of metrics, and the signatures of their computation."""
    scores = parsed(file)
    if not isinstance(scores, dict) or not scores:
        raise UserError(f"{file}: is not a JSON object")
    for split, figures in scores.items():
        if not isinstance(figures, dict) or not all(_is_figure(name, value) for name, value in figures.items()):
            raise UserError(f"{file}: {split}: must be metrics with their names")
    if len({frozenset(name for name in each if isinstance(each[name], dict)) for each in scores.values()}) > 1:
        raise UserError(f"{file}: its splits do not have the same tables")
    return scores


def _is_figure(name: str, value: object) -> bool:
    """Whether a value is a number, a table of numbers, or a signature."""
    if isinstance(value, dict):
        return all(_is_figure(row, each) for row, each in value.items())
    if name.endswith("signature"):
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _score(file: Path) -> Score | None:
    scores = parsed(file)
    if not isinstance(scores, dict):
        raise UserError(f"{file}: is not a JSON object")
    for split in sorted(scores, key=lambda split: not split.startswith("test")):  # sorted keeps the order of equals
        if isinstance(scores[split], dict):
            for name, value in scores[split].items():
                if isinstance(value, int | float) and math.isfinite(value):
                    return Score(split, name, float(value))
    return None
