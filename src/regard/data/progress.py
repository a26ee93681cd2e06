"""How far a long piece of work has come: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

SAY_EVERY = 10.0  # seconds


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to be told of each part that is done. Work of a few seconds says nothing where there is no bar."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        with Progress(TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
                      console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total)
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
            print(f"{what}: {min(1.0, sum_done / max(1, total)):.0%}", file=sys.stderr, flush=True)

    return tell
