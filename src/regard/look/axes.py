"""The axes of an attention: its rows and columns stand for words, patches of a picture, or moments of a sound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

__all__ = ["Axis", "AxisPair", "Grid", "GridPart", "Mixed", "Time", "Words", "axis_from_json", "axis_to_json",
           "grid_parts", "unit"]

PICTURE = "data:image/"  # how the address of a picture begins that needs nothing from outside

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

    def __len__(self) -> int:
        return len(self.before) + self.height * self.width

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


@dataclass(frozen=True)
class Mixed(Place):
    """Several axes one after the other: a sequence of patches and words.

    >>> list(Mixed((("<s>",), Grid(1, 2), (" a", " cat"))))
    ['<s>', ' 0,0', ' 0,1', ' a', ' cat']
    """

    parts: tuple[Words | Grid | Time, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def names(self) -> Words:
        return tuple(name for part in self.parts for name in part)


Axis = Words | Grid | Time | Mixed


def unit(axis: Axis) -> str:
    """The word for the places of an axis.

    >>> unit(("a", "b")), unit(Grid(2, 3)), unit(Time((0.0, 0.1)))
    ('tokens', 'patches', 'moments')
    """
    match axis:
        case Grid():
            return "patches"
        case Time():
            return "moments"
        case Mixed():
            return "places"
        case _:
            return "tokens"


class GridPart(NamedTuple):
    """A grid on an axis, and which places of the axis are its patches."""

    grid: Grid
    patches: slice


def grid_parts(axis: Axis) -> tuple[GridPart, ...]:
    """The pictures of an axis, in order.

    >>> [part.patches for part in grid_parts(Mixed((("a", "b"), Grid(2, 3, before=("[CLS]",)))))]
    [slice(3, 9, None)]
    """
    found, start = [], 0
    for part in axis.parts if isinstance(axis, Mixed) else (axis,):
        end = start + len(part)
        if isinstance(part, Grid):
            found.append(GridPart(part, slice(start + len(part.before), end)))
        start = end
    return tuple(found)


def word_places(axis: Axis) -> list[int]:
    """The places of an axis that are no patches.

    >>> word_places(Mixed((("a",), Grid(1, 2, before=("[CLS]",)), ("b",))))
    [0, 1, 4]
    """
    patches = {place for part in grid_parts(axis) for place in range(*part.patches.indices(len(axis)))}
    return [place for place in range(len(axis)) if place not in patches]


@dataclass(frozen=True)
class AxisPair:
    """The meaning of the rows (`targets`) and the columns (`sources`) of a site.

    A row is named by the token that it *produced*.
    """

    targets: Axis
    sources: Axis

    @property
    def one_sequence(self) -> bool:
        """Whether rows and columns are one sequence, or one moved by a token, as in a decoder.

        >>> AxisPair(("a", "b"), ("<s>", "a")).one_sequence, AxisPair(("a", "b"), ("c", "d")).one_sequence
        (True, False)
        """
        return self.targets == self.sources or (
            len(self.targets) == len(self.sources) and self.targets[:-1] == self.sources[1:])


def axis_to_json(axis: Axis) -> list[str] | dict[str, Any]:
    match axis:
        case Grid():
            return {"grid": [axis.height, axis.width], "before": list(axis.before), "picture": axis.picture}
        case Time():
            return {"seconds": list(axis.seconds)}
        case Mixed():
            return {"parts": [axis_to_json(part) for part in axis.parts]}
        case _:
            return list(axis)


def axis_from_json(content: Sequence[str] | Mapping[str, Any]) -> Axis:
    """
    >>> axis_from_json(axis_to_json(Time((0.5,)))), axis_from_json(axis_to_json(Grid(2, 3))), axis_from_json(["a", "b"])
    (Time(seconds=(0.5,)), Grid(height=2, width=3, before=(), picture=None), ('a', 'b'))
    >>> axis_from_json(axis_to_json(Mixed((("a",), Grid(2, 3)))))
    Mixed(parts=(('a',), Grid(height=2, width=3, before=(), picture=None)))
    """
    match content:
        case {"grid": [int(height), int(width)], "before": [*before], "picture": str() | None as picture}:
            if picture is not None and not picture.startswith(PICTURE):
                raise ValueError(f"a picture is a data URL that begins with {PICTURE}")
            return Grid(height, width, tuple(map(str, before)), picture)
        case {"seconds": [*seconds]}:
            return Time(tuple(map(float, seconds)))
        case [*words] if all(isinstance(word, str) for word in words):
            return tuple(words)
        case {"parts": [*parts]}:
            axes = [axis_from_json(part) for part in parts]
            return Mixed(tuple(axis for axis in axes if not isinstance(axis, Mixed)))
    raise ValueError("an axis is words, a grid, seconds, or a list of these")
