"""Notes for the user about the data and the texts. A repeated note is counted, not repeated."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

__all__ = ["Notes"]

LOCK = Lock()  # several threads may use one run


@dataclass
class _Count:
    part: int = 0
    whole: int = 0
    first: int = 0
    note: str | None = None


class Notes(list[str]):
    """Sentences in their order; of each counted kind there is only one.

    >>> notes = Notes(["no val split"])
    >>> for cut in (1, 0, 2):
    ...     notes.count_up("cut", cut, 10, lambda part, whole, first: f"{part} of {whole} texts cut")
    >>> notes
    ['no val split', '3 of 30 texts cut']
    >>> notes.take(), notes.take(), notes
    (['3 of 30 texts cut'], [], ['no val split'])
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known` are notes that were already printed."""
        super().__init__(known)
        self._counts: dict[str, _Count] = {}
        self._told = len(self)

    def count_up(self, kind: str, part: int, whole: int, sentence: Callable[[int, int, int], str], *,
                 size: int = 0) -> None:
        """Count `part` of `whole` more of a kind. The sentence gets the totals and the size of the first."""
        with LOCK:
            found = self._counts.setdefault(kind, _Count(first=size))
            found.part, found.whole, found.first = found.part + part, found.whole + whole, found.first or size
            if part:
                self._drop(found)
                found.note = sentence(found.part, found.whole, found.first)
                self.append(found.note)

    def take(self) -> list[str]:
        """The notes since the last call. The counts restart from zero."""
        with LOCK:
            new = list(dict.fromkeys(self[self._told :]))
            for found in self._counts.values():
                self._drop(found)
            self._counts.clear()
            self._told = len(self)
            return new

    def clear(self) -> None:
        super().clear()
        self._counts.clear()
        self._told = 0

    def _drop(self, found: _Count) -> None:
        if found.note is not None and found.note in self:
            place = len(self) - 1 - self[::-1].index(found.note)  # the last one: a file may have the same note
            del self[place]
