"""Signals that tests send are heeded, although the tests themselves were started with `&` or nohup.

What a shell starts with `&` ignores SIGINT, and what nohup starts ignores SIGHUP. Every child inherits it. A run keeps
it so on purpose; a test that stops a run by a signal cannot.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["signals_heeded"]

IGNORED = ("SIGINT", "SIGHUP", "SIGQUIT")  # by what & or nohup starts; Windows has the first of them only


@contextmanager
def signals_heeded() -> Iterator[None]:
    """Inside, no such signal is ignored, neither here nor by the processes that are started here.

    preexec_fn would do it in the child; it is no longer safe, and warned about, where there are threads.
    """
    numbers = [getattr(signal, name) for name in IGNORED if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) is signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
