"""On a first signal, a run finishes its step and saves; on a second one, or outside a step, it ends at once.

A closed terminal (SIGHUP) counts once: the system, the shell and the session each send the signal, some of them
together with SIGTERM.
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

# From a scheduler, a user, a cluster that warns ahead of time, a closed terminal.
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
HANG_UP = getattr(signal, "SIGHUP", None)  # Windows has none


class Stop:
    """Catches the first signal. Works only in the main thread; in other threads nothing changes."""

    def __init__(self, reply: str | None = None) -> None:
        """`reply` is printed at once, on a terminal."""
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
        """130 after Ctrl-C; else 75, which asks a scheduler to start the same command again."""
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
        if is_first and self.sentence is not None:  # a later one must not interrupt the cleanup after this one
            self.check(self.sentence)

    @contextmanager
    def at_once(self, sentence: str) -> Iterator[None]:
        """Inside, a signal ends the run at once: the next start repeats this work. `sentence` is the message."""
        self.sentence = sentence
        try:
            self.check(sentence)  # the signal may have come before
            yield
        finally:
            self.sentence = None
            self.check(sentence)  # a library may have swallowed or replaced the exception

    def check(self, sentence: str) -> None:
        """End the run with this message if a signal has come."""
        if self.asked:
            raise Stopped(sentence, self.exit_code)

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                if hasattr(signal, name):  # Windows has neither SIGUSR1 nor SIGHUP
                    number = getattr(signal, name)
                    # Ctrl-C for a command that a script starts with &, and SIGHUP under nohup.
                    if signal.getsignal(number) is not signal.SIG_IGN:
                        self.before[number] = signal.signal(number, self.note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self.before.items():
            signal.signal(number, before or signal.SIG_DFL)  # None: a handler installed from C cannot be restored


def _tell(reply: str) -> None:
    """Print on the terminal, if there is one. Not with print(): the signal may have interrupted one."""
    if is_terminal(sys.stderr) and os.environ.get("RANK", "0") == "0":
        with suppress(OSError, ValueError):  # it has just been closed
            os.write(sys.stderr.fileno(), f"\n{reply}\n".encode())


def _echo() -> float:
    """Seconds in which a signal may arrive twice though it was sent once.

    A cluster sends it to all processes of a job; torchrun, one of them, passes it on to the processes it started.
    """
    return 5.0 if "TORCHELASTIC_RUN_ID" in os.environ else 0.0
