"""How many threads the free cores are worth, and that threads do not turn where other processes want the cores."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from regard import cores as module
from regard.cores import Reading, Waiting, choose_threads, quota, threads_for

INF = float("inf")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing of threads, on eight cores."""
    for name in (*module.CHOSEN, *module.WAITING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_own", lambda: set(range(8)))
    monkeypatch.setattr(module, "quota", lambda *paths: INF)
    monkeypatch.setattr(module, "MOMENT", 0.0)
    return monkeypatch


@pytest.mark.parametrize(("most", "cores", "busy", "expected"), [
    (8, 8, 0, 8), (8, 8, 0.4, 8), (8, 8, 2, 6), (8, 8, 3, 5), (64, 2, 0, 2), (4, 16, 3, 4), (2, 3, 1, 2),
])
def test_there_are_as_many_threads_as_free_cores(most: int, cores: int, busy: float, expected: int) -> None:
    assert threads_for(most, cores=cores, others=busy, quota=INF) == expected


@pytest.mark.parametrize(("cores", "busy"), [(2, 0.6), (2, 1), (2, 6), (8, 3.6), (8, 4), (8, 30)])
def test_with_half_of_the_cores_busy_or_more_there_are_as_many_threads_as_cores(cores: int, busy: float) -> None:
    assert threads_for(cores, cores=cores, others=busy, quota=INF) == cores


@pytest.mark.parametrize(("quota", "busy", "expected"), [
    (0.5, 0, 1), (2, 0, 2), (2, 10, 2), (2, 60, 2), (1.5, 0, 2), (1.4, 0, 1), (40, 30, 34)])
def test_others_leave_the_quota_of_a_control_group_as_long_as_there_are_other_cores(
    quota: float, busy: float, expected: int
) -> None:
    """The quota is this group's own; what others are counted on are all cores of the machine."""
    assert threads_for(64, cores=64, others=busy, quota=quota) == expected


@pytest.mark.parametrize(("busy", "expected"), [(0.0, 8), (3.0, 5), (30.0, 8)])
def test_a_run_takes_the_cores_that_others_leave(free: pytest.MonkeyPatch, busy: float, expected: int) -> None:
    free.setattr(module, "others", lambda before, after: busy)
    assert choose_threads(8) == expected


@pytest.mark.parametrize(("moments", "expected"), [
    ([0.0], 8), ([3.0, 0.1], 8), ([3.0, 2.0, 1.0, 2.0, 3.0], 7), ([3.0, 3.0, 3.0, 3.0, 0.2], 8)])
def test_a_busy_moment_at_its_beginning_does_not_take_threads_from_a_run(
    free: pytest.MonkeyPatch, moments: list[float], expected: int
) -> None:
    """The calmest of several counts, and a calm one ends the measurement."""
    left = iter(moments)
    free.setattr(module, "others", lambda before, after: next(left))
    assert choose_threads(8) == expected
    assert list(left) == []


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_of_threads_that_the_user_has_set_is_kept(free: pytest.MonkeyPatch, name: str) -> None:
    free.setenv(name, "8")
    free.setattr(module, "others", lambda before, after: 8.0)
    assert choose_threads(8) == 8


@pytest.mark.parametrize(("files", "path", "expected"), [
    ({"cpu.max": "150000 100000"}, "/", 1.5),
    ({"cpu.max": "max 100000"}, "/", INF),
    ({"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, "/job/step", 2.0),
    ({"job/cpu.max": "200000 100000", "job/step/cpu.max": "50000 100000"}, "/job/step", 0.5),
    ({"cpu.max": "300000 100000"}, "/as/seen/outside", 3.0),
    ({"other/cpu.max": "100000 100000"}, "/job", INF),
    ({"cpu.max": "nonsense"}, "/", INF),
    ({}, "/", INF),
])
def test_the_least_quota_of_a_control_group_and_those_above_it_counts(
    tmp_path: Path, files: dict[str, str], path: str, expected: float
) -> None:
    for name, content in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(content + "\n")
    (tmp_path / "membership").write_text(f"0::{path}\n")
    assert quota(tmp_path / "membership", tmp_path / "root") == expected


@pytest.mark.parametrize(("microseconds", "expected"), [("250000", 2.5), ("-1", INF)])
def test_an_older_control_group_has_a_quota_too(tmp_path: Path, microseconds: str, expected: float) -> None:
    (tmp_path / "cpu" / "job").mkdir(parents=True)
    (tmp_path / "cpu" / "job" / "cpu.cfs_quota_us").write_text(microseconds)
    (tmp_path / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000")
    (tmp_path / "membership").write_text("4:memory:/elsewhere\n1:cpu,cpuacct:/job\n")
    assert quota(tmp_path / "membership", tmp_path) == expected


@pytest.mark.parametrize(("content", "expected"), [
    (b"0::/job-\xff\n", INF), (b"nonsense\n\n0::/\n", 1.5), (b"0::/job\0\n", 1.5)])
def test_unusual_lines_about_control_groups_end_nothing(tmp_path: Path, content: bytes, expected: float) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "membership").write_bytes(content)
    assert quota(tmp_path / "membership", tmp_path) == expected


def test_a_process_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) == INF


def test_threads_sleep_as_soon_as_cores_are_short_and_turn_again_after_three_calm_moments(
    free: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(8)
    for busy, parked in ((0.0, 0), (0.39, 0), (0.5, 1), (2.0, 1), (0.3, 1), (0.1, 1), (0.1, 1), (0.3, 1), (0.1, 1),
                         (0.1, 1), (0.1, 0), (0.1, 0)):
        waiting.note(busy)
        assert len(waiting.parked) == parked, busy
    waiting.sleep()
    waiting.turn()
    assert not any(thread.name == "parked" for thread in threading.enumerate())


@pytest.mark.parametrize(("threads", "parked"), [(8, 1), (7, 1), (6, 1), (5, 1), (4, 2), (3, 3), (2, 7), (12, 0)])
def test_enough_threads_are_parked_for_openmp_to_count_more_than_cores(
    free: pytest.MonkeyPatch, threads: int, parked: int
) -> None:
    waiting = Waiting(threads)
    waiting.sleep()
    assert len(waiting.parked) == parked
    assert threads + parked * (threads - 1) > 8
    waiting.turn()


@pytest.mark.parametrize("name", module.WAITING)
def test_a_way_of_waiting_that_the_user_has_set_is_kept(free: pytest.MonkeyPatch, name: str) -> None:
    free.setenv(name, "1")
    with Waiting(8) as waiting:
        assert not waiting.watching.is_alive()


def test_what_was_chosen_for_a_run_is_undone_after_it() -> None:
    before = torch.get_num_threads()
    with module.threads_kept():
        torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="asks Linux for the work of other processes")
def test_the_work_of_other_processes_is_seen_and_our_own_is_not() -> None:
    """On a machine that has other work as well, it is at least this."""
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    used = Path(f"/proc/{child.pid}/stat")

    def seconds() -> float:
        return sum(map(int, used.read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    before, of_child = Reading.now(), seconds()
    time.sleep(0.5)
    after, worked = Reading.now(), seconds() - of_child
    child.kill()
    child.communicate()
    assert module.others(before, after) * (after.time - before.time) >= worked - 0.05
    assert after.own - before.own < 0.2


TURNING = """
import time, torch
from regard.cores import Waiting
torch.set_num_threads(2)

def turned():
    used = 0.0
    for _ in range(20):
        torch.zeros(1 << 20).add_(1)
        before = time.process_time()
        time.sleep(0.02)  # in which nothing but the other thread's waiting takes time
        used += time.process_time() - before
    return used

waiting = Waiting(2)
first = turned()
waiting.sleep()
slept = turned()
waiting.turn()
print(first, slept, turned())
"""


@pytest.mark.skipif(sys.platform != "linux" or len(module._own()) < 2, reason="GNU's OpenMP, on several cores")
def test_parked_threads_keep_those_of_torch_from_turning() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in module.WAITING}
    done = subprocess.run([sys.executable, "-c", TURNING], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, slept, again = map(float, done.stdout.split())
    assert slept < first / 4
    assert slept < again / 4
