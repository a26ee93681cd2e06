"""Rows of ids of different lengths, as two flat arrays that are mapped from a file and never read whole."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.settings.opening import refuse_irregular, replacing

__all__ = ["Ragged"]


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
    def load(cls, path: Path) -> "Ragged":
        files = [path.with_name(f"{path.name}.{name}.npy") for name in ("ids", "ends")]
        for file in files:
            refuse_irregular(file)
        ids, ends = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
        return cls(ids, ends)
