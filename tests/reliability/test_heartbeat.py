"""A process that is stopped is noticed; one that is slow, or stopped together with all others, is not taken for it.

The processes are real ones on this machine's CPU, talking by gloo; they learn nothing, and only wait for each other.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regard.checkpoint import write_json
from regard.settings.load import load, refuse_another, to_json
from regard.training.heartbeat import BEATS, LEFT, Silence

HERE = Path(__file__).parent
LIMIT = 2.0  # seconds
ON_POSIX = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped here")


@pytest.fixture
def two() -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """Starts two processes, each with its work, and returns when they have met."""
    started: list[subprocess.Popen[str]] = []

    def start(*work: str) -> list[subprocess.Popen[str]]:
        with socket.socket() as server:
            server.bind(("localhost", 0))
            port = str(server.getsockname()[1])
        for rank, own in enumerate(work):
            environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1",
                           "WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": port,
                           "LIMIT": str(LIMIT), "WORK": own}
            started.append(subprocess.Popen([sys.executable, str(HERE / "waiting.py")], env=environment, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


@ON_POSIX
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_process_is_noticed_by_those_that_wait_for_it(two: Callable[..., list[subprocess.Popen[str]]],
                                                               rank: int) -> None:
    """Also of the first one, which keeps the store through which they talk."""
    processes = two(*("sleep:60" if each == rank else "" for each in range(2)))
    processes[rank].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    other = processes[1 - rank]
    _, said = other.communicate(timeout=60)
    assert LIMIT / 2 < time.monotonic() - began < LIMIT + 8  # on a busy machine; it takes 2.2 s on a free one
    assert other.returncode == 1
    assert said.splitlines()[-1] == (
        f"regard: rank {rank} (process {processes[rank].pid} on {socket.gethostname()}) has been silent for 2 s, and "
        "train.timeout is 2 s. End that process if it is still there, and start the same command again: it resumes "
        "from the newest checkpoint")


@ON_POSIX
def test_processes_that_are_stopped_and_woken_together_go_on(two: Callable[..., list[subprocess.Popen[str]]]) -> None:
    processes = two("sleep:1", "sleep:1")
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            process.send_signal(number)
        time.sleep(1.5 * LIMIT)
    assert [process.communicate(timeout=60)[1] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_process_at_work_is_not_silent(two: Callable[..., list[subprocess.Popen[str]]], rank: int) -> None:
    """Neither if its work takes longer than the limit, nor if it keeps its own threads waiting for a part of that."""
    processes = two(*(f"hold:{0.6 * LIMIT} sleep:{1.5 * LIMIT}" if each == rank else "" for each in range(2)))
    assert [process.communicate(timeout=60)[1] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]


def test_silence_is_counted_from_the_newest_beat_and_reported_at_the_limit() -> None:
    silence, step = Silence(60), 60 / BEATS
    assert [silence.grow({1: "1", 2: str(number)}, step) for number in range(BEATS)] == [None] * BEATS
    assert silence.seconds == {1: 60 - step, 2: 0}
    assert silence.grow({1: "2", 2: "x"}, step) is None  # at the last moment
    assert [silence.grow({1: "2", 2: str(number)}, step) for number in range(BEATS)] == [None] * (BEATS - 1) + [1]


def test_a_process_that_has_not_begun_or_has_left_is_not_silent() -> None:
    silence = Silence(60)
    for _ in range(10 * BEATS):
        assert silence.grow({}, 5) is None
        assert silence.grow({2: LEFT}, 5) is None


def test_time_in_which_a_process_was_itself_asleep_is_no_silence_of_the_others() -> None:
    silence = Silence(60)
    assert silence.grow({1: "1"}, 5) is None
    assert silence.grow({1: "1"}, 8 * 3600) is None
    assert silence.seconds[1] <= 10


def test_a_run_may_be_gone_on_with_by_another_timeout(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", to_json(load()))
    refuse_another(tmp_path / "run.json", load(overrides=["train.timeout=600"]))
