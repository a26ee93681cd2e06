"""ResNet: an image to a grid of features of convolutions (He et al. 2016)."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.inputs import Inputs
from regard.models.parts import grid_positions
from regard.nn.convolution import NARROWED, Convolution, ResidualBlock, pooled_half
from regard.nn.grid import PatchGrid
from regard.nn.mask import whole
from regard.settings.schema import Tower

__all__ = ["ResNet"]


class ResNet(Inputs):
    """Stages of residual blocks; each but the first halves the grid and doubles the channels (table 1).

    It is all that its encoder has: there are no blocks of attention over it. Positions are added to the last grid, if
    the tower has any: a decoder then knows where it looks. Four pixels of an image are one place of
    the first stage, by a convolution of 7 × 7 and a pooling; or one is, by a convolution of 3 × 3, for small images.
    """

    layout: PatchGrid

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        image = tower.image
        assert image is not None, "the size of the images is a setting"
        self.width = image.width or tower.width
        self.has_pooling = image.patch > 1
        widths = [self.width >> later for later in reversed(range(len(image.stages)))]
        x = widths[0] // NARROWED if image.bottleneck else widths[0]
        size, stride = (7, 2) if self.has_pooling else (3, 1)
        self.first = Convolution(1 if image.grey else 3, x, size=size, stride=stride, epsilon=tower.norm_epsilon)
        self.stages = nn.ModuleList()
        for number, (width, depth) in enumerate(zip(widths, image.stages, strict=True)):
            stage = list[nn.Module]()
            for place in range(depth):
                stage.append(ResidualBlock(x, width, stride=2 if number and not place else 1, early=image.early_stride,
                                           bottleneck=image.bottleneck, epsilon=tower.norm_epsilon))
                x = width
            self.stages.append(nn.Sequential(*stage))
        side = -(-image.size // (image.patch << len(image.stages) - 1))
        self.layout = PatchGrid(side, side)
        self.positions = grid_positions(replace(tower, width=self.width), self.layout)

    def forward(
        self, pixels: Float[Tensor, "batch channels height width"],
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch places features"]:
        """The cells of the last grid, row after row."""
        x = self.first(pixels.contiguous(memory_format=torch.channels_last)).relu()
        if self.has_pooling:
            x = pooled_half(x)
        for stage in self.stages:
            x = stage(x)
        x = x.flatten(2).mT
        return self.positions.embed(x, whole(x.shape[1], x.device) if positions is None else positions)
