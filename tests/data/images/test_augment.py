"""Augmentation: functions of a row's seed, which keep what they must keep."""

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from regard.data.images.augment import Augmented, augmented
from regard.data.images.pixels import centred, normalized
from regard.data.images.seeds import MISSING, draws, seeds
from regard.settings.schema import Augment, Image

EVERY = {"flip": True, "crop": 2, "colour": 0.4, "shear": 0.2, "cutout": 3, "mixup": 0.5, "cutmix": 1.0}
ONE_BY_ONE = [Augment(**{name: value}) for name, value in EVERY.items()]  # type: ignore[arg-type]
RGB, GREY = Image(size=8, mean=(0.5, 0.4, 0.3)), Image(size=8, grey=True, mean=(0.25,))


def batch(rows: int = 6, channels: int = 3, *, height: int = 8, width: int = 8) -> torch.Tensor:
    numbers = np.random.default_rng(rows).integers(0, 256, (rows, channels, height, width), np.uint8)
    return torch.from_numpy(numbers)


def rows_of(count: int, *, seed: int = 0, epoch: int = 0) -> torch.Tensor:
    return torch.from_numpy(seeds(seed, epoch, np.arange(count)))


def changed(pixels: torch.Tensor, how: Augment, *, image: Image = RGB, at: torch.Tensor | None = None) -> Augmented:
    return augmented(pixels, rows_of(len(pixels)) if at is None else at, how=how, image=image)


def test_off_is_the_identity() -> None:
    found = changed(batch(), Augment())
    assert (found.pixels == batch().float() / 255).all()
    assert found.share.tolist() == [1] * 6
    assert found.partners.tolist() == list(range(6))


@pytest.mark.parametrize("how", [*ONE_BY_ONE, Augment(**EVERY)])  # type: ignore[arg-type]
@pytest.mark.parametrize(("channels", "image"), [(3, RGB), (1, GREY)])
def test_the_same_seeds_give_the_same_images_and_others_give_others(how: Augment, channels: int, image: Image) -> None:
    pixels = batch(32, channels)
    first, again = (changed(pixels, how, image=image) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert first.pixels.shape == pixels.shape
    assert not torch.equal(first.pixels, changed(pixels, how, image=image, at=rows_of(32, epoch=1)).pixels)
    assert not torch.equal(first.pixels, pixels.float() / 255)
    assert first.pixels.min() > -1e-6
    assert first.pixels.max() < 1 + 1e-6


@pytest.mark.parametrize("how", [how for how in ONE_BY_ONE if not how.mixup and not how.cutmix])
def test_a_row_changes_in_the_same_way_in_any_batch(how: Augment) -> None:
    pixels, at = batch(), rows_of(6)
    order = torch.tensor([4, 2, 5])
    assert torch.equal(changed(pixels, how).pixels[order], changed(pixels[order], how, at=at[order]).pixels)


def test_a_flipped_image_flipped_again_is_the_image() -> None:
    found = changed(batch(64), Augment(flip=True)).pixels
    plain = batch(64).float() / 255
    is_same, is_mirrored = ((found == other).flatten(1).all(1) for other in (plain, plain.flip(-1)))
    assert (is_same | is_mirrored).all()
    assert 16 < is_mirrored.sum() < 48
    again = changed((found * 255).round().to(torch.uint8), Augment(flip=True)).pixels
    assert torch.allclose(again, plain)


@given(st.integers(1, 12), st.integers(1, 3))
def test_a_shifted_image_has_its_pixels_elsewhere_and_the_mean_colour_around(most: int, rows: int) -> None:
    pixels = batch(rows)
    found = changed(pixels, Augment(crop=most)).pixels
    padded = torch.nn.functional.pad(pixels.float() / 255 - torch.tensor(RGB.mean)[:, None, None], [most] * 4)
    padded += torch.tensor(RGB.mean)[:, None, None]
    for row in range(rows):
        windows = padded[row].unfold(1, 8, 1).unfold(2, 8, 1)  # (3, places, places, 8, 8)
        is_window = (windows - found[row][:, None, None]).abs().amax(dim=(0, 3, 4)) < 1e-6
        assert is_window.any()


def test_every_shift_occurs() -> None:
    pixels = torch.zeros(300, 1, 5, 5, dtype=torch.uint8)
    pixels[:, :, 2, 2] = 255
    found = changed(pixels, Augment(crop=1), image=Image(size=5, grey=True, mean=(0.0,))).pixels
    places = {tuple(place.tolist()) for row in found for place in (row[0] > 0).nonzero()}
    assert places == {(y, x) for y in (1, 2, 3) for x in (1, 2, 3)}


def test_colour_keeps_grey_images_grey() -> None:
    grey = batch(6, 1).expand(-1, 3, -1, -1)
    found = changed(grey, Augment(colour=0.5)).pixels
    assert (found - found[:, :1]).abs().max() < 1e-5


def test_brightness_contrast_and_saturation_change_by_their_factors() -> None:
    """Of light, its deviation, and the deviation from grey; pixels in the middle of the range are not cut off."""
    pixels = 96 + batch() // 8
    found, plain, at = changed(pixels, Augment(colour=0.2)).pixels, pixels.float() / 255, rows_of(6)
    luma = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    light, before = ((x * luma).sum(1, keepdim=True) for x in (found, plain))
    brightness, contrast, saturation = (1 + 0.2 * (2 * draws(at, 3, kind=3) - 1)).T
    assert torch.allclose(light.mean((1, 2, 3)), brightness * before.mean((1, 2, 3)), atol=1e-4)
    assert torch.allclose(light.std((1, 2, 3)), brightness * contrast * before.std((1, 2, 3)), atol=1e-4)
    change = (brightness * contrast * saturation)[:, None, None, None]
    assert torch.allclose(found - light, change * (plain - before), atol=1e-4)


def test_a_shear_keeps_the_middle_of_an_image() -> None:
    pixels = batch(height=9, width=9)
    found = changed(pixels, Augment(shear=0.5)).pixels
    assert torch.allclose(found[:, :, 4, 4], pixels[:, :, 4, 4] / 255, atol=1e-5)


def test_cutout_replaces_a_square_by_the_mean_colour() -> None:
    pixels = torch.zeros(64, 3, 8, 8, dtype=torch.uint8)
    found = changed(pixels, Augment(cutout=3)).pixels
    is_cut = found[:, 0] > 0
    assert torch.allclose(found.transpose(0, 1)[:, is_cut], torch.tensor(RGB.mean)[:, None].expand(-1, is_cut.sum()))
    areas = is_cut.flatten(1).sum(1)
    assert set(areas.tolist()) <= {4, 6, 9}
    assert (areas == 9).any()
    rows, columns = is_cut.any(2), is_cut.any(1)
    assert (rows.sum(1) * columns.sum(1) == areas).all()  # it is a box


def test_mixup_adds_the_next_image_with_the_weight_of_its_labels() -> None:
    pixels = batch()
    found = changed(pixels, Augment(mixup=0.8))
    plain = pixels.float() / 255
    share = found.share[:, None, None, None]
    assert found.partners.tolist() == [1, 2, 3, 4, 5, 0]
    assert torch.allclose(found.pixels, share * plain + (1 - share) * plain[found.partners])
    assert ((found.share >= 0) & (found.share <= 1)).all()


def test_the_weights_of_cutmix_are_the_areas() -> None:
    pixels = torch.arange(32)[:, None, None, None].expand(-1, 3, 8, 8).to(torch.uint8)
    found = changed(pixels, Augment(cutmix=1.0))
    own = (found.pixels * 255).round()[:, 0] == torch.arange(32)[:, None, None]
    assert torch.allclose(own.float().mean(dim=(1, 2)), found.share)
    pasted = (found.pixels * 255).round()[:, 0] == found.partners[:, None, None]
    assert (own ^ pasted).all()
    assert len(found.share.unique()) > 5


def test_with_both_on_a_row_is_either_cut_or_blended() -> None:
    pixels = torch.arange(64)[:, None, None, None].expand(-1, 3, 8, 8).to(torch.uint8)
    both, cut, blended = (changed(pixels, Augment(**how)) for how in (  # type: ignore[arg-type]
        {"mixup": 0.5, "cutmix": 1.0}, {"cutmix": 1.0}, {"mixup": 0.5}))
    is_cut, is_blended = ((both.pixels == one.pixels).flatten(1).all(1) for one in (cut, blended))
    assert (is_cut | is_blended).all()
    assert 16 < is_cut.sum() < 48
    assert torch.equal(both.share, torch.where(is_cut, cut.share, blended.share))


def test_rows_without_an_example_are_mixed_with_nothing() -> None:
    at = rows_of(6)
    at[4:] = MISSING
    pixels = batch()
    pixels[4:] = 0
    for how in (Augment(mixup=1.0), Augment(cutmix=1.0)):
        found = changed(pixels, how, at=at)
        assert found.partners.tolist() == [1, 2, 3, 0, 4, 5]
        assert found.share[4:].tolist() == [1, 1]
    assert changed(pixels, Augment(mixup=1.0), at=torch.full((6,), MISSING)).partners.tolist() == list(range(6))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.8, 1.0, 2.0, 8.0])
def test_mixing_weights_have_the_moments_of_the_beta_distribution(alpha: float) -> None:
    share = changed(torch.zeros(20_000, 1, 1, 1, dtype=torch.uint8), Augment(mixup=alpha), image=GREY).share.double()
    assert abs(share.mean() - 0.5) < 0.01
    assert abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 0.005
    fourth = 3 * (1 / (2 * alpha + 1)) / (16 * (2 * alpha + 3))
    assert abs((share - 0.5).pow(4).mean() - fourth) < 0.002


class OnDevice(TorchDispatchMode):
    """Refuses numbers from Python, and numbers for it: a CUDA graph has neither."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(name in str(operation) for name in ("lift_fresh", "_local_scalar_dense", "nonzero")), operation
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_batch_is_augmented_and_normalized_without_the_host(device: str) -> None:
    for image in (RGB, Image(size=8, std=(0.1, 0.2, 0.3))):
        pixels, at = batch().to(device), rows_of(6).to(device)
        with OnDevice():
            found = changed(pixels, Augment(**EVERY), image=image, at=at)  # type: ignore[arg-type]
            assert centred(found.pixels, image).shape == normalized(pixels, image).shape == (6, 3, 8, 8)


@pytest.mark.slow
def test_the_compiler_traces_a_whole_augmentation() -> None:
    """Outside of the tests' checks of shapes, which it does not trace."""
    source = """
import torch
from regard.data.images.augment import augmented
from regard.settings.schema import Augment, Image
how = Augment(flip=True, crop=2, colour=0.4, shear=0.2, cutout=3, mixup=0.5, cutmix=1.0)
def whole(pixels, seeds):
    return augmented(pixels, seeds, how=how, image=Image(size=8))
traced = torch.compile(whole, backend="eager", fullgraph=True, dynamic=False)
given = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8), torch.arange(6)
assert all(map(torch.equal, traced(*given), whole(*given)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-W", "error", "-c", source], env=environment, capture_output=True, text=True,
                         check=False)
    assert not run.returncode, run.stderr


def test_draws_are_uniform_and_independent_of_their_kind_and_place() -> None:
    at = rows_of(5_000)
    columns = torch.cat([draws(at, 2, kind=kind) for kind in (0, 1)], dim=1)
    assert ((columns >= 0) & (columns < 1)).all()
    assert (columns.mean(0) - 0.5).abs().max() < 0.02
    assert (columns.var(0) - 1 / 12).abs().max() < 0.005
    assert (torch.corrcoef(columns.T) - torch.eye(4)).abs().max() < 0.05


def test_seeds_of_neighbours_differ_in_half_of_their_bits() -> None:
    numbers = [seeds(3, epoch, np.arange(200)) for epoch in range(3)]
    flips = [bin(int(one) ^ int(other)).count("1") for its in numbers for one, other in pairwise(its)]
    assert 15 < np.mean(flips) < 17
    assert len(np.unique(np.concatenate(numbers))) == 600


def test_no_two_examples_of_an_epoch_have_the_same_seed() -> None:
    assert len(np.unique(seeds(3, 1, np.arange(1 << 20)))) == 1 << 20


def test_normalized_pixels_have_the_mean_and_deviation_taken_out() -> None:
    image = Image(size=8, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.5))
    found = normalized(batch(), image)
    assert torch.allclose(found[:, 2], (batch()[:, 2].double() / 255 - 0.3).float() / 0.5, atol=1e-6)
    assert torch.equal(normalized(batch(), Image(size=8)), (batch() / 255 - 0.5) / 0.5)
