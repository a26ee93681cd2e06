"""Asked to stop, a run finishes its step and saves; asked again, or outside of any step, it ends at once.

A closed terminal (SIGHUP) asks once, however often: the system, the shell and the session each send the signal, some
of them together with SIGTERM.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from regard.settings.errors import Stopped
from regard.stdio import is_terminal

__all__ = ["Stop"]

# A scheduler, a person, a cluster that warns ahead of time, a terminal that was closed.
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
HANG_UP = getattr(signal, "SIGHUP", None)  # Windows has none


class Stop:
    """Notes the first signal instead of dying of it. Only a program's main thread can; elsewhere nothing changes."""

    def __init__(self, reply: str | None = None) -> None:
        """The reply is what a person at a terminal is told at once."""
        self.reply = reply
        self.signal: int | None = None
        self.sentence: str | None = None
        self.since = 0.0
        self.before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 as after any Ctrl-C; else 75, which asks a scheduler to start the same command again."""
        return 130 if self.signal == signal.SIGINT else 75

    def note(self, number: int, frame: FrameType | None) -> None:
        is_first = not self.asked
        if is_first or (self.signal == HANG_UP and number != HANG_UP):
            self.signal, self.since = number, time.monotonic()
            if self.reply is not None and self.sentence is None:
                _tell(self.reply)
        elif number != HANG_UP and time.monotonic() - self.since > _echo():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if is_first and self.sentence is not None:  # a later one would interrupt the cleanup that this one began
            self.check(self.sentence)

    @contextmanager
    def at_once(self, sentence: str) -> Iterator[None]:
        """Inside, nothing is waited for: it is work that the next start does anew. The sentence says what was left."""
        self.sentence = sentence
        try:
            self.check(sentence)  # it may have been asked before
            yield
        finally:
            self.sentence = None
            self.check(sentence)  # a library may have lost, or turned into its own, what was raised inside it

    def check(self, sentence: str) -> None:
        """End the run with this sentence, if that was asked for."""
        if self.asked:
            raise Stopped(sentence, self.exit_code)

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                if hasattr(signal, name):  # Windows has neither SIGUSR1 nor SIGHUP
                    number = getattr(signal, name)
                    # As Ctrl-C is for what a script starts with &, and SIGHUP under nohup.
                    if signal.getsignal(number) is not signal.SIG_IGN:
                        self.before[number] = signal.signal(number, self.note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self.before.items():
            signal.signal(number, before or signal.SIG_DFL)  # None: what was installed from C cannot be put back


def _tell(reply: str) -> None:
    """On the terminal, if there is one. Not by print: the signal may have come in the middle of one."""
    if is_terminal(sys.stderr) and os.environ.get("RANK", "0") == "0":
        with suppress(OSError, ValueError):  # it was closed just now
            os.write(sys.stderr.fileno(), f"\n{reply}\n".encode())


def _echo() -> float:
    """Seconds in which a signal may come twice though it was sent once.

    A cluster sends it to all processes of a job, and torchrun, being one of them, passes it on to those it started.
    """
    return 5.0 if "TORCHELASTIC_RUN_ID" in os.environ else 0.0
