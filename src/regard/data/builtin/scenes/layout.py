"""Where things stand in a scene: so that each relation that a caption names holds plainly, or not at all.

A image has 64 × 64 units, whatever its pixels are. Each pair of things has one relation, along the axis on which
they are further apart; it is plain if that distance is at least twice the other one.
"""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Int, UInt64

from regard.data.builtin.scenes.hashed_dice import HashedDice, mixed
from regard.data.builtin.scenes.lexicon import BACKGROUNDS, COLOURS, RADIUS, SHAPES, SMALL_RADIUS, is_held_out

__all__ = ["MAX_THINGS", "PLAIN_RATIO", "UNITS", "Layouts", "drawn", "joined"]

UNITS = 64  # of an image's side
MAX_THINGS = 3
HOW_MANY = (1, 2, 2, 3, 3)  # things of a scene, each as likely as the others
GAP = 2  # units between two things, and between a thing and the edge of the image
PLAIN_RATIO = 2  # the greater distance to the lesser one, at least, of things whose relation is plain
TRIES = 24  # places that are tried for a thing before the scene is given up
TINT = 12  # each channel of a thing's colour is lighter or darker by at most this
NOISES = (0, 0, 8, 16, 24)  # strengths of an image's noise

HELD_OUT = np.array([[is_held_out(c, s) for s in range(len(SHAPES))] for c in range(len(COLOURS))])


@dataclass(frozen=True)
class Layouts:
    """Many scenes at once, as numbers. Things stand in the order in which a caption names them."""

    count: Int[np.ndarray, " scenes"]
    """How many things there are; those after them mean nothing."""
    shape: Int[np.ndarray, "scenes 3"]
    colour: Int[np.ndarray, "scenes 3"]
    is_small: Bool[np.ndarray, "scenes 3"]
    x: Int[np.ndarray, "scenes 3"]
    """The middle of each thing, in units from the left."""
    y: Int[np.ndarray, "scenes 3"]
    """In units from the upper edge."""
    tint: Int[np.ndarray, "scenes 3 3"]
    """Added to the red, green and blue of each thing."""
    background: Int[np.ndarray, " scenes"]
    noise: Int[np.ndarray, " scenes"]
    grain: Int[np.ndarray, " scenes"]
    """Which noise it is."""

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, which: slice | Int[np.ndarray, " chosen"] | Bool[np.ndarray, " scenes"]) -> "Layouts":
        return Layouts(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def radius(self) -> Int[np.ndarray, "scenes 3"]:
        return np.where(self.is_small, SMALL_RADIUS, RADIUS)

    @property
    def is_there(self) -> Bool[np.ndarray, "scenes 3"]:
        return np.arange(MAX_THINGS) < self.count[:, None]

    @property
    def has_held_out(self) -> Bool[np.ndarray, " scenes"]:
        """Whether a thing has a colour that training never shows on its shape."""
        return (HELD_OUT[self.colour, self.shape] & self.is_there).any(1)  # type: ignore[no-any-return]

    @property
    def key(self) -> UInt64[np.ndarray, " scenes"]:
        """A number for the things and their places: scenes that differ only in background, tint or noise share it."""
        key = self.count.astype(np.uint64)
        for thing in range(MAX_THINGS):
            for part in (self.shape, self.colour, self.is_small, self.x, self.y):
                told = np.where(thing < self.count, part[:, thing] + 1, 0)
                key = mixed(key * np.uint64(UNITS + 1) + told.astype(np.uint64))
        return key


def joined(parts: list[Layouts]) -> Layouts:
    return Layouts(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Layouts)))


def drawn(numbers: UInt64[np.ndarray, " n"]) -> Layouts:
    """The scenes of these numbers; a number has none if its things are not different or found no place."""
    dice = HashedDice(numbers)
    count = np.array(HOW_MANY)[dice.roll(len(HOW_MANY))]
    shape, colour, small = (np.stack([dice.roll(sides) for _ in range(MAX_THINGS)], 1)
                            for sides in (len(SHAPES), len(COLOURS), 2))
    # A caption names the large things before the small ones; then shapes and colours have the order of the lexicon.
    rank = (small * len(SHAPES) + shape) * len(COLOURS) + colour
    order = np.argsort(np.where(np.arange(MAX_THINGS) < count[:, None], rank, rank.max() + 1), axis=1, kind="stable")
    shape, colour, small = (np.take_along_axis(part, order, 1) for part in (shape, colour, small))
    radius = np.where(small == 1, SMALL_RADIUS, RADIUS)
    x, y, has_place = _placed(dice, count, radius)
    layouts = Layouts(
        count, shape, colour, small == 1, x, y,
        np.stack([dice.roll(2 * TINT + 1) - TINT for _ in range(9)], 1).reshape(-1, 3, 3),
        np.array(BACKGROUNDS)[dice.roll(len(BACKGROUNDS))], np.array(NOISES)[dice.roll(len(NOISES))],
        dice.roll(1 << 15))
    return layouts[has_place & _all_different(count, shape * len(COLOURS) + colour)]


def _all_different(count: Int[np.ndarray, " n"], kind: Int[np.ndarray, "n 3"]) -> Bool[np.ndarray, " n"]:
    """Whether no two things share both shape and colour: "the red circle" is one thing."""
    second_differs = (count < 2) | (kind[:, 1] != kind[:, 0])
    third_differs = (count < 3) | ((kind[:, 2] != kind[:, 0]) & (kind[:, 2] != kind[:, 1]))
    return second_differs & third_differs  # type: ignore[no-any-return]


def _placed(dice: HashedDice, count: Int[np.ndarray, " n"], radius: Int[np.ndarray, "n 3"]) -> tuple[
    Int[np.ndarray, "n 3"], Int[np.ndarray, "n 3"], Bool[np.ndarray, " n"]
]:
    """The middle of each thing, and whether all have found a place.

    The second and the third stand plainly beside or above the first, since a caption relates them to it; of their own
    relation only a question may speak, where it is plain.
    """
    x, y = np.zeros_like(radius), np.zeros_like(radius)
    all_placed = np.ones(len(count), bool)
    for thing in range(MAX_THINGS):
        room = UNITS - 2 * (radius[:, thing] + GAP) + 1
        is_placed = np.zeros(len(count), bool)
        for _ in range(TRIES if thing else 1):
            try_x, try_y = (dice.roll(room) + radius[:, thing] + GAP for _ in range(2))
            fits = ~is_placed
            for other in range(thing):
                dx, dy = try_x - x[:, other], try_y - y[:, other]
                far, near = np.maximum(np.abs(dx), np.abs(dy)), np.minimum(np.abs(dx), np.abs(dy))
                fits &= far >= radius[:, thing] + radius[:, other] + GAP
                fits &= (far >= PLAIN_RATIO * near) | (other > 0)
            x[fits, thing], y[fits, thing] = try_x[fits], try_y[fits]
            is_placed |= fits
        all_placed &= is_placed | (count <= thing)
    return x, y, all_placed
