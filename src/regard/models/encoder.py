"""Encoder: a text becomes states; each of them may depend on all tokens."""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.tower import blocks, input_positions, input_width, tokens
from regard.nn.block import norm
from regard.nn.dropout import Dropout
from regard.nn.embed import Segments
from regard.nn.mask import Mask, whole
from regard.nn.norm import Norm
from regard.settings.schema import Tower

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """Tokens to states, all at once (Vaswani et al. 2017, figure 1, left).

    BERT's adds a vector for each segment, and a norm of the sum (Devlin et al. 2019, figure 2). Recurrent blocks read
    one token after the other: they know the order without being told (`ordered`).
    """

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        super().__init__()
        self.window, self.width, width = tower.window, tower.width, input_width(tower)
        self.ordered = tower.recurrent is not None
        self.tokens = tokens(tower, vocabulary)
        self.positions = input_positions(tower)
        self.segments = Segments(tower.embedding.segments, width) if tower.embedding.segments else None
        self.input_norm = nn.Identity() if not tower.embedding.norm else Norm(
            width, kind=tower.norm, epsilon=tower.norm_epsilon, bias=tower.bias)
        self.dropout = Dropout(tower.dropout)
        self.widen = nn.Identity() if tower.embedding.width is None else nn.Linear(width, tower.width)
        self.blocks = blocks(tower, tower.depth, causal=False)
        # Post-norm blocks end in a norm of their own.
        self.norm = norm(tower) if tower.norm_place == "pre" and tower.recurrent is None else nn.Identity()

    def embed(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        here = whole(tokens.shape[1], tokens.device) if positions is None else positions
        x = self.positions.embed(self.tokens(tokens), here)
        if self.segments is not None:
            x = self.segments(x, segments)
        return self.widen(self.dropout(self.input_norm(x)))  # type: ignore[no-any-return]

    def forward(
        self, x: Float[Tensor, "batch length width"], *, mask: Mask = Mask(),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        mask = mask if self.window is None else replace(mask, window=self.window)
        for block in self.blocks:
            x = block(x, mask=mask, positions=positions)
        return self.norm(x)  # type: ignore[no-any-return]
