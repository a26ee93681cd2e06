"""From the bytes of pixels to the numbers that a model reads."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.settings.schema import Image

__all__ = ["centred", "filled", "normalized", "per_channel"]


def filled(pixels: UInt8[np.ndarray, "there channels size size"],
           rows: int) -> UInt8[Tensor, "rows channels size size"]:
    """The rows of a batch. Missing ones repeat the others: a batch norm sees them, and black ones would shift its
    statistics.
    """
    there, every = len(pixels), torch.from_numpy(np.ascontiguousarray(pixels))
    if there == rows:
        return every
    return every[torch.arange(rows) % there] if there else every.new_zeros(rows, *pixels.shape[1:])


def normalized(pixels: UInt8[Tensor, "rows channels height width"],
               image: Image) -> Float[Tensor, "rows channels height width"]:
    """(pixel / 255 − mean) / std, as in the image processors of published weights."""
    return centred(pixels.float() / 255, image)


def centred(shares: Float[Tensor, "rows channels height width"],
            image: Image) -> Float[Tensor, "rows channels height width"]:
    """The same for pixels from 0 to 1."""
    return (shares - per_channel(image.mean, shares)) / per_channel(image.std, shares)


def per_channel(numbers: tuple[float, ...], like: Tensor) -> Float[Tensor, "#channels 1 1"]:
    """One number for all channels, or one for each."""
    # Not from a list: a CUDA graph cannot hold a copy from memory that is not pinned.
    return torch.stack([torch.full((1, 1), number, dtype=torch.float32, device=like.device) for number in numbers])
