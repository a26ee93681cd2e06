"""Batches made ahead of time in a thread, so that a GPU never waits for them."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["prefetch"]

T = TypeVar("T")


def prefetch(make: Callable[[int], T], start: int, stop: int, *, depth: int = 4) -> Generator[tuple[int, T]]:
    """(step, make(step)) for each step, with `depth` of them under way.

    >>> list(prefetch(lambda step: step * 10, 2, 5))
    [(2, 20), (3, 30), (4, 40)]
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: deque[tuple[int, Future[T]]] = deque()
        for step in range(start, stop + depth):
            if step < stop:
                waiting.append((step, pool.submit(make, step)))
            if step >= start + depth and waiting:
                ready, future = waiting.popleft()
                yield ready, future.result()
