"""Perturbed images: with noise, out of focus, or in other light."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, UInt8

__all__ = ["PERTURBATIONS", "perturb"]

NOISE = 0.1  # standard deviation, as a share of white: in the middle of ImageNet-C's range
BLUR = 1 / 24  # standard deviation, as a share of the height
COLOUR = 0.5  # brightness, contrast and saturation change by up to this share
GREY = np.array([0.299, 0.587, 0.114])  # of red, green and blue, by ITU-R BT.601

Pixels = Float[np.ndarray, "channels height width"]
"""From 0 to 1."""


def perturb(pixels: UInt8[np.ndarray, "channels height width"], how: str, *,
            seed: int) -> UInt8[np.ndarray, "channels height width"]:
    """The image, changed in one of the `PERTURBATIONS`. The random choices depend only on the pixels and the seed."""
    entropy = [seed, sorted(PERTURBATIONS).index(how), *pixels.astype(np.int64).sum((0, 2)).tolist()]
    found = PERTURBATIONS[how](pixels / 255, np.random.default_rng(entropy))
    return (255 * found.clip(0, 1)).round().astype(np.uint8)


def noise(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """Gaussian noise on each number."""
    return pixels + NOISE * random.standard_normal(pixels.shape)


def blur(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """The mean of the neighbours, weighted by a Gaussian."""
    spread = BLUR * pixels.shape[1]
    reach = math.ceil(3 * spread)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / spread) ** 2)
    weights /= weights.sum()
    for axis, length in ((1, pixels.shape[1]), (2, pixels.shape[2])):
        padded = np.pad(pixels, [(reach, reach) if side == axis else (0, 0) for side in range(3)], mode="edge")
        parts = (padded.take(range(start, start + length), axis) for start in range(2 * reach + 1))
        pixels = sum((weight * part for weight, part in zip(weights, parts, strict=True)), np.zeros(()))
    return pixels


def colour(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """Another brightness, contrast and saturation."""
    brightness, contrast, saturation = random.uniform(1 - COLOUR, 1 + COLOUR, 3)
    pixels = pixels * brightness
    pixels = pixels.mean() + contrast * (pixels - pixels.mean())
    grey = pixels.mean(0) if len(pixels) == 1 else np.tensordot(GREY, pixels, 1)
    changed: np.ndarray = grey + saturation * (pixels - grey)
    return changed


PERTURBATIONS: dict[str, Callable[[Pixels, np.random.Generator], Pixels]] = {
    "noise": noise, "blur": blur, "colour": colour}
