"""Perturbed images: always the same for an image and a seed, of the same shape, and changed as the name says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from regard.data.images.perturb import PERTURBATIONS, perturb


def picture(seed: int, channels: int = 3, size: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (channels, size, size), dtype=np.uint8)


@given(some.integers(0, 10**6), some.sampled_from([1, 3]), some.integers(1, 20),
       some.sampled_from(sorted(PERTURBATIONS)))
def test_any_image_is_shifted_the_same_way_every_time(seed: int, channels: int, size: int, how: str) -> None:
    pixels = picture(seed, channels, size)
    found = perturb(pixels, how, seed=seed)
    assert (found == perturb(pixels.copy(), how, seed=seed)).all()
    assert found.shape == pixels.shape
    assert found.dtype == np.uint8


@pytest.mark.parametrize("how", ["noise", "colour"])
def test_another_seed_or_image_is_shifted_in_another_way(how: str) -> None:
    plain, other = np.full((3, 9, 9), 100, np.uint8), np.full((3, 9, 9), 101, np.uint8)
    changes = [perturb(each, how, seed=seed).astype(int) - each for each, seed in ((plain, 0), (plain, 1), (other, 0))]
    assert not (changes[0] == changes[1]).all()
    assert not (changes[0] == changes[2]).all()


def test_noise_has_the_spread_that_it_says() -> None:
    change = perturb(np.full((3, 64, 64), 128, np.uint8), "noise", seed=0).astype(float) - 128
    assert abs(change.mean()) < 1
    assert change.std() == pytest.approx(0.1 * 255, rel=0.05)


def test_a_blur_keeps_the_mean_and_flattens_edges() -> None:
    edge = np.zeros((1, 48, 48), np.uint8)
    edge[:, :, 24:] = 200
    found = perturb(edge, "blur", seed=0).astype(float)
    assert found.mean() == pytest.approx(100, abs=1)
    assert np.abs(np.diff(found, axis=2)).max() < 60
    flat = np.full((3, 20, 20), 77, np.uint8)
    assert (perturb(flat, "blur", seed=0) == flat).all()


def test_colour_keeps_grey_images_grey() -> None:
    grey = np.repeat(picture(0, channels=1), 3, axis=0)
    found = perturb(grey, "colour", seed=1)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert (found != grey).any()
