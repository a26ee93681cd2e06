"""A run is trained by one process at a time."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from regard.runs.lock import RECENT_SECONDS, hold, is_held
from regard.settings.errors import Failure, UserError

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from regard.runs.lock import hold
with hold(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(60)
"""
ASK = """
import sys, time
from pathlib import Path
from regard.runs.lock import is_held
print("ready", flush=True)
while True:
    is_held(Path(sys.argv[1]))
    time.sleep(0.0005)
"""
unix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")


@contextmanager
def another_process(folder: Path, does: str = HOLD) -> Iterator["subprocess.Popen[str]"]:
    """One that holds the folder, or asks who does, until it is killed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", does, str(folder)], env=environment, text=True,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.kill()


def test_a_folder_is_held_inside_and_free_outside(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "run")
    with hold(tmp_path / "run"):
        assert is_held(tmp_path / "run")
    assert not is_held(tmp_path / "run")
    with hold(tmp_path / "run"):  # the file that was left is no hindrance
        pass


@unix
def test_who_holds_a_folder_is_named_to_whoever_comes_second(tmp_path: Path) -> None:
    with another_process(tmp_path) as child:
        assert is_held(tmp_path)
        with pytest.raises(UserError) as refused, hold(tmp_path):
            pytest.fail("held twice")
    said = f"{tmp_path} is being trained by process {child.pid} on {socket.gethostname()}; "
    assert str(refused.value).startswith(said)


PREPARE = HOLD.replace("hold(Path(sys.argv[1]))", "hold(Path(sys.argv[1]), work='prepare')")


@unix
def test_who_prepares_the_data_is_not_said_to_train(tmp_path: Path) -> None:
    with another_process(tmp_path, PREPARE) as child:
        assert not is_held(tmp_path)
        with pytest.raises(UserError) as refused, hold(tmp_path):
            pytest.fail("held twice")
    assert str(refused.value) == (f"{tmp_path} has its data prepared by process {child.pid} on {socket.gethostname()}; "
                                  "wait for it to end, or choose another place with --out DIR")


@unix
def test_who_wants_to_prepare_waits_for_whom_prepares_and_not_for_whom_trains(tmp_path: Path) -> None:
    told = list[str]()
    with another_process(tmp_path, PREPARE) as child:
        end = threading.Timer(1.0, child.kill)  # longer than another holder is waited for
        end.start()
        with hold(tmp_path, told.append, work="prepare"):
            assert not end.is_alive()
    assert told == [f"note: {tmp_path} has its data prepared by process {child.pid} on {socket.gethostname()}; "
                    "waiting for it …"]
    with another_process(tmp_path) as child, pytest.raises(UserError) as refused, hold(tmp_path, work="prepare"):
        pytest.fail("held twice")
    assert str(refused.value) == (f"{tmp_path} is being trained by process {child.pid} on {socket.gethostname()}; wait "
                                  "for it to end")


@unix
def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    with another_process(tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert not is_held(tmp_path)
        with hold(tmp_path):
            assert is_held(tmp_path)


@unix
@pytest.mark.parametrize("written", ["", "[]", "{}"])
def test_a_holder_that_has_not_said_who_it_is_still_holds(tmp_path: Path, written: str) -> None:
    with another_process(tmp_path):
        (tmp_path / "lock").write_text(written)
        with pytest.raises(UserError, match="is being trained by another process"), hold(tmp_path):
            pytest.fail("held twice")


@unix
def test_asking_whether_a_folder_is_held_keeps_nobody_from_holding_it(tmp_path: Path) -> None:
    with hold(tmp_path):
        pass
    with another_process(tmp_path, ASK):
        for _ in range(20):
            with hold(tmp_path):
                time.sleep(0.01)


@pytest.mark.parametrize("age", [1, 10 * RECENT_SECONDS])
def test_without_locks_a_run_that_spoke_just_now_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                         age: float) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with hold(tmp_path), hold(tmp_path):
        assert not is_held(tmp_path)
        (tmp_path / "metrics.jsonl").touch()
        os.utime(tmp_path / "metrics.jsonl", (time.time() - age,) * 2)
        assert is_held(tmp_path) == (age < RECENT_SECONDS)


def begun(folder: Path, error: UserError) -> list[str]:
    """What is left of a run that has prepared its data, beside a file of somebody's, and ends by an error."""
    with suppress(UserError), hold(folder):
        (folder / "data").mkdir(exist_ok=True)
        for name in ("data/key.json", "tokenizer.json", "run.json", "notes.txt"):
            (folder / name).write_text("{}")
        raise error
    return sorted(place.name for place in folder.iterdir())


def test_a_refused_run_takes_with_it_what_it_has_made_and_nothing_else(tmp_path: Path) -> None:
    assert begun(tmp_path / "new", UserError("no such label")) == ["notes.txt"]
    (tmp_path / "old" / "data").mkdir(parents=True)
    assert begun(tmp_path / "old", UserError("no such label")) == ["data", "notes.txt"]


def test_what_has_failed_or_was_shared_keeps_what_it_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ["data", "lock", "notes.txt", "run.json", "tokenizer.json"]
    assert begun(tmp_path / "full", Failure("the disk is full")) == made
    assert begun(tmp_path / "full", UserError("no such label")) == made  # a run by then
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert begun(tmp_path / "shared", UserError("no such label")) == made


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_files_cannot_be_locked_it_is_said_with_the_way_to_be_safe(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", flock)
    notes: list[str] = []
    with hold(tmp_path, notes.append):
        (tmp_path / "run.json").write_text("{}")
    assert len(notes) == 1
    assert notes[0].startswith(f"note: files cannot be locked in {tmp_path}, so nothing prevents a second process")
    assert notes[0].endswith("start it only once, or choose another place, such as a local disk, with --out DIR")
    (tmp_path / "metrics.jsonl").touch()
    with hold(tmp_path, notes.append):
        pass
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    about = f"; {holder} has trained it within the last 60 seconds: has it ended?"
    assert notes[1] == notes[0] + about


def test_where_files_can_be_locked_there_is_nothing_to_say(tmp_path: Path) -> None:
    with hold(tmp_path, pytest.fail):
        pass
