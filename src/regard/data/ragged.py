"""Rows of ids of different lengths, as two flat arrays that are mapped from a file and never read whole."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.settings.errors import UserError
from regard.settings.opening import refuse_irregular, replacing

__all__ = ["UNREADABLE", "Ragged", "damaged", "mapped"]

UNREADABLE = (OSError, EOFError, ValueError, TypeError, SyntaxError, TokenError, OverflowError, MemoryError)
"""The errors of numpy for a damaged .npy file."""


class Ragged(Sequence[NDArray[np.int32]]):
    """A list of integer arrays.

    >>> rows = Ragged.of([[1, 2, 3], [4]])
    >>> len(rows), rows[0].tolist(), rows.lengths.tolist()
    (2, [1, 2, 3], [3, 1])
    """

    def __init__(self, flat: NDArray[np.int32], ends: NDArray[np.int64]) -> None:
        self.flat, self.ends = flat, ends

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        flat = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
        return cls(flat, np.cumsum([len(a) for a in arrays], dtype=np.int64))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> NDArray[np.int32]:  # type: ignore[override]
        row = range(len(self))[row]
        return self.flat[self.ends[row - 1] if row else 0 : self.ends[row]]

    def save(self, path: Path) -> None:
        """Two files, `path.ids.npy` and `path.ends.npy`; each is there whole or not at all."""
        for name, array in (("ids", self.flat), ("ends", self.ends)):
            with replacing(path.with_name(f"{path.name}.{name}.npy")) as file:
                np.save(file, array, allow_pickle=False)

    @classmethod
    def load(cls, path: Path, *, least: int, below: int) -> "Ragged":
        """Load the files that `save` wrote; ids must be from `least` to `below` − 1."""
        files = [path.with_name(f"{path.name}.{name}.npy") for name in ("ids", "ends")]
        ids, ends = mapped(files[0], np.int32), mapped(files[1], np.int64)
        if len(ids) and not (least <= ids.min() and ids.max() < below):
            raise damaged(files[0], f"it has ids beyond {least} … {below - 1}")
        if int(ends[-1] if len(ends) else 0) != len(ids) or (np.diff(ends, prepend=0) < 0).any():
            raise damaged(files[1], "its rows are not those of the ids beside it")
        return cls(ids, ends)


def mapped(path: Path, *kinds: type[np.integer[Any]]) -> NDArray[Any]:
    """The array of whole numbers in a .npy file, not read but mapped."""
    try:
        refuse_irregular(path)
        array = np.lib.format.open_memmap(path, mode="r")
    except UNREADABLE as error:
        raise damaged(path, str(getattr(error, "strerror", None) or error).splitlines()[0]) from error
    if array.ndim != 1 or array.dtype.type not in kinds:
        raise damaged(path, f"it holds {array.dtype} in {array.ndim} dimensions")
    return array


def damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: damaged: {why}; delete {path.parent} to have the data prepared again")
