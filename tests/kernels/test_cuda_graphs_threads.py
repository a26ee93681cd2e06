"""What was recorded is lent to one search at a time, whichever thread asks. A counter stands for the recorded step."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import torch
from torch import Tensor

from regard.kernels.cuda_graphs import MAX_RECORDED_STEPS, Captures


class Count:
    """As much of a search as `Captures` knows of."""

    def __init__(self, start: int, size: int = 1) -> None:
        self.number = torch.full((size,), start)

    def advance(self) -> None:
        self.number += 1

    def tensors(self) -> list[Tensor]:
        return [self.number]

    def keep_memory(self) -> None:
        """Nobody else has written to it."""


def test_two_searches_of_one_shape_never_work_in_the_same_memory() -> None:
    captures = Captures[Count]()
    for _ in range(2):  # the second time, there is one that was recorded before
        with captures.adopt(lambda: Count(10), key="a") as (one, _), \
                captures.adopt(lambda: Count(20), key="a") as (two, _):
            one.advance()
            two.advance()
            assert (int(one.number), int(two.number)) == (11, 21)
        assert len(captures.kept) == 1


def test_a_later_search_goes_on_in_the_memory_of_one_that_has_ended() -> None:
    captures = Captures[Count]()
    with captures.adopt(lambda: Count(10), key="a") as (one, step):
        pass
    with captures.adopt(lambda: Count(20), key="a") as (two, again):
        assert two is one
        assert again is step
        assert int(two.number) == 20
    with captures.adopt(lambda: Count(20, size=2), key="a") as (other, _), \
            captures.adopt(lambda: Count(20), key="b") as (third, _):
        assert len({id(one), id(other), id(third)}) == 3


def test_only_the_newest_are_kept() -> None:
    captures = Captures[Count]()
    with ExitStack() as stack:
        for key in range(2 * MAX_RECORDED_STEPS):
            stack.enter_context(captures.adopt(lambda: Count(0), key=key))
    assert [key for key, _ in captures.kept] == [*range(MAX_RECORDED_STEPS)][::-1]  # the first began, and ended, last


def test_threads_that_share_recordings_count_each_for_itself() -> None:
    captures, together = Captures[Count](), threading.Barrier(4)

    def count(start: int) -> int:
        together.wait()
        with captures.adopt(lambda: Count(start), key="a") as (mine, _):
            for _ in range(50):
                mine.advance()
            return int(mine.number)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(pool.map(count, range(0, 4000, 1000))) == [50, 1050, 2050, 3050]
