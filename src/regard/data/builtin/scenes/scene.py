"""Scene: an image as a description, its caption word by word, and the part of the image that each word names."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from regard.data.builtin.scenes.layout import MAX_THINGS, PLAIN_RATIO, UNITS, Layouts
from regard.data.builtin.scenes.lexicon import COLOURS, RADIUS, SHAPES, SMALL_RADIUS
from regard.data.builtin.scenes.painting import covers
from regard.data.dataset import Box, Regions

__all__ = ["Scene", "Thing", "Word", "cells", "described", "scenes", "text"]

FINE = 4  # points to a unit's side that decide whether a cell holds a part of a thing
COLOUR_NAMES = tuple(COLOURS)


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape in an image of 64 × 64 units; x and y are its middle, counted from the upper left corner."""

    shape: str
    colour: str
    is_small: bool
    x: int
    y: int

    @property
    def radius(self) -> int:
        return SMALL_RADIUS if self.is_small else RADIUS

    @property
    def box(self) -> Box:
        """The smallest square around the circle in which the shape lies."""
        top, left, bottom, right = (at / UNITS for at in (
            self.y - self.radius, self.x - self.radius, self.y + self.radius, self.x + self.radius))
        return Box(top, left, bottom, right)

    def relation(self, other: "Thing") -> str | None:
        """How it stands to the other one, along the axis on which they are further apart; None: neither is plain."""
        dx, dy = other.x - self.x, other.y - self.y
        if abs(dx) >= PLAIN_RATIO * abs(dy):
            return "left of" if dx > 0 else "right of"
        if abs(dy) >= PLAIN_RATIO * abs(dx):
            return "above" if dy > 0 else "below"
        return None


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a caption or of an answer, and the numbers of the things that it is about.

    A colour, a size and a shape are about one thing, a relation about the two that it relates; articles and "and" are
    about none.
    """

    text: str
    things: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A image: its things, in the order in which the caption names them, and a number that tells it from others."""

    things: tuple[Thing, ...]
    key: int

    @property
    def words(self) -> tuple[Word, ...]:
        """The caption. The first thing is related to each other one: "a cross left of a star and above a circle"."""
        return tuple(self._caption())

    @property
    def caption(self) -> str:
        return text(self.words)

    @property
    def boxes(self) -> Regions:
        """The parts of the image that the words of the caption are about, by the number of the word."""
        return boxes(self, self.words)

    def regions(self, grid: tuple[int, int]) -> Bool[np.ndarray, "words cells"]:
        """Which cells of a grid, given by its rows and columns, hold a part of the things that each word is about."""
        return cells(self, self.words, grid)

    def _caption(self) -> Iterator[Word]:
        yield from described(self, 0)
        for number in range(1, len(self.things)):
            if number == 2:
                yield Word("and")
            relation = self.things[0].relation(self.things[number])
            assert relation is not None, "the layout relates each thing plainly to the first"
            yield from (Word(part, (0, number)) for part in relation.split())
            yield from described(self, number)


def text(words: tuple[Word, ...]) -> str:
    return " ".join([word.text for word in words])


def described(scene: Scene, number: int) -> Iterator[Word]:
    """ "a small red circle", "an orange star" """
    thing = scene.things[number]
    names = [*(["small"] if thing.is_small else []), thing.colour, thing.shape]
    yield Word("an" if names[0] == "orange" else "a")
    yield from (Word(name, (number,)) for name in names)


def boxes(scene: Scene, words: tuple[Word, ...]) -> Regions:
    return {number: [scene.things[thing].box for thing in word.things]
            for number, word in enumerate(words) if word.things}


def cells(scene: Scene, words: tuple[Word, ...], grid: tuple[int, int]) -> Bool[np.ndarray, "words cells"]:
    """Which cells of a grid, given by its rows and columns, hold a part of the things that each word is about."""
    things = np.stack([_cells(thing, grid) for thing in scene.things])
    about = np.zeros((len(words), len(scene.things)), bool)
    for number, word in enumerate(words):
        about[number, list(word.things)] = True
    return about @ things  # type: ignore[no-any-return]


def _cells(thing: Thing, grid: tuple[int, int]) -> Bool[np.ndarray, " cells"]:
    # Points at odd places of a grid with 2 × FINE places a unit.
    x, y = (np.arange(2 * FINE * (middle - thing.radius) + 1, 2 * FINE * (middle + thing.radius), 2)
            for middle in (thing.x, thing.y))
    inside = covers(thing.shape, (x - 2 * FINE * thing.x)[None, :], (y - 2 * FINE * thing.y)[:, None],
                    2 * FINE * thing.radius)
    down, across = np.nonzero(inside)
    found = np.zeros(grid, bool)
    found[y[down] * grid[0] // (2 * FINE * UNITS), x[across] * grid[1] // (2 * FINE * UNITS)] = True
    return found.ravel()


def scenes(layouts: Layouts) -> list[Scene]:
    """The same as descriptions."""
    parts = layouts.shape, layouts.colour, layouts.is_small, layouts.x, layouts.y
    things = [Thing(SHAPES[shape], COLOUR_NAMES[colour], is_small, x, y)
              for shape, colour, is_small, x, y in zip(*(part.ravel().tolist() for part in parts), strict=True)]
    return [Scene(tuple(things[MAX_THINGS * number : MAX_THINGS * number + count]), key)
            for number, (count, key) in enumerate(zip(layouts.count.tolist(), layouts.key.tolist(), strict=True))]
