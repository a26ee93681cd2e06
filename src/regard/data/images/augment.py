"""Random changes of training images, for a whole batch at once, on the device where it is.

Each change is a function of the seed of its row and of nothing else, so a resumed run makes the same ones. Only mixing
looks at another row: the next one in the batch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from regard.data.images.pixels import per_channel
from regard.data.images.seeds import MISSING, draws
from regard.settings.schema import Augment, Image

__all__ = ["Augmented", "augmented"]

FLIP, SHIFT, SHEAR, COLOUR, CUTOUT, MIX = range(6)  # kinds of random numbers
LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601), as in pillow's grey


class Augmented(NamedTuple):
    """Pixels from 0 to 1, not yet normalized; and how much of each image is its own and not its partner's."""

    pixels: Float[Tensor, "rows channels height width"]
    partners: Int[Tensor, " rows"]
    """The row that is mixed into each; without a mix the row itself. It also has the labels of the other part."""
    share: Float[Tensor, " rows"]
    """The weight of a row's own labels; that of its partner's is the rest."""


def augmented(pixels: UInt8[Tensor, "rows channels height width"], seeds: Int[Tensor, " rows"], *, how: Augment,
              image: Image) -> Augmented:
    """The batch as it is learned from. Where there is nothing to see, there is the mean colour."""
    mean = per_channel(image.mean, pixels)
    x = _moved(pixels, seeds, how, mean)
    if how.shear:
        x = _sheared(x, seeds, how.shear, mean)
    if how.colour:
        x = _coloured(x, seeds, how.colour)
    if how.cutout:
        side = torch.full((len(x),), how.cutout, device=x.device)
        x = torch.where(_box(draws(seeds, 2, kind=CUTOUT), side, side, x), mean, x)
    return _mixed(x, seeds, how)


def _moved(pixels: UInt8[Tensor, "rows channels height width"], seeds: Int[Tensor, " rows"], how: Augment,
           mean: Tensor) -> Float[Tensor, "rows channels height width"]:
    """Mirrored, then shifted."""
    if not how.flip and not how.crop:
        return pixels.float() / 255
    rows, channels, height, width = pixels.shape
    at = torch.arange(max(rows, channels, height, width), device=pixels.device)
    shift = (draws(seeds, 2, kind=SHIFT) * (2 * how.crop + 1)).long().clamp(max=2 * how.crop) - how.crop
    y, x = at[:height] + shift[:, :1], at[:width] + shift[:, 1:]
    is_inside = _within(y, height)[:, None, :, None] & _within(x, width)[:, None, None, :]
    if how.flip:
        x = torch.where(draws(seeds, 1, kind=FLIP) < 0.5, width - 1 - x, x)
    y, x = y.clamp(0, height - 1)[:, None, :, None], x.clamp(0, width - 1)[:, None, None, :]
    moved = pixels[at[:rows, None, None, None], at[:channels, None, None], y, x]
    return torch.where(is_inside, moved.float() / 255, mean)


def _within(places: Int[Tensor, "rows side"], size: int) -> Bool[Tensor, "rows side"]:
    return (places >= 0) & (places < size)


def _sheared(x: Float[Tensor, "rows channels height width"], seeds: Int[Tensor, " rows"], most: float,
             mean: Tensor) -> Float[Tensor, "rows channels height width"]:
    """Each row of pixels shifted by a share of its distance from the middle, and each column."""
    slant = (2 * draws(seeds, 2, kind=SHEAR) - 1) * most
    one, none = torch.ones_like(slant[:, 0]), torch.zeros_like(slant[:, 0])
    maps = torch.stack([one, slant[:, 0], none, slant[:, 1], one, none], dim=1).unflatten(1, (2, 3))
    grid = F.affine_grid(maps, list(x.shape), align_corners=False)
    return F.grid_sample(x - mean, grid, padding_mode="zeros", align_corners=False) + mean


def _coloured(x: Float[Tensor, "rows channels height width"], seeds: Int[Tensor, " rows"],
              most: float) -> Float[Tensor, "rows channels height width"]:
    factors: Tensor = 1 + most * (2 * draws(seeds, 3, kind=COLOUR) - 1)
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    x = x * brightness
    grey = _grey(x)
    x = grey + (x - grey) * saturation
    middle = grey.mean(dim=(1, 2, 3), keepdim=True)
    return (middle + (x - middle) * contrast).clamp(0, 1)


def _grey(x: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows 1 height width"]:
    return x if x.shape[1] == 1 else (x * per_channel(LUMA, x)).sum(dim=1, keepdim=True)


def _box(middle: Float[Tensor, "rows 2"], height: Int[Tensor, " rows"], width: Int[Tensor, " rows"],
         x: Float[Tensor, "rows channels height width"]) -> Bool[Tensor, "rows 1 height width"]:
    """The pixels inside of a box around a middle, which is from 0 to 1; what is outside of the image is cut off."""
    sides: list[Tensor] = []  # not `list[Tensor]()`, which the compiler does not trace
    for share, size, length in zip(middle.T, (height, width), x.shape[2:], strict=True):
        first = (share * length).long() - size // 2
        at = torch.arange(length, device=x.device)
        sides.append((at >= first[:, None]) & (at < (first + size)[:, None]))
    return sides[0][:, None, :, None] & sides[1][:, None, None, :]


# Mixing


def _mixed(x: Float[Tensor, "rows channels height width"], seeds: Int[Tensor, " rows"], how: Augment) -> Augmented:
    """Mixup (Zhang et al. 2018, section 2) or CutMix (Yun et al. 2019, eq. 1 and 2); with both on, either."""
    rows = torch.arange(len(x), device=x.device)
    if not how.mixup and not how.cutmix:
        return Augmented(x, rows, torch.ones_like(rows, dtype=x.dtype))
    is_there = seeds != MISSING
    partners = torch.where(is_there, (rows + 1) % is_there.sum().clamp(min=1), rows)  # empty rows are the last
    radius, angle, kind, *middle = draws(seeds, 5, kind=MIX).unbind(1)
    other = x[partners]
    blended, share = x, torch.ones_like(radius)
    if how.mixup:
        share = _beta(radius, angle, how.mixup)
        kept = share[:, None, None, None]
        blended = kept * x + (1 - kept) * other
    if how.cutmix:
        side = (1 - _beta(radius, angle, how.cutmix)).sqrt()
        height, width = ((side * length).round().long() for length in x.shape[2:])
        box = _box(torch.stack(middle, dim=1), height, width, x)
        cuts = (kind < 0.5)[:, None, None, None] if how.mixup else torch.ones_like(box[:, :1, :1, :1])
        blended = torch.where(cuts, torch.where(box, other, x), blended)
        share = torch.where(cuts.flatten(), 1 - box.flatten(1).to(x.dtype).mean(1), share)
    return Augmented(blended, partners, torch.where(is_there, share, 1.0))


def _beta(radius: Float[Tensor, " rows"], angle: Float[Tensor, " rows"], alpha: float) -> Float[Tensor, " rows"]:
    """Draws from Beta(α, α) out of two uniform numbers (Devroye 1996, after Bailey 1994).

    A formula, because a table of quantiles would have to come from the host, in each step of a CUDA graph.
    """
    rest, cosine = radius ** (1 / alpha), torch.cos(2 * torch.pi * angle)
    length = (rest + (1 - rest) * cosine.square()).clamp(min=1e-30).sqrt()
    return (0.5 + 0.5 * (1 - rest).sqrt() * cosine / length).clamp(0, 1)
