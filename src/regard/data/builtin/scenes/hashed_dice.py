"""Dice for many numbers at once, which fall the same on every machine and with every numpy."""

import numpy as np
from jaxtyping import Int, UInt64

__all__ = ["HashedDice", "mixed"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(numbers: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """Numbers that look random, one for each number (the finalizer of SplitMix64: Steele et al. 2014, figure 19)."""
    z = numbers ^ (numbers >> np.uint64(30))
    z = z * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[no-any-return]


class HashedDice:
    """A sequence of rolls for each number. A roll depends on its number and its turn, never on the other numbers.

    >>> HashedDice(np.arange(5, dtype=np.uint64)).roll(100).tolist()
    [88, 74, 25, 81, 6]
    """

    def __init__(self, numbers: UInt64[np.ndarray, " n"]) -> None:
        self.state = mixed(numbers)

    def roll(self, sides: int | Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """From 0 up to `sides`, which are below 2³²."""
        self.state = self.state + GOLDEN
        return ((mixed(self.state) >> np.uint64(32)) * np.asarray(sides, np.uint64) >> np.uint64(32)).astype(np.int64)
