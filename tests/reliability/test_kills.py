"""A run may be killed or stopped at any moment, any number of times: it ends as if it had not been."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from heeding import signals_heeded
from regard import checkpoint
from regard.checkpoint import Checkpoint, read_json
from regard.runs.lock import hold
from regard.tasks import make
from regard.training import loop
from regard.training.update import Update

from .jobs import FEW, NAMES, SOURCE, WRITTEN, Job, Process, assert_same, contents, copy_data, digest, lines, losses

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")

BY_FEW = pytest.mark.parametrize("job", FEW, indirect=True, scope="module")
CODES = {signal.SIGTERM: 75, signal.SIGUSR1: 75, signal.SIGINT: 130}
PATIENCE = 5.0  # seconds from the end of a step to the end of a process that was asked to stop


@pytest.fixture(scope="module", params=NAMES)
def job(request: pytest.FixtureRequest) -> Job:
    return Job(request.param, ("train.steps=16", "train.average_checkpoints=2"))


@pytest.fixture(scope="module")
def whole(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert job.here(folder).code == 0
    return folder


@pytest.fixture(scope="module")
def longer(job: Job, whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps more, that nothing happened to either."""
    folder = copy_data(whole, tmp_path_factory.mktemp("longer") / "run")
    assert job.but("train.steps=24").here(folder).code == 0
    return folder


@pytest.fixture
def fresh(whole: Path, tmp_path: Path) -> Path:
    """Before its first step; to make the data anew for every test would take long."""
    return copy_data(whole, tmp_path / "run")


@pytest.fixture
def ended(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def dice() -> random.Random:
    """Another seed each time; of a test that has failed, pytest shows what it has printed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


# What can happen to a process.


def is_saving(folder: Path) -> bool:
    checkpoints = folder / "checkpoints"
    return checkpoints.exists() and any(name.endswith(".new") for name in os.listdir(checkpoints))


Event = Callable[[Process, random.Random], None]


def kill_inside_a_save(*, within: int = 2) -> Event:
    """Of one of the first checkpoints it writes; if that was quicker than the kill, it fell beside it."""

    def event(process: Process, dice: random.Random) -> None:
        saves = dice.randint(1, within)
        process.until(lambda: process.count("saved") >= saves)
        process.until(lambda: is_saving(process.folder))
        time.sleep(dice.uniform(0, 0.01))
        process.kill()

    return event


def kill_anywhere(*, within: int = 8) -> Event:
    """While it starts, or some steps later."""

    def event(process: Process, dice: random.Random) -> None:
        steps = dice.randint(-2, within)
        process.until(lambda: process.count("step") >= steps)
        time.sleep(dice.uniform(0, 0.02 if steps > 0 else 2.0))
        process.kill()

    return event


def stop(number: signal.Signals, *, within: int = 8) -> Event:
    """Ask it to stop, some steps after its start."""

    def event(process: Process, dice: random.Random) -> None:
        steps = dice.randint(1, within)
        process.until(lambda: process.count("step") >= steps)
        time.sleep(dice.uniform(0, 0.02))
        process.signal(number)
        asked = time.monotonic()
        assert process.wait() == CODES[number], process.said
        assert time.monotonic() - asked < PATIENCE
        assert_stopped(process.said, process.folder)

    return event


def assert_stopped(said: str, folder: Path) -> None:
    """The last line names the step of the newest checkpoint."""
    assert "Traceback" not in said
    (step,) = re.findall(r"^regard: stopped after step ([\d,]+) of", said, re.MULTILINE)
    newest = Checkpoint.all(folder)[0]
    assert newest.step == int(step.replace(",", ""))
    assert newest.verify() is None


def suffer(job: Job, folder: Path, events: Sequence[Event], dice: random.Random) -> int:
    """A start for each event. How many of the kills fell into a save."""
    inside = 0
    for event in events:
        expected = next((c.step for c in Checkpoint.all(folder) if c.verify() is None), 0)
        process = job.start(folder)
        event(process, dice)
        inside += is_saving(folder)
        if process.count("step"):
            assert (f"resuming from step {expected:,} of" in process.said) == (expected > 0)
    return inside


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_with_25_kills_ends_as_if_there_had_been_none(job: Job, tmp_path: Path, dice: random.Random) -> None:
    job = job.but("train.steps=200")
    job.finish(tmp_path / "whole")
    events = [kill_inside_a_save()] * 14 + [kill_anywhere()] * 11
    dice.shuffle(events)
    inside = suffer(job, tmp_path / "run", events, dice)
    job.finish(tmp_path / "run")
    print(f"{inside} of {len(events)} kills inside a save")
    assert inside >= 10
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_with_16_stops_ends_as_if_there_had_been_none(job: Job, tmp_path: Path, dice: random.Random) -> None:
    # The best checkpoint is the model, and must outlive all stops.
    job = job.but("train.steps=200", "train.average_checkpoints=1")
    job.finish(tmp_path / "whole")
    numbers = [signal.SIGTERM] * 10 + [signal.SIGUSR1] * 3 + [signal.SIGINT] * 3
    dice.shuffle(numbers)
    suffer(job, tmp_path / "run", [stop(number) for number in numbers], dice)
    job.finish(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_killed_and_stopped_ends_as_if_it_had_not_been(
    job: Job, longer: Path, tmp_path: Path, dice: random.Random
) -> None:
    events = [kill_inside_a_save(within=1), stop(signal.SIGTERM, within=2), kill_anywhere(within=2)]
    job = job.but("train.steps=24")
    suffer(job, tmp_path / "run", events, dice)
    assert job.here(tmp_path / "run").code == 0  # to start one more process takes longer than the steps that are left
    assert_same(tmp_path / "run", longer)


HELD = """
import time
from regard.training.signals import Stop
with Stop() as stop:
    print("ready", flush=True)
    while not stop.asked:
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(60)
"""


def holding(script: str, stderr: int | None = None) -> "subprocess.Popen[str]":
    with signals_heeded():
        return subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)},
                                text=True, stdout=subprocess.PIPE, stderr=stderr)


@pytest.mark.parametrize("number", CODES)
def test_a_second_signal_ends_a_process(number: signal.Signals) -> None:
    with holding(HELD) as child:
        assert child.stdout
        for said in ("ready\n", "asked\n"):
            assert child.stdout.readline() == said
            child.send_signal(number)
        assert child.wait() == -number


def test_a_process_goes_on_ignoring_the_signals_that_it_was_started_to_ignore() -> None:
    """As a shell's & does with Ctrl-C."""
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{HELD}"
    with holding(script) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "asked\n"
        with pytest.raises(subprocess.TimeoutExpired):  # if SIGINT had asked already, this was the second signal
            child.wait(0.2)
        child.kill()


def test_what_the_tests_start_heeds_ctrl_c_although_the_tests_do_not() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with holding("import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)") as child:
            assert child.communicate()[0] == "True\n"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_person_at_a_terminal_is_answered_at_once(is_terminal: bool) -> None:
    ours, theirs = pytest.importorskip("pty").openpty() if is_terminal else os.pipe()
    with holding(HELD.replace("Stop()", "Stop('wait')"), stderr=theirs) as child:
        assert child.stdout
        for said in ("ready\n", "asked\n"):
            assert child.stdout.readline() == said
            child.send_signal(signal.SIGINT)
    os.close(theirs)
    assert os.read(ours, 100) == (b"\r\nwait\r\n" if is_terminal else b"")
    os.close(ours)


@pytest.mark.slow
def test_a_second_signal_ends_a_run_inside_a_step(job: Job, tmp_path: Path) -> None:
    slow = job.but("model.width=768", "model.depth=2", "data.built_in_size=1000", "train.batch_tokens=8192",
                   "train.accumulate=64")  # a step takes some seconds, and none of its operations long
    process = slow.start(tmp_path / "run")
    process.until(lambda: "parameters" in process.said)
    asked = time.monotonic()
    while process.child.poll() is None:  # two signals that come during one operation count as one
        process.signal(signal.SIGTERM)
        time.sleep(0.2)
    assert process.wait() == -signal.SIGTERM, process.said
    assert time.monotonic() - asked < 2
    assert not (tmp_path / "run" / "checkpoints").exists()


# A signal where no step is under way.


@contextmanager
def signalled(owner: Any, name: str, number: signal.Signals = signal.SIGTERM, *, call: int = 0) -> Iterator[None]:
    """The signal arrives when this function is called for the first, second … time."""
    original, left = getattr(owner, name), iter(range(call, -1, -1))

    def called(*arguments: Any, **named: Any) -> Any:
        if next(left, None) == 0:
            os.kill(os.getpid(), number)
        return original(*arguments, **named)

    with signals_heeded(), patch.object(owner, name, called):
        yield


@BY_FEW
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_a_run_can_be_stopped_in_any_step(job: Job, whole: Path, fresh: Path, number: signal.Signals) -> None:
    with signalled(Update, "step", number, call=5):
        outcome = job.here(fresh)
    assert outcome.code == CODES[number]
    assert_stopped(outcome.said, fresh)
    assert "stopped after step 6 of 16" in outcome.said
    assert "resuming from step 6 of 16" in job.here(fresh).said
    assert_same(fresh, whole)


@BY_FEW
@pytest.mark.parametrize(("call", "step"), [(0, 7), (2, 16)])
def test_a_run_can_be_stopped_in_an_evaluation(job: Job, whole: Path, fresh: Path, call: int, step: int) -> None:
    """In the last one, too."""
    with signalled(loop, "validation_loss", call=call):
        outcome = job.here(fresh)
    assert outcome.code == 75, outcome.said
    assert_stopped(outcome.said, fresh)
    assert Checkpoint.all(fresh)[0].step == step
    job.here(fresh)
    assert_same(fresh, whole)


@BY_FEW
def test_a_run_whose_only_evaluation_is_cut_short_is_no_failure(job: Job, fresh: Path) -> None:
    job = job.but("train.steps=2")
    with signalled(loop, "validation_loss"):
        outcome = job.here(fresh)
    assert outcome.code == 75, outcome.said
    assert_stopped(outcome.said, fresh)
    assert job.here(fresh).code == 0


def test_a_run_can_be_stopped_while_it_is_scored(job: Job, whole: Path, ended: Path) -> None:
    (ended / "scores.json").unlink()
    with signalled(type(make(job.run)), "score"):
        outcome = job.here(ended)
    assert outcome.code == 75
    assert outcome.said.endswith("regard: stopped before the scores were known; the same command resumes from there\n")
    assert [line["split"] for line in lines(ended) if line["kind"] == "score"] == list(read_json(whole / "scores.json"))
    assert job.here(ended).code == 0
    assert_same(ended, whole)


def test_a_run_can_be_stopped_before_its_first_step(job: Job, tmp_path: Path) -> None:
    with signalled(type(make(job.run).data), "prepare"):
        outcome = job.here(tmp_path / "run")
    assert outcome.code == 75
    assert outcome.said == "regard: stopped before the first step; the same command starts again\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_long_evaluation_or_scoring_is_not_waited_for(job: Job, tmp_path: Path, dice: random.Random) -> None:
    width = 256 if job.task in ("tag", "classify") else 32  # those of 32 have scored before they are asked
    job = job.but("train.steps=14", "data.built_in_size=1000", "search.max_tokens=200", "search.beam=5",
                  f"model.width={width}")
    job.finish(tmp_path / "whole")
    for kind, count in (("step", 7), ("step", 14 - 7), ("trained", 1), ("trained", 1), ("score", 1)):
        process = job.start(tmp_path / "run")
        process.until(lambda: process.count(kind) == count)  # noqa: B023 (it is waited for here)
        time.sleep(dice.uniform(0.02, 0.2))
        process.signal(signal.SIGTERM)
        asked = time.monotonic()
        assert process.wait() == 75, process.said
        assert time.monotonic() - asked < PATIENCE
        assert "Traceback" not in process.said
        assert "stopped after" in process.said or "before the scores" in process.said
    job.finish(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_signal_before_the_first_step_leaves_nothing_in_the_way(
    job: Job, tmp_path: Path, dice: random.Random
) -> None:
    """From the first instant on, while torch is imported and the data, of which there is more, is prepared."""
    job = job.but("data.built_in_size=2000")
    job.finish(tmp_path / "whole")
    early = 0
    while early < 20:
        number = dice.choice([*CODES, signal.SIGKILL])
        process = job.start(tmp_path / "run")
        time.sleep(dice.uniform(0.3, 4))
        process.signal(number)
        code = process.wait()
        assert "Traceback" not in process.said
        if process.count("step"):
            shutil.rmtree(tmp_path / "run")
        else:
            early += 1
            assert code in (CODES.get(number), -number), process.said
    job.finish(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


# Kills where the run is nearly, or newly, there.


class Killed(BaseException):
    """As abrupt as a signal: no code of ours expects it."""


@contextmanager
def killed(owner: Any, name: str, *, call: int = 0) -> Iterator[None]:
    """The process ends where this function is called for the first, second … time."""
    original, left = getattr(owner, name), iter(range(call, -1, -1))

    def called(*arguments: Any, **named: Any) -> Any:
        if next(left, None) == 0:
            raise Killed
        return original(*arguments, **named)

    with patch.object(owner, name, called), pytest.raises(Killed):
        yield


@BY_FEW
@pytest.mark.parametrize("name", ["run.json", "model.safetensors", "scores.json"])
def test_what_a_kill_has_left_of_a_file_is_in_nobodys_way(job: Job, whole: Path, ended: Path, name: str) -> None:
    for later in WRITTEN[WRITTEN.index(name) :]:
        if (ended / later).is_dir():
            shutil.rmtree(ended / later)
        else:
            (ended / later).unlink(missing_ok=True)  # a translator has no generation_config.json
    (ended / f".{name}.tmp").write_bytes(b"{")
    outcome = job.here(ended)
    assert outcome.code == 0, outcome.said
    assert not list(ended.glob(".*"))
    assert_same(ended, whole)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_while_it_is_finished_and_scored_is_finished_by_the_same_command(
    job: Job, whole: Path, ended: Path, dice: random.Random
) -> None:
    for _ in range(8):
        for name in ("scores.json", "model.safetensors", "config.json"):
            (ended / name).unlink(missing_ok=True)
        process = job.start(ended)
        process.until(lambda: process.count("resumed") > 0)  # noqa: B023 (it is waited for here)
        time.sleep(dice.uniform(0, 0.3))
        process.signal(signal.SIGKILL)
        process.wait()
    job.finish(ended)
    assert_same(ended, whole)


# Longer runs, and others.


def assert_lengthened(folder: Path, whole: Path, longer: Path) -> None:
    """What was is as it was, and the end is that of a run that was as long from the start."""
    was, found = losses(whole), losses(folder)
    assert {place: found[place] for place in was} == was
    assert {**losses(longer), ("evaluation", 16): was["evaluation", 16]} == found
    for name in ("model.safetensors", "scores.json", "checkpoints/step-00000024/optimizer.safetensors"):
        assert digest(folder / name) == digest(longer / name)


def test_a_lengthened_run_ends_as_one_that_was_as_long_from_the_start(
    job: Job, whole: Path, longer: Path, ended: Path
) -> None:
    assert "resuming from step 16 of 24" in job.here(ended, "--extend", "8").said
    assert_lengthened(ended, whole, longer)
    before = contents(ended)
    again = job.here(ended, "--extend", "8")
    assert again.code == 0
    assert "has ended" in again.said
    assert contents(ended) == before


@BY_FEW
@pytest.mark.parametrize(("owner", "name", "call"), [
    (Path, "unlink", 0), (checkpoint, "write_json", 0), (Update, "step", 6)],
    ids=["before the old scores go", "before the settings change", "in its seventh step"])
def test_lengthening_a_run_may_be_killed_anywhere(
    job: Job, whole: Path, longer: Path, ended: Path, owner: Any, name: str, call: int
) -> None:
    with killed(owner, name, call=call):
        job.here(ended, "--extend", "8")
    assert job.here(ended, "--extend", "8").code == 0
    assert_lengthened(ended, whole, longer)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_lengthened_run_may_be_killed(
    job: Job, whole: Path, longer: Path, ended: Path, dice: random.Random
) -> None:
    for _ in range(6):
        process = job.start(ended, "--extend", "8")
        time.sleep(dice.uniform(0.5, 5))
        process.signal(signal.SIGKILL)
        process.wait()
    job.finish(ended, "--extend", "8")
    assert_lengthened(ended, whole, longer)


def test_a_run_that_is_being_trained_is_not_lengthened(job: Job, ended: Path) -> None:
    before = contents(ended)
    with hold(ended):
        outcome = job.here(ended, "--extend", "8")
    assert outcome.code == 2
    assert "is being trained by process" in outcome.said
    assert contents(ended) == before


def test_other_settings_are_refused_with_the_difference(job: Job, ended: Path) -> None:
    before = contents(ended)
    outcome = job.but("train.learning_rate=0.5", "seed=3").here(ended)
    assert outcome.code == 2
    assert "holds a run with other settings:\n  seed: 0 → 3\n  train.learning_rate: " in outcome.said
    assert contents(ended) == before


# What is said when a run goes on.


@pytest.fixture
def stopped(job: Job, fresh: Path) -> Path:
    """A run that was stopped after step 10, with another checkpoint of step 8."""
    with signalled(Update, "step", call=9):
        job.here(fresh)
    assert [saved.step for saved in Checkpoint.all(fresh)][:2] == [10, 8]
    return fresh


@BY_FEW
def test_another_number_of_threads_is_said(job: Job, stopped: Path) -> None:
    with signalled(Update, "step"):  # one step says enough
        said = job.here(stopped, threads=2).said
    assert "note: the number of threads was 1 and is now 2: sums on a CPU differ in their last bits" in said


def test_a_run_goes_on_with_as_many_threads_as_it_had(
    job: Job, whole: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user says otherwise, as the environment of the other tests does."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    said = job.here(stopped, threads=2).said
    assert "; cpu (1 thread), float32" in said
    assert "the number of threads was" not in said
    assert_same(stopped, whole)


@BY_FEW
def test_a_damaged_checkpoint_is_passed_over_with_a_sentence(job: Job, whole: Path, stopped: Path) -> None:
    path = Checkpoint.all(stopped)[0].folder / "optimizer.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    said = job.here(stopped).said
    assert f"{path}: its SHA-256 is not the one in MANIFEST.json; resuming from step 8 instead\n" in said
    assert "resuming from step 8 of 16\n" in said
    assert_same(stopped, whole)


@BY_FEW
def test_a_run_without_a_whole_checkpoint_starts_anew(job: Job, whole: Path, stopped: Path) -> None:
    checkpoints = Checkpoint.all(stopped)
    for damaged in checkpoints:
        (damaged.folder / "state.json").unlink()
    assert job.here(stopped).said.count("; starting from the first step\n") == len(checkpoints)
    assert_same(stopped, whole)
