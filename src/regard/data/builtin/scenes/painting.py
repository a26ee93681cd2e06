"""Scenes to pixels. All arithmetic is on whole numbers, so that an image is the same on every machine."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from jaxtyping import Bool, Int, UInt8

from regard.data.builtin.scenes.hashed_dice import mixed
from regard.data.builtin.scenes.layout import UNITS, Layouts
from regard.data.builtin.scenes.lexicon import COLOURS, RADIUS, SHAPES, SMALL_RADIUS

__all__ = ["covers", "painted"]

SAMPLES = 3  # of a pixel's side: edges are smooth
AT_ONCE = 128  # scenes: their pixels stay in the cache
PALETTE = np.array(list(COLOURS.values()), np.int16)

Offsets = Int[np.ndarray, "#*places"]
STAR = [(round(1000 * math.sin(math.tau * k / 5)), round(1000 * math.cos(math.tau * k / 5))) for k in range(5)]


# Whether a point lies in a shape: u to the right of its middle and v below it; r is the radius.


def _circle(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    return u * u + v * v <= r * r  # type: ignore[no-any-return]


def _square(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    return np.maximum(np.abs(u), np.abs(v)) * 10 <= r * 8  # type: ignore[no-any-return]


def _triangle(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    """Its tip is above, its base 0.8 r below the middle and 1.9 r wide."""
    return (v * 10 <= r * 8) & (np.abs(u) * 36 <= (v + r) * 19)  # type: ignore[no-any-return]


def _diamond(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    return np.abs(u) + np.abs(v) <= r  # type: ignore[no-any-return]


def _cross(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    near, far = np.minimum(np.abs(u), np.abs(v)), np.maximum(np.abs(u), np.abs(v))
    return (near * 3 <= r) & (far <= r)  # type: ignore[no-any-return]


def _star(u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    """Five lines make a pentagram; its points lie on the inner side of at least four of them."""
    inner = [u * across + v * down <= r * 309 for across, down in STAR]  # cos 72° = 0.309
    return np.add.reduce(inner, dtype=np.int8) >= 4  # type: ignore[no-any-return]


FORMS: dict[str, Callable[[Offsets, Offsets, int], Bool[np.ndarray, "*places"]]] = {
    "circle": _circle, "square": _square, "triangle": _triangle, "diamond": _diamond, "cross": _cross, "star": _star}


def painted(layouts: Layouts, size: int) -> UInt8[np.ndarray, "scenes 3 size size"]:
    """The images, `size` pixels high and wide: red, green, blue."""
    pixels = np.empty((len(layouts), 3, size, size), np.uint8)
    for first in range(0, len(layouts), AT_ONCE):
        some = layouts[first : first + AT_ONCE]
        pixels[first : first + AT_ONCE] = np.moveaxis(_with_noise(_clean(some, size), some), 3, 1)
    return pixels


def covers(shape: str, u: Offsets, v: Offsets, r: int) -> Bool[np.ndarray, "*places"]:
    """Which of these points, counted from its middle, lie in a shape."""
    return FORMS[shape](u, v, r)


def _clean(layouts: Layouts, size: int) -> Int[np.ndarray, "scenes size size 3"]:
    pixels = np.empty((len(layouts), size, size, 3), np.int16)
    pixels[:] = layouts.background[:, None, None, None]
    for radius in (RADIUS, SMALL_RADIUS):
        # A thing lies inside the image, and the box around it does: it begins earlier where it would not.
        box = min(size, -(-2 * radius * size // UNITS) + 1)
        for number, shape in enumerate(SHAPES):
            chosen = layouts.is_there & (layouts.shape == number) & (layouts.radius == radius)
            scene, thing = np.nonzero(chosen)
            x, y = layouts.x[scene, thing], layouts.y[scene, thing]
            left, top = (np.minimum((middle - radius) * size // UNITS, size - box) for middle in (x, y))
            # Samples lie at odd places of a grid with 2 × SAMPLES places a pixel; a unit has `size` / UNITS pixels.
            places = np.arange(1, 2 * SAMPLES * box, 2)
            u = (2 * SAMPLES * left)[:, None] + places
            v = (2 * SAMPLES * top)[:, None] + places
            u, v = (at * UNITS - (2 * SAMPLES * size) * middle[:, None] for at, middle in ((u, x), (v, y)))
            inside = FORMS[shape](u[:, None, :], v[:, :, None], radius * 2 * SAMPLES * size)
            share = inside.reshape(len(scene), box, SAMPLES, box, SAMPLES).sum((2, 4), dtype=np.int16)[..., None]
            colour = (PALETTE[layouts.colour[scene, thing]] + layouts.tint[scene, thing]).clip(0, 255).astype(np.int16)
            rows = (top[:, None] + np.arange(box))[:, :, None]
            columns = (left[:, None] + np.arange(box))[:, None, :]
            here = (scene[:, None, None], rows, columns)
            there = pixels[here]
            pixels[here] = (there * (SAMPLES**2 - share) + colour[:, None, None] * share) // SAMPLES**2
    return pixels


def _with_noise(pixels: Int[np.ndarray, "scenes size size 3"], layouts: Layouts) -> Int[
    np.ndarray, "scenes size size 3"
]:
    if not layouts.noise.any():
        return pixels
    grains = _grains(1 << 15, pixels[0].size)
    for number in np.flatnonzero(layouts.noise):
        grain = grains[layouts.grain[number] : layouts.grain[number] + pixels[0].size]
        pixels[number] += (grain * np.int16(layouts.noise[number]) >> 7).reshape(pixels[number].shape)
    return pixels.clip(0, 255)


@cache
def _grains(starts: int, length: int) -> Int[np.ndarray, " n"]:
    """From -64 to 63. Each image begins elsewhere in it."""
    return (mixed(np.arange(starts + length, dtype=np.uint64)) >> np.uint64(57)).astype(np.int16) - np.int16(64)
