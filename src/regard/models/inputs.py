"""Inputs: token ids, or the pixels of images, become the vectors that the first block of an encoder reads."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.parts import grid_positions, input_positions, input_width, patch_grid, tokens
from regard.nn.convolution import ConvolutionStem
from regard.nn.dropout import Dropout
from regard.nn.embed import PatchEmbedding, Segments
from regard.nn.grid import PatchGrid
from regard.nn.mask import whole
from regard.nn.norm import Norm
from regard.settings.schema import Tower

__all__ = ["Inputs", "PatchInputs", "TokenInputs", "as_weights"]


def as_weights(inputs: Tensor, model: nn.Module) -> Tensor:
    """In the precision of a model's weights, as the rows of a table are; token ids stay as they are."""
    if not inputs.is_floating_point():
        return inputs
    return inputs.to(next((each for each in model.parameters() if each.is_floating_point()), inputs).dtype)


class Inputs(nn.Module):
    """The inputs of an encoder: a subclass makes vectors of them, in sequence."""

    width: int
    """Of its vectors."""
    layout: PatchGrid | None = None
    """Where its places lie, if they are not a line."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of its places."""
        assert self.layout is not None, "places in a line have no rows"
        return self.layout.height, self.layout.width

    @property
    def before(self) -> int:
        """The number of places before these, such as a class token."""
        return 0 if self.layout is None else self.layout.before

    def forward(
        self, inputs: Tensor, positions: Int[Tensor, "#batch length"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        raise NotImplementedError


class TokenInputs(Inputs):
    """The sum of a token's vector and its position's (Vaswani et al. 2017, 3.4 and 3.5).

    BERT's adds a vector for each segment, and a norm of the sum (Devlin et al. 2019, figure 2).
    """

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        super().__init__()
        self.width, width = tower.width, input_width(tower)
        self.tokens = tokens(tower, vocabulary)
        self.positions = input_positions(tower)
        self.segments = Segments(tower.embedding.segments, width) if tower.embedding.segments else None
        self.norm = _norm(tower)
        self.dropout = Dropout(tower.dropout)
        self.widen = nn.Identity() if tower.embedding.width is None else nn.Linear(width, tower.width)

    def forward(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        here = whole(tokens.shape[1], tokens.device) if positions is None else positions
        x = self.positions.embed(self.tokens(tokens), here)
        if self.segments is not None:
            x = self.segments(x, segments)
        return self.widen(self.dropout(self.norm(x)))  # type: ignore[no-any-return]


class PatchInputs(Inputs):
    """Patches of an image, a learned vector before them, and positions (Dosovitskiy et al. 2021, eq. 1).

    Its patches may overlap and be made by convolutions (Hassani et al. 2021, 3.3).
    CLIP's have a norm of the sum, and then no bias before it (as published with Radford et al. 2021).
    """

    layout: PatchGrid

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        image, self.width, width = tower.image, tower.width, input_width(tower)
        assert image is not None, "the size of the images is a setting"
        self.layout = patch_grid(image)
        narrow, channels = width - (tower.position_width or 0), 1 if image.grey else 3
        if image.stem == "convolutions":
            self.patches: nn.Module = ConvolutionStem(image.patch.bit_length() - 1, narrow, channels=channels)
        else:
            self.patches = PatchEmbedding(image.patch, narrow, channels=channels, bias=not tower.embedding.norm)
        self.class_token = nn.Parameter(torch.empty(narrow)) if image.class_token else None
        self.positions = grid_positions(tower, self.layout)
        self.norm = _norm(tower)
        self.dropout = Dropout(tower.dropout)
        self.widen = nn.Identity() if tower.embedding.width is None else nn.Linear(width, tower.width)

    def forward(
        self, pixels: Float[Tensor, "batch channels rows columns"],
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """Position 0 is the class token's, if there is one."""
        x = self.patches(pixels)
        if self.class_token is not None:
            x = torch.cat([self.class_token.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        here = whole(x.shape[1], x.device) if positions is None else positions
        return self.widen(self.dropout(self.norm(self.positions.embed(x, here))))  # type: ignore[no-any-return]


def _norm(tower: Tower) -> nn.Module:
    if not tower.embedding.norm:
        return nn.Identity()
    return Norm(input_width(tower), kind=tower.norm, epsilon=tower.norm_epsilon, bias=tower.bias)
