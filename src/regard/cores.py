"""How many threads a CPU's free cores are worth, and how those threads wait for each other.

The threads of an operation meet at its end. The first ones spin, which is right while each has a core: the next
operation begins at once. If other processes need the cores, too, spinning takes the time that the last thread
needs: a step of 0.07 s was seen to take 10 s.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.settings.opening import to_read

__all__ = ["Waiting", "choose_threads", "is_chosen", "others", "quota", "threads_for",
           "threads_kept"]

CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # the number of threads is the user's choice
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # and how they wait
MOMENT = 0.2  # seconds over which others are measured before a run
MOMENTS = 5  # at most; one of them in which all cores are free is enough
PACE = 1.0  # seconds between two measurements during it
CROWDED, ALONE = 0.4, 0.2  # cores too few: from here on threads sleep while they wait, below this they turn again
CALM = 3  # measurements in a row that say so before they do
BUSY = slice(0, 3), slice(5, 8)  # user, nice, system; interrupts, and what the machine's host has taken
PARALLEL = 1 << 20  # numbers to add that torch shares out among all threads


def is_chosen() -> bool:
    return any(name in os.environ for name in CHOSEN)


def threads_for(most: int, *, cores: int, others: float, quota: float) -> int:
    """As many as there are free cores, to the nearest; all cores if no more than half of them are free.

    A thread that shares its core with another process gets half of it, and the others wait for it: a step takes about
    as long as with half of the threads. So fewer threads pay while more than half of the cores are free. With less,
    they were slower (docs/results.md), and a run that keeps them for life is slower still when the cores are free
    again. A `quota` of control groups, in cores, is not shared: the load of others is not subtracted from it.

    >>> [threads_for(8, cores=8, others=busy, quota=8) for busy in (0, 0.4, 0.6, 3, 4, 20)]
    [8, 8, 7, 5, 8, 8]
    >>> threads_for(64, cores=64, others=30, quota=1.5), threads_for(2, cores=16, others=1, quota=16)
    (2, 2)
    """
    free = int(cores - others + 0.5)
    return max(1, min(most, free if free > cores / 2 else cores, int(min(quota, cores) + 0.5)))


def quota(membership: Path, root: Path) -> float:
    """The cores that the control groups allow a process: the smallest limit of its own group and those above it."""
    try:
        lines = [line.split(":", 2) for line in _text(membership).splitlines()]
    except (OSError, ValueError):  # a path need not be UTF-8
        return float("inf")
    found = [float("inf")]
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "cpu" not in controllers.split(","):
            continue
        tree = root / "cpu" if controllers else root
        own = tree / path.strip("/")
        # A container may see its own group as the root of the tree, and its path as it is outside.
        found += [_quota(group) for group in {tree, own, *(above for above in own.parents if tree in above.parents)}]
    return min(found)


def _quota(group: Path) -> float:
    try:
        if (file := group / "cpu.max").exists():
            most, period = _text(file).split()
        else:
            most, period = (_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        return float("inf") if most == "max" or float(most) <= 0 else float(most) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def _text(path: Path) -> str:
    with open(path, encoding="utf-8", opener=to_read) as file:
        return file.read()


def choose_threads(most: int) -> int:
    """For a run that begins on this machine now; torch would take `most`."""
    if is_chosen() or most == 1:
        return most
    # A moment's load must not slow down the whole run: the calmest moment counts.
    allowed, calmest = len(_own()), float("inf")
    for _ in range(MOMENTS):
        before = Reading.now()
        time.sleep(MOMENT)
        calmest = min(calmest, others(before, Reading.now()))
        if calmest < ALONE:
            break
    return threads_for(most, cores=allowed, others=calmest,
                       quota=quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore the number of threads on exit: the calling program may have other work."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Reading:
    """Seconds that the cores we may use have worked, those of them that were this process's, and when that was."""

    worked: float
    own: float
    time: float

    @classmethod
    def now(cls) -> "Reading":
        try:
            worked = worked_in(_text(Path("/proc/stat")).splitlines(), _own()) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):  # not on Linux: nothing is known of others
            worked = 0.0
        return cls(worked, time.process_time(), time.monotonic())


def worked_in(lines: Iterable[str], own: Iterable[int]) -> int:
    """Ticks that some cores have worked, by /proc/stat.

    >>> worked_in(["cpu 60 0 0 0", "cpu0 10 1 5 900 9 2 3 4 0 0", "cpu1 20 0 0 900 0 0 0 0 0 0"], own=[0])
    25
    """
    wanted = {f"cpu{number}" for number in own}
    rows = [list(map(int, line.split()[1:])) for line in lines if line.split(" ", 1)[0] in wanted]
    return sum(sum(row[part]) for row in rows for part in BUSY)


def others(before: Reading, after: Reading) -> float:
    """Cores' worth of work by other processes between two readings.

    >>> others(Reading(worked=100, own=10, time=50), Reading(worked=104, own=13, time=52))
    0.5
    """
    passed = max(after.time - before.time, 1e-3)
    return max(0.0, (after.worked - before.worked) - (after.own - before.own)) / passed


def _own() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


class Waiting:
    """While it is open, torch's threads turn as they wait for each other only as long as the cores are free for that.

    GNU's OpenMP, which torch is built with on Linux, lets its threads turn briefly and then sleep if there are more of
    them in a process than cores. It counts those of all pools, also of one whose thread has nothing to do: so such
    threads are kept while the cores are crowded. No number depends on it, and the next second may be otherwise.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.free = threads, len(_own())
        self.is_ours = threads > 1 and not any(name in os.environ for name in WAITING)
        self.closing = threading.Event()
        self.watching = threading.Thread(target=self._watch, name="waiting", daemon=True)
        self.release = threading.Event()
        self.parked: list[threading.Thread] = []
        self.calm = 0

    def __enter__(self) -> "Waiting":
        if self.is_ours:
            self.watching.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        if self.is_ours:
            self.watching.join()
        self.turn()

    def note(self, busy: float) -> None:
        """Take in how many cores others keep busy."""
        missing = self.threads + busy - self.free
        self.calm = self.calm + 1 if missing < ALONE else 0
        if missing > CROWDED:
            self.sleep()
        elif self.calm >= CALM:
            self.turn()

    def sleep(self) -> None:
        if self.parked:
            return
        self.release.clear()
        # Each has as many threads as an operation; one of them is already counted.
        for _ in range((self.free - self.threads) // (self.threads - 1) + 1):
            there = threading.Event()
            self.parked.append(threading.Thread(target=self._park, args=(there,), name="parked", daemon=True))
            self.parked[-1].start()
            there.wait()

    def turn(self) -> None:
        self.release.set()
        for thread in self.parked:
            thread.join()
        self.parked = []

    def _park(self, there: threading.Event) -> None:
        try:
            torch.zeros(PARALLEL).add_(1)  # makes this thread's pool
        finally:
            there.set()
        self.release.wait()

    def _watch(self) -> None:
        before, pause = Reading.now(), MOMENT
        while not self.closing.wait(pause):
            after = Reading.now()
            self.note(others(before, after))
            before, pause = after, PACE
