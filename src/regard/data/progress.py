"""The progress of long work: a bar on a terminal, elsewhere lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regard.stdio import console, is_terminal, print_message

__all__ = ["progress"]

SAY_EVERY = 10.0  # seconds


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call for each finished part. Without a bar, work of a few seconds prints nothing."""
    if is_terminal(sys.stderr):
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
                   TimeRemainingColumn())
        with Progress(*columns, console=console(), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
    else:
        yield _lines(what, total)


def _lines(what: str, total: int) -> Callable[[int], None]:
    sum_done, said = 0, time.monotonic()

    def tell(done: int) -> None:
        nonlocal sum_done, said
        sum_done += done
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print_message(f"{what}: {min(1.0, sum_done / max(1, total)):.0%}")

    return tell
