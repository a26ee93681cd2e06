"""Heartbeats: each process signals every few seconds that it is alive, and ends if another one is silent too long.

A stopped process (SIGSTOP, a machine that hangs) keeps its connections open, so the others would wait for it forever.
The first process listens to all the others, and they listen to the first.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Heartbeat", "Silence"]

BEATS = 12  # at least this many in the time that a process may be silent
SLOWEST = 5.0  # seconds between two beats, at most
LEFT = "left"  # the last beat of a process that has ended its work


class Silence:
    """The seconds since the last beat of each other process."""

    def __init__(self, limit: float) -> None:
        self.limit, self.pace = limit, min(limit / BEATS, SLOWEST)
        self.heard: dict[int, str] = {}
        self.seconds: dict[int, float] = {}

    def grow(self, beats: Mapping[int, str], passed: float) -> int | None:
        """Record the newest beat of each process; return the rank of one that has been silent too long.

        A process counts from its first beat: before, it may still be starting. Time in which this process did not run
        does not count: after Ctrl-Z, or the sleep of a laptop, all come back together.

        >>> silence = Silence(limit=60)
        >>> silence.grow({1: "first"}, 5), silence.grow({1: "first"}, 5), silence.seconds[1]
        (None, None, 5.0)
        >>> silence.grow({1: "first"}, 3600), silence.seconds[1]
        (None, 15.0)
        """
        passed = min(passed, 2 * self.pace)
        for rank, beat in beats.items():
            is_new = self.heard.get(rank) != beat
            self.seconds[rank] = 0.0 if is_new else self.seconds[rank] + passed
            self.heard[rank] = beat
            if self.seconds[rank] >= self.limit and beat != LEFT:
                return rank
        return None


class Heartbeat:
    """Two background threads: one talks to the others through a store, one measures their silence.

    They are two because a store whose process is stopped does not answer, not even after its own timeout.
    `connect` opens a separate connection to the store; `end` gets the message to end this process with.
    """

    def __init__(self, rank: int, size: int, *, limit: float, connect: Callable[[], Any],
                 end: Callable[[str], None]) -> None:
        self.rank, self.connect, self.end = rank, connect, end
        self.silence = Silence(limit)
        self.others = range(1, size) if rank == 0 else range(1)
        self.beats: dict[int, str] = {}
        self.leaving = threading.Event()
        self.talking = threading.Thread(target=self._talk, name="heartbeat", daemon=True)
        self.listening = threading.Thread(target=self._listen, name="silence", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self.talking.start()
        self.listening.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.leaving.set()
        self.listening.join()
        self.talking.join(SLOWEST)  # it blocks while the store does not answer

    def _talk(self) -> None:
        number, place = 0, f"process {os.getpid()} on {socket.gethostname()}"
        try:
            store = self.connect()
            while not self.leaving.is_set():
                number += 1
                store.set(f"beat{self.rank}", f"{number} {place}")
                for other in self.others:
                    if store.check([f"beat{other}"]):
                        self.beats[other] = store.get(f"beat{other}").decode()
                self.leaving.wait(self.silence.pace)
            store.set(f"beat{self.rank}", LEFT)
        except RuntimeError:  # the store and the first process have ended, which is not silence
            self.leaving.set()

    def _listen(self) -> None:
        silence, before = self.silence, time.monotonic()
        while not self.leaving.wait(silence.pace):
            now = time.monotonic()
            silent = silence.grow(dict(self.beats), now - before)
            before = now
            if silent is not None:
                self.end(_sentence(silent, self.beats[silent], silence.seconds[silent], silence.limit))
                return


def _sentence(rank: int, beat: str, seconds: float, limit: float) -> str:
    """
    >>> _sentence(1, "17 process 4711 on node3", seconds=62.5, limit=60)
    'rank 1 (process 4711 on node3) has been silent for 62 s, and train.timeout is 60 s. End that process if it is still
    there, and start the same command again: it resumes from the newest checkpoint'
    """
    place = beat.partition(" ")[2]
    return (f"rank {rank} ({place}) has been silent for {int(seconds)} s, and train.timeout is {limit:g} s. End that "
            "process if it is still there, and start the same command again: it resumes from the newest checkpoint")
