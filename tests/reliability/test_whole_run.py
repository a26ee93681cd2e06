"""What becomes of a run directory any of whose files is harmed: nothing else is ever said than what the whole one says.

Each harm is followed by what a user would do. Every command ends with the answers of the unharmed run, perhaps with a
note about what was repaired, or is refused with a sentence that names a file. None ends in a traceback or hangs.
"""

import io
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jaxtyping
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from killing import killed_at
from regard import manifest
from regard.checkpoint import checkpoint as checkpoints
from regard.cli import main
from regard.training.loop import train

from .jobs import Job

SECONDS = 5  # of work: a command that takes longer hangs
STEPS = 8
SMALL = (f"train.steps={STEPS}", "train.save_every=2", "train.evaluate_every=4", "data.built_in_size=20",
         "model.width=16", "train.keep_checkpoints=3")
TASKS = ("translate", "classify", "language", "tag", "mask")


@pytest.fixture(scope="module", autouse=True)
def types_are_not_checked() -> Iterator[None]:
    """Checking types in so many calls would take longer than the calls."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# What a user does.


class Hang(BaseException):
    """No code of ours expects it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Of the processor's time: other processes may keep this one waiting."""
    def ended(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def regard(*words: object) -> Outcome:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", ["regard", *map(str, words)]), redirect_stdout(out), redirect_stderr(err),
          pytest.raises(SystemExit) as ended, at_most(SECONDS)):
        main()
    for stream in (out, err):
        stream.seek(0)
    return Outcome(int(ended.value.code or 0), out.read(), err.read())


@dataclass(frozen=True)
class Runs:
    """A run that has ended and one that was interrupted, of one task, and what the ended one says."""

    job: Job
    root: Path
    ended: Path
    begun: Path
    says: dict[str, str]

    @property
    def mine(self) -> Path:
        return self.root / "runs" / "mine"

    def commands(self, *, is_ended: bool) -> dict[str, tuple[object, ...]]:
        text = "I see the dog ." if self.job.task != "mask" else "I see the <mask> ."
        asking = {"predict": ("predict", "--run", self.mine, text),
                  "runs": ("runs", self.mine.parent)}
        evaluating = {"eval": ("eval", "--run", self.mine, "--split", "val", "--limit", 2),
                      "look": ("look", text, "--run", self.mine, "--no-open", "--out", self.root / "look.html")}
        train = {"train": self.job.words(self.mine)}
        return asking | (evaluating if is_ended else {}) | train | {"predict again": asking["predict"]}

    def model(self) -> str:
        """The model that a run has made, and its scores."""
        return "".join(manifest.digest(self.mine / name) for name in ("model.safetensors", "scores.json"))


@pytest.fixture(scope="module")
def make_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runs]:
    made: dict[str, Runs] = {}

    def make(task: str) -> Runs:
        if task not in made:
            root, job = tmp_path_factory.mktemp(task), Job(task, SMALL)
            ended, begun, good = root / "ended", root / "begun", root / "runs" / "good"
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                train(job.run, ended, quiet=True)
                with killed_at(5):
                    train(job.run, begun, quiet=True)
                shutil.copytree(ended, good)
                shutil.copytree(ended, root / "runs" / "mine")
                runs = Runs(job, root, ended, begun, {})
                for name, words in runs.commands(is_ended=True).items():
                    outcome = regard(*words)
                    assert outcome.code == 0, (name, outcome)
                    runs.says[name] = outcome.out
                runs.says["model"] = runs.model()
            finally:
                torch.set_num_threads(threads)
            made[task] = runs
        return made[task]

    return make


# Harm.


def harm(folder: Path, dice: random.Random) -> str:
    """Do something to a file of a run; what."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    kind = dice.choice(["truncate", "flip", "swap", "delete", "empty", "replace", "type", "type", "tensor", "tensor"])
    if kind == "type":
        return swap_type(dice.choice([path for path in files if path.suffix in (".json", ".jsonl")]), folder, dice)
    if kind == "tensor":
        arrays = [path for path in files if path.suffix in (".npy", ".safetensors")]
        return change_tensor(dice.choice(arrays), folder, dice)
    path, other = dice.sample(files, 2)
    name, content = path.relative_to(folder), path.read_bytes()
    place = dice.randrange(max(1, len(content)))
    match kind:
        case "truncate":
            path.write_bytes(content[:place])
            return f"{name} cut to {place} bytes"
        case "flip" if content:
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :])
            return f"a bit of byte {place} of {name} flipped"
        case "swap":
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)
            return f"{name} and {other.relative_to(folder)} exchanged"
        case "delete":
            path.unlink()
            return f"{name} deleted"
        case "empty":
            path.write_bytes(b"")
            return f"{name} emptied"
        case _:
            path.write_bytes(dice.randbytes(max(1, len(content))))
            return f"{name} replaced by noise"


def swap_type(path: Path, folder: Path, dice: random.Random) -> str:
    """A number becomes a text, a text a number, a list an object, an object a list."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text("utf-8")]
    number = dice.randrange(max(1, len(lines)))
    if not lines:
        return f"{path.name} is empty"
    content = json.loads(lines[number])
    places = list(values(content))
    where, key = dice.choice([*places, (None, None)])
    old = content if where is None else where[key]
    match old:
        case str():
            new: Any = 7
        case bool() | None:
            new = "perhaps"
        case int() | float():
            new = f"{old} or so"
        case dict():
            new = [1, 2]
        case _:
            new = {"0": 1}
    if where is None:
        content = new
    else:
        where[key] = new
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    agree(path, folder)
    return f"{path.relative_to(folder)}: {key}={str(old)[:40]!r} became {new!r}, the manifest agrees"


def values(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(items):
        yield content, key
        yield from values(value)


def change_tensor(path: Path, folder: Path, dice: random.Random) -> str:
    kind = dice.choice(["nan", "longer", "reshaped", "another type", "gone", "added"])
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        match kind:
            case "nan":
                array = array.astype(np.float32)
                array[:1] = np.nan
            case "longer":
                array = np.concatenate([array, array[-1:]])
            case "reshaped":
                array = array[:, None]
            case "another type":
                array = array.astype(np.int8)
            case "gone":
                array = array[:0]
            case _:
                array = np.full_like(array, np.iinfo(array.dtype).max)
        np.save(path, array, allow_pickle=False)
    else:
        tensors = load_file(path)
        name = dice.choice(sorted(tensors))
        tensor = tensors[name]
        match kind:
            case "nan":
                tensors[name] = torch.full_like(tensor, float("nan"))
            case "longer":
                tensors[name] = torch.cat([tensor.flatten(), torch.ones(1)])
            case "reshaped":
                tensors[name] = tensor.flatten()[:, None]
            case "another type":
                tensors[name] = tensor.to(torch.int64)
            case "gone":
                del tensors[name]
            case _:
                tensors["more"] = torch.ones(3)
        save_file(tensors, path, metadata={"format": "pt"})
    agree(path, folder)
    return f"{path.relative_to(folder)}: {kind}, the manifest agrees"


def agree(path: Path, folder: Path) -> None:
    """The manifest is made to say what the file is now."""
    if path.name == manifest.NAME:
        return
    if "checkpoints" in path.parts:
        own = path.parent / checkpoints.MANIFEST
        entries = json.loads(own.read_text())
        entries[path.name] = manifest.settled(path)
        own.write_bytes(checkpoints._text(entries))
    else:
        manifest.seal(folder, path.relative_to(folder).as_posix())


# And what is said then.


def follow(runs: Runs, seed: int, slowest: dict[str, float]) -> str:
    """Harm a copy of a run, and do what a user would do. How it ended."""
    dice = random.Random(seed)
    is_ended = dice.random() < 0.6
    shutil.rmtree(runs.mine, ignore_errors=True)
    shutil.copytree(runs.ended if is_ended else runs.begun, runs.mine)
    what = f"{seed} {runs.job.task} {'ended' if is_ended else 'begun'}: {harm(runs.mine, dice)}"
    has_refused = has_noted = False
    for name, words in runs.commands(is_ended=is_ended).items():
        began = time.process_time()
        try:
            outcome = regard(*words)
        except Hang:
            pytest.fail(f"{what}: {name} hangs")
        except Exception as error:
            raise AssertionError(f"{what}: {name} ends in a traceback") from error
        slowest[name] = max(slowest.get(name, 0), time.process_time() - began)
        case = what, name, outcome
        assert "Traceback" not in outcome.err, case
        if outcome.code == 0:
            if name == "runs":
                assert any(line.startswith("good  finished") for line in outcome.out.splitlines()), case
                has_noted |= "unreadable" in outcome.out or "no run" in outcome.out
            else:
                assert outcome.out == runs.says[name], case
            if name == "train" and " model.safetensors: " not in what:
                assert runs.model() == runs.says["model"], case  # else the manifest agrees with a model that is refused
            has_noted |= str(runs.mine) in outcome.err.replace(f"the run is in {runs.mine}", "")
        else:
            assert name != "runs", case
            assert outcome.code in (1, 2), case
            last = [line for line in outcome.err.splitlines() if line.startswith("regard: ")]
            assert len(last) == 1, case
            assert str(runs.mine) in outcome.err, case
            has_refused |= is_ended or name == "train"
    return "refused" if has_refused else "repaired or noted" if has_noted else "of no consequence"


@pytest.mark.parametrize(("tasks", "seeds"), [
    (("classify", "language"), range(16)),
    *(pytest.param(TASKS, range(first, first + 50), marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
      for first in range(0, 500, 50)),
])
def test_a_harmed_run_says_what_the_whole_one_says_or_names_what_is_wrong(
    make_runs: Callable[[str], Runs], tasks: tuple[str, ...], seeds: range
) -> None:
    ends, slowest, wrong = Counter[str](), dict[str, float](), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums on a CPU depend on their number
    try:
        for seed in seeds:
            try:
                ends[follow(make_runs(tasks[seed % len(tasks)]), seed, slowest)] += 1
            except AssertionError as error:
                wrong.append(f"{error}{f' ({error.__cause__!r})' if error.__cause__ else ''}")
    finally:
        torch.set_num_threads(threads)
    print(dict(ends), {name: round(seconds, 2) for name, seconds in slowest.items()}, file=sys.stderr)
    assert not wrong, f"{len(wrong)} of {len(seeds)}:\n" + "\n".join(wrong)
    assert ends["refused"] + ends["repaired or noted"] > len(seeds) // 2, ends
