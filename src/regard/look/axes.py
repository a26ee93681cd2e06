"""The axes of an attention: its rows and columns stand for words, patches of a picture, or moments of a sound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

__all__ = ["Axis", "AxisPair", "Grid", "Time", "Words", "axis_from_json", "axis_to_json"]

Words = tuple[str, ...]
"""Tokens, each by its text."""


class Place(Sequence[str]):
    """An axis whose places have made-up names: as a sequence, it is these names.

    They begin with a space, as tokens that begin a word do.
    """

    def names(self) -> Words:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Words: ...
    def __getitem__(self, place: int | slice) -> str | Words:
        return self.names()[place]

    def __len__(self) -> int:
        return len(self.names())


@dataclass(frozen=True)
class Grid(Place):
    """Patches of a picture, row after row, with tokens `before` them, such as a class token.

    >>> list(Grid(1, 2, before=("[CLS]",)))
    ['[CLS]', ' 0,0', ' 0,1']
    """

    height: int
    width: int
    before: Words = ()
    picture: str | None = None
    """The picture itself, as a data URL."""

    def names(self) -> Words:
        return *self.before, *(f" {row},{column}" for row in range(self.height) for column in range(self.width))


@dataclass(frozen=True)
class Time(Place):
    """Moments, in seconds from the beginning.

    >>> list(Time((0.0, 0.08)))
    [' 0.00 s', ' 0.08 s']
    """

    seconds: tuple[float, ...]

    def names(self) -> Words:
        return tuple(f" {moment:.2f} s" for moment in self.seconds)


Axis = Words | Grid | Time


@dataclass(frozen=True)
class AxisPair:
    """The meaning of the rows (`targets`) and the columns (`sources`) of a site.

    A row is named by the token that it *produced*.
    """

    targets: Axis
    sources: Axis


def axis_to_json(axis: Axis) -> list[str] | dict[str, Any]:
    match axis:
        case Grid():
            return {"grid": [axis.height, axis.width], "before": list(axis.before), "picture": axis.picture}
        case Time():
            return {"seconds": list(axis.seconds)}
        case _:
            return list(axis)


def axis_from_json(content: Sequence[str] | Mapping[str, Any]) -> Axis:
    """
    >>> axis_from_json(axis_to_json(Time((0.5,)))), axis_from_json(axis_to_json(Grid(2, 3))), axis_from_json(["a", "b"])
    (Time(seconds=(0.5,)), Grid(height=2, width=3, before=(), picture=None), ('a', 'b'))
    """
    match content:
        case {"grid": [int(height), int(width)], "before": [*before], "picture": str() | None as picture}:
            return Grid(height, width, tuple(map(str, before)), picture)
        case {"seconds": [*seconds]}:
            return Time(tuple(map(float, seconds)))
        case [*words] if all(isinstance(word, str) for word in words):
            return tuple(words)
    raise ValueError("an axis is words, a grid or seconds")
