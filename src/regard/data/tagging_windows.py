"""A sentence that is too long to be read at once is tagged in windows that overlap."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["TaggingWindow", "tagging_windows"]


class TaggingWindow(NamedTuple):
    """A stretch of a sentence: the words to read, and those of them to tag."""

    read: range
    tagged: range


def tagging_windows(sizes: Sequence[int], room: int) -> list[TaggingWindow]:
    """Stretches of words of these sizes with at most `room` in each. The next begins in the middle of the one before.

    Of the words that two windows share, the first window tags the first half, so that all words but those at the ends
    of the sentence are tagged with context on both sides. No word may be longer than the room.

    >>> [(list(read), list(tagged)) for read, tagged in tagging_windows([1, 1, 1, 1, 1, 1], 4)]
    [([0, 1, 2, 3], [0, 1, 2]), ([2, 3, 4, 5], [3, 4, 5])]
    """
    reads, first = list[range](), 0
    while not reads or reads[-1].stop < len(sizes):
        last, used = first, 0
        while last < len(sizes) and used + sizes[last] <= room:
            last, used = last + 1, used + sizes[last]
        reads.append(range(first, last))
        first = max(first + 1, (first + last + 1) // 2)
    cuts = [0, *((one.stop + other.start + 1) // 2 for one, other in pairwise(reads)), len(sizes)]
    return [TaggingWindow(read, range(start, stop)) for read, (start, stop) in zip(reads, pairwise(cuts), strict=True)]
