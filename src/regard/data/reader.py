"""Reader: how a person gives an input to a task, and sees it again."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from regard.data.lines import read_text
from regard.data.tokenizer import checked_length

__all__ = ["Reader", "TextReader"]

Input = TypeVar("Input")


class Reader(ABC, Generic[Input]):
    """Between a person and a task's inputs. `origin` says where an input comes from, for the error about it."""

    noun: str
    """The word for an input, such as "text"."""

    reads_files = True
    """Whether an argument may be the path of a file that holds the input."""

    @abstractmethod
    def parse(self, text: str, *, origin: str) -> Input:
        """The input that an argument or a line of stdin describes."""

    def read(self, stream: Iterable[bytes], *, origin: str) -> Input | None:
        """The input that is all of a binary stream, such as stdin; none if the stream is empty."""
        whole = "".join(read_text(stream, origin))
        return self.parse(whole, origin=origin) if whole else None

    def check(self, given: Any, *, origin: str) -> Input:
        """The input that was given in Python, if it can be used."""
        return given  # type: ignore[no-any-return]

    @abstractmethod
    def show(self, given: Input) -> str:
        """The input on one line or as it was typed."""

    def picture(self, given: Input) -> str | None:
        """A small picture of the input as a data URL, for a page; none if `show` is enough."""
        return None


class TextReader(Reader[str]):
    """A text is read as it is typed."""

    noun = "text"
    reads_files = False

    def parse(self, text: str, *, origin: str) -> str:
        return checked_length(text, origin)

    def check(self, given: Any, *, origin: str) -> str:
        return checked_length(given, origin)

    def show(self, given: str) -> str:
        return given
