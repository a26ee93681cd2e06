"""The filters by which a model sees an image: the principal components of the matrix that reads its patches.

As in Dosovitskiy et al. 2021, figure 7, left. The first convolution of a convolutional stem is read in the same way.
"""

from math import isqrt

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["SHOWN", "components", "drawn", "filters"]

SHOWN = 28  # as in the paper
ACROSS = 7
SIDE, GAP = 64, 6  # pixels of a filter in the drawing, and between two
PAPER = 255


def filters(model: nn.Module, run: Run) -> Float[Tensor, "features channels size size"]:
    """The first matrix of a model that reads images: what each of its features looks for in a patch."""
    if (image := run.model.image) is not None:
        channels = 1 if image.grey else 3
        for name, weight in model.named_parameters():
            if weight.ndim == 4:
                return weight.detach()
            if name.endswith("patches.matrix.weight"):
                size = isqrt(weight.shape[1] // channels)
                return weight.detach().unflatten(1, (channels, size, size))  # type: ignore[no-any-return]
    raise UserError(f"--filters: a run of {run.task} that reads no images has no filters")


def components(found: Float[Tensor, "features channels size size"], count: int = SHOWN) -> tuple[
        Float[np.ndarray, "components size size channels"], Float[np.ndarray, " components"]]:
    """The first principal components over the features, and the share of the variance that each explains.

    The largest number of each is positive: a component has no sign of its own.
    """
    rows = found.float().cpu().flatten(1).double()
    _, values, directions = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    first = directions[:count]
    first = first * first.gather(1, first.abs().argmax(1, keepdim=True)).sign()
    shares = values.square() / values.square().sum().clamp(min=torch.finfo(values.dtype).tiny)
    shaped = first.unflatten(1, found.shape[1:]).movedim(1, -1)  # (components, size, size, channels)
    return shaped.numpy(), shares[:count].numpy()


def drawn(first: Float[np.ndarray, "components size size channels"]) -> Image.Image:
    """Each component as a small picture, from its lowest number in black to its highest in white."""
    low, high = first.min((1, 2, 3), keepdims=True), first.max((1, 2, 3), keepdims=True)
    tones = np.rint(255 * (first - low) / np.maximum(high - low, 1e-12)).astype(np.uint8)
    rows = -(-len(tones) // ACROSS)
    step = SIDE + GAP
    whole = Image.new("RGB", (min(len(tones), ACROSS) * step + GAP, rows * step + GAP), (PAPER,) * 3)
    for place, each in enumerate(tones):
        tile = Image.fromarray(each.squeeze(-1) if each.shape[-1] == 1 else each).convert("RGB")
        row, column = divmod(place, ACROSS)
        whole.paste(tile.resize((SIDE, SIDE), Image.Resampling.NEAREST), (GAP + column * step, GAP + row * step))
    return whole
