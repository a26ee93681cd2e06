"""Reader: how a person gives an input to a task, and sees it again."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from regard.data.tokenizer import checked_length

__all__ = ["Reader", "TextReader"]

Input = TypeVar("Input")


class Reader(ABC, Generic[Input]):
    """Between a person and a task's inputs. `origin` says where an input comes from, for the error about it."""

    noun: str
    """The word for an input, such as "text"."""

    @abstractmethod
    def parse(self, text: str, *, origin: str) -> Input:
        """The input that an argument or a line of stdin describes."""

    def check(self, given: Input, *, origin: str) -> Input:
        """An input that was given in Python, if it can be used."""
        return given

    @abstractmethod
    def show(self, given: Input) -> str:
        """The input on one line or as it was typed."""

    def picture(self, given: Input) -> str | None:
        """A small picture of the input as a data URL, if the input is an image."""
        return None


class TextReader(Reader[str]):
    """A text is read as it is typed."""

    noun = "text"

    def parse(self, text: str, *, origin: str) -> str:
        return checked_length(text, origin)

    def check(self, given: str, *, origin: str) -> str:
        return checked_length(given, origin)

    def show(self, given: str) -> str:
        return given
