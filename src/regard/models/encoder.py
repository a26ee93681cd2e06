"""Encoder: inputs become states; each of them may depend on all the others."""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.inputs import Inputs, as_weights
from regard.models.parts import blocks
from regard.nn.attention import Memory
from regard.nn.block import norm
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """Vectors to states, all at once (Vaswani et al. 2017, figure 1, left).

    It does not know what it reads: `inputs` makes vectors of tokens, or of anything else that comes in sequence or on a
    grid.
    Recurrent blocks read one place after the other: they know the order without being told (`ordered`).
    """

    def __init__(self, tower: Tower, inputs: Inputs, *, depth: int | None = None) -> None:
        super().__init__()
        depth = tower.depth if depth is None else depth
        self.window, self.width, self.ordered = tower.window, inputs.width, tower.recurrent is not None
        self.inputs, self.before = inputs, inputs.before
        self.blocks = blocks(tower, depth, causal=False, grid=inputs.layout)
        # Post-norm blocks end in a norm of their own.
        has_norm = depth > 0 and tower.norm_place == "pre" and tower.recurrent is None
        self.norm = norm(tower) if has_norm else nn.Identity()

    def embed(
        self, inputs: Tensor, positions: Int[Tensor, "#batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """The vectors that the blocks read. Only tokens have segments."""
        more = () if segments is None else (segments,)
        return self.inputs(as_weights(inputs, self), positions, *more)  # type: ignore[no-any-return]

    def forward(
        self, x: Float[Tensor, "batch length width"], *, mask: Mask = Mask(),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        mask = mask if self.window is None else replace(mask, window=self.window)
        for block in self.blocks:
            x = block(x, mask=mask, positions=positions)
        return self.norm(x)  # type: ignore[no-any-return]

    def memory(self, x: Float[Tensor, "batch length width"], *, mask: Mask = Mask()) -> Memory:
        """All states, for a decoder to look at.

        A window or the like is about the source's own positions: the target's are others.
        """
        return Memory(self(x, mask=mask), Mask(keys=mask.keys))
