"""Images of coloured shapes with their captions: the built-in data of tasks on images.

A scene has one to three things. Each is a circle, a square, a triangle, a diamond, a cross or a star, in one of six
colours, large or small, on a plain or slightly noisy grey. No two of them touch, and no two share both shape and
colour. A scene has exactly one caption, and one image can have no other:

- "a red circle", "a small orange star": a large thing is called by no size.
- The large things come first, then the small ones; equal sizes come in the lexicon's order of shapes, then of colours.
- The first thing is related to each other one: "a red circle left of a small blue square and above a small star".
  The relation is along the axis on which their middles are further apart, at least twice as far as on the other axis.

Questions about a scene have one right answer each, of one word or one description. Every word of a caption or answer
knows the things that it is about, and thereby its region of the image.

A scene is a function of its split, its number and a seed, through whole numbers: the same bytes on every machine.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from regard.data.builtin.scenes.hashed_dice import mixed
from regard.data.builtin.scenes.layout import Layouts, drawn, joined
from regard.data.builtin.scenes.lexicon import SHAPES
from regard.data.builtin.scenes.painting import painted
from regard.data.builtin.scenes.questions import Question, chosen, questions, several
from regard.data.builtin.scenes.scene import Scene, Thing, Word
from regard.data.builtin.scenes.scene import scenes as described
from regard.settings.errors import UserError

__all__ = ["SHAPES", "SPLITS", "Asked", "AskedOften", "Captioned", "Labelled", "Question", "Scene", "Thing", "Word",
           "asked", "asked_often", "captioned", "labelled", "layouts", "painted", "questions",
           "scenes"]  # fmt: skip

SPLITS = ("train", "val", "test", "test_combinations")
SHARES = 16  # into which the scenes fall
TEST_SHARE, VAL_SHARE = 0, 1  # the others are for training
AT_ONCE = 4_096  # numbers that are drawn together


class Captioned(NamedTuple):
    """Images with their captions."""

    pixels: UInt8[np.ndarray, "n 3 size size"]
    captions: list[str]


class Asked(NamedTuple):
    """Images with a question about each, which knows its answer."""

    pixels: UInt8[np.ndarray, "n 3 size size"]
    questions: list[Question]


class AskedOften(NamedTuple):
    """Images with several questions about each."""

    pixels: UInt8[np.ndarray, "n 3 size size"]
    questions: list[list[Question]]


class Labelled(NamedTuple):
    """Images with the number of a shape in `SHAPES` for each."""

    pixels: UInt8[np.ndarray, "n 3 size size"]
    labels: Int[np.ndarray, " n"]


def scenes(split: str, count: int, *, seed: int = 0) -> list[Scene]:
    """The first scenes of a split; a longer list begins with the shorter one.

    The split of a scene does not depend on the seed: `test` and `val` have things at places where `train` never has
    them; each scene of `test_combinations` has a colour on a shape that is in none of the other three, though each
    colour and each shape is common there.

    >>> scenes("test", 1)[0].caption
    'a purple circle below a yellow triangle and left of a small green square'
    """
    return described(layouts(split, count, seed=seed))


def captioned(split: str, count: int, size: int, *, seed: int = 0) -> Captioned:
    """The images of `scenes` with their captions, `size` pixels high and wide."""
    found = layouts(split, count, seed=seed)
    return Captioned(painted(found, size), [each.caption for each in described(found)])


def asked(split: str, count: int, size: int, *, seed: int = 0) -> Asked:
    """The images of `scenes`, and one question about each: of all kinds, with answers in balance."""
    found = layouts(split, count, seed=seed)
    dice = mixed(found.key + np.uint64(1)).tolist()
    return Asked(painted(found, size), list(map(chosen, described(found), dice)))


def asked_often(split: str, count: int, size: int, *, most: int, seed: int = 0) -> AskedOften:
    """The same with up to `most` different questions about each image."""
    found = layouts(split, count, seed=seed)
    dice = (mixed(found.key + np.uint64(1)) >> np.uint64(1)).tolist()
    return AskedOften(painted(found, size), [several(scene, number, most)
                                             for scene, number in zip(described(found), dice, strict=True)])


def labelled(split: str, count: int, size: int, *, seed: int = 0) -> Labelled:
    """Images with one large thing, whose shape is the label; the others are small."""
    found = layouts(split, count, seed=seed, one_large=True)
    return Labelled(painted(found, size), found.shape[:, 0])


def layouts(split: str, count: int, *, seed: int = 0, one_large: bool = False) -> Layouts:
    """The scenes of a split as numbers, to be painted a few at a time; if asked for, those with one large thing."""
    if split not in SPLITS:
        raise UserError(f"{split}: no such split of the scenes; there are {', '.join(SPLITS)}")
    start = int.from_bytes(hashlib.blake2b(f"scenes {seed} {split}".encode(), digest_size=8).digest(), "little")
    parts, missing = list[Layouts](), count
    numbers = np.uint64(start) + np.arange(AT_ONCE, dtype=np.uint64)
    while missing > 0 or not parts:
        some = drawn(numbers)
        keep = _is_of(split, some)
        if one_large:
            keep &= (~some.is_small & some.is_there).sum(1) == 1
        parts.append(some[keep][:missing])
        missing -= len(parts[-1])
        numbers = numbers + np.uint64(AT_ONCE)
    return joined(parts)


def _is_of(split: str, some: Layouts) -> Bool[np.ndarray, " scenes"]:
    if split == "test_combinations":
        return some.has_held_out
    share = some.key % np.uint64(SHARES)
    mine = {"test": share == TEST_SHARE, "val": share == VAL_SHARE}.get(split, share > VAL_SHARE)
    return mine & ~some.has_held_out  # type: ignore[no-any-return]

