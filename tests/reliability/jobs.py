"""Small runs of every task, in processes of their own that can be stopped, killed and started again.

A task joins the tests of this folder by its line in `JOBS`.
"""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from heeding import signals_heeded
from regard import manifest
from regard.checkpoint import Checkpoint
from regard.cli import main
from regard.settings.schema import Run
from regard.verbs.train import settled

__all__ = ["FEW", "JOBS", "NAMES", "SOURCE", "WRITTEN", "Job", "Outcome", "Process", "assert_same", "contents",
           "copy_data", "digest", "lines", "losses"]

SOURCE = Path(__file__).parents[2] / "src"

JOBS = {
    "translate": ("data.built_in_size=40", "tokens.vocabulary=300", "search.beam=1", "search.max_tokens=8"),
    "language": ("data.built_in_size=20", "data.max_tokens=32", "tokens.vocabulary=300", "search.max_tokens=8",
                 "train.optimizer=muon"),
    "classify": ("data.built_in_size=40", "tokens.vocabulary=300", "train.learning_rate=0.001"),
    "tag": ("data.built_in_size=40", "tokens.vocabulary=300", "train.learning_rate=0.01"),
    "mask": ("data.built_in_size=40", "data.max_tokens=24", "tokens.vocabulary=300", "masking.next_sentence=true",
             "train.learning_rate=5e-4"),
    "classify images": ("model.image.size=16", "model.image.patch=4", "data.built_in_size=40",
                        "train.augment.mixup=0.5", "train.augment.cutmix=1.0", "train.learning_rate=0.001"),
    "detect": ("data.built_in_size=40", "data.max_tokens=24", "tokens.vocabulary=300", "train.learning_rate=5e-4"),
    "caption": ("data.built_in_size=40", "model.image.size=16", "model.image.stem=patches", "model.image.patch=8",
                "train.augment.crop=1", "search.beam=1", "search.max_tokens=8", "train.learning_rate=0.001"),
    "ask": ("data.built_in_size=40", "model.image.size=16", "model.image.stages=1", "train.augment.crop=1",
            "search.beam=1", "search.max_tokens=8", "train.learning_rate=0.001"),
}

# With the models that came before the transformer, as a task and a preset.
JOBS |= {f"{task} {preset}": (f"model.preset={preset}", "model.heads=1", *JOBS[task], "train.learning_rate=5e-4")
         for task, preset in (("tag", "elman"), ("tag", "bilstm"), ("translate", "sutskever"),
                              ("translate", "bahdanau"), ("translate", "luong"))}
# Places are drawn in every step, and their baseline is carried on.
JOBS["caption hard"] = (*JOBS["caption"], "model.recurrent.cell=lstm", "model.recurrent.attention=hard")
# Muon has no matrix there.
JOBS["language lstm"] = ("model.preset=lstm", "model.recurrent.bptt=8", *JOBS["language"][:-1])

# A few stand for the others, which learn by the same loop and take minutes more.
FAST = ("translate", "language", "classify", "classify images", "mask", "language lstm")
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in JOBS]

# What the task hardly matters for: with Muon and with AdamW, in batches of pairs and in rows that carry a state.
DIFFERENT = ("translate", "language", "language lstm")
FEW = [name if name in DIFFERENT else pytest.param(name, marks=pytest.mark.slow) for name in JOBS]

# Some 10 ms a step. Checkpoints and evaluations fall on different steps, and at times on the same.
SMALL = ("device=cpu", "model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.2",
         "train.precision=float32", "train.batch_tokens=256", "train.accumulate=2", "train.warmup=20",
         "train.schedule=inverse-sqrt", "train.log_every=1", "train.save_every=4", "train.evaluate_every=7")

# What a run writes after its data is prepared, in this order.
WRITTEN = ("run.json", "metrics.jsonl", "checkpoints", "model.safetensors", "config.json",
           "generation_config.json", "scores.json")


@dataclass(frozen=True)
class Job:
    """A small run of a task."""

    name: str
    settings: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return self.name.split()[0]

    def but(self, *settings: str) -> "Job":
        """The same with other settings."""
        return replace(self, settings=(*self.settings, *settings))

    @property
    def run(self) -> Run:
        """What `regard train` makes of the settings."""
        return settled(self.task, [], None, None, None, (*SMALL, *JOBS[self.name], *self.settings))

    def words(self, folder: Path, *options: str) -> list[str]:
        """Of the command line, after `regard`."""
        settings = [word for setting in (*SMALL, *JOBS[self.name], *self.settings) for word in ("--set", setting)]
        return ["train", self.task, "--out", str(folder), *settings, *options]

    def start(self, folder: Path, *options: str, threads: int = 1) -> "Process":
        return Process(self.words(folder, *options), folder, threads=threads)

    def finish(self, folder: Path, *options: str, threads: int = 1) -> str:
        """Run to the end; what was said."""
        process = self.start(folder, *options, threads=threads)
        assert process.wait() == 0, process.said
        return process.said

    def here(self, folder: Path, *options: str, threads: int = 1) -> "Outcome":
        """In this process, where a test can reach into it."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before = torch.get_num_threads()
        torch.set_num_threads(threads)  # sums on a CPU depend on their number
        try:
            with (patch.object(sys, "argv", ["regard", *self.words(folder, *options)]), redirect_stdout(out),
                  redirect_stderr(err), pytest.raises(SystemExit) as ended):
                main()
        finally:
            torch.set_num_threads(before)
        err.seek(0)
        return Outcome(int(ended.value.code or 0), err.read())


@dataclass(frozen=True)
class Outcome:
    code: int
    said: str


class Process:
    """`regard …` in a process of its own, and what can be seen of it from outside."""

    def __init__(self, words: list[str], folder: Path, *, threads: int = 1) -> None:
        self.folder, self.errors = folder, folder.with_name(f"{folder.name}.err")
        self.before = len(self.written)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": str(threads), "NO_COLOR": "1"}
        with open(self.errors, "wb") as errors, signals_heeded():
            self.child = subprocess.Popen([sys.executable, "-m", "regard", *words], env=environment,
                                          stdout=subprocess.DEVNULL, stderr=errors)

    @property
    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    @property
    def written(self) -> bytes:
        file = self.folder / "metrics.jsonl"
        return file.read_bytes() if file.exists() else b""

    def count(self, kind: str) -> int:
        """Lines of this kind that it has written itself."""
        return self.written.count(f'{{"kind": "{kind}"'.encode(), self.before)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to be so; the process must not end before."""
        while not condition():
            if self.child.poll() is not None:
                pytest.fail(f"ended too early, with code {self.child.returncode}: {self.said}")
            time.sleep(0.001)

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        """Its exit code."""
        return self.child.wait()


# What a run leaves.


def lines(folder: Path) -> list[dict[str, Any]]:
    """Of its metrics; those that a kill has cut are none."""
    try:
        content = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    found = []
    for line in content.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def losses(folder: Path) -> dict[tuple[str, int], str]:
    """Every loss to its last bit. What is said again of a step replaces what was said before."""
    return {(line["kind"], line["step"]): "none" if line["loss"] is None else float.hex(line["loss"])
            for line in lines(folder) if line["kind"] in ("step", "evaluation")}


def assert_same(folder: Path, whole: Path) -> None:
    """The run ended as the other one did, bit for bit."""
    expected, found = losses(whole), losses(folder)
    assert found.keys() == expected.keys()
    assert {place: loss for place, loss in found.items() if loss != expected[place]} == {}
    last = Checkpoint.all(whole)[0].folder.relative_to(whole)
    assert Checkpoint.all(folder)[0].folder == folder / last
    for name in ("model.safetensors", "config.json", "scores.json", last / "model.safetensors",
                 last / "optimizer.safetensors"):
        assert digest(folder / name) == digest(whole / name), name


def copy_data(run: Path, folder: Path) -> Path:
    """A run that has prepared its data, as another has, and no more."""
    shutil.copytree(run, folder, ignore=lambda place, _: WRITTEN if place == str(run) else ())
    manifest.forget(folder, *manifest.SETTINGS, *manifest.MODEL, *manifest.SCORES)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Every file of a run with its digest. Who held the lock last is no part of it."""
    return {str(path.relative_to(folder)): digest(path) for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock"}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
