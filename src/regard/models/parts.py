"""The parts of every model, built from the `Tower` settings."""

from dataclasses import replace

from torch import nn

from regard.models.recurrent_layer import Recurrent
from regard.nn.block import Block, PostNormBlock
from regard.nn.embed import TokenEmbedding
from regard.nn.grid import GridAlibi, GridRelativeBias, GridRotary, GridTable, PatchGrid
from regard.nn.positions import Alibi, Fourier, Learned, Positions, RelativeBias, Rotary, Sinusoidal
from regard.settings.schema import Image, Tower

__all__ = ["blocks", "grid_positions", "input_positions", "input_width", "patch_grid", "tokens"]


def tokens(tower: Tower, vocabulary: int) -> TokenEmbedding:
    """Token vectors, narrower than the tower where a position is concatenated to them."""
    return TokenEmbedding(vocabulary, input_width(tower) - (tower.position_width or 0), scaled=tower.embedding.scaled)


def input_width(tower: Tower) -> int:
    """Of the sum of tokens and positions, before it is widened for the blocks."""
    return tower.embedding.width or tower.width


def input_positions(tower: Tower) -> Positions:
    """The positions that act once, on the input. Recurrent blocks know the order without them."""
    if tower.recurrent is not None:
        return Positions()
    size, concatenate = tower.position_width or input_width(tower), tower.position_width is not None
    match tower.positions:
        case "sinusoidal":
            return Sinusoidal(size, base=tower.position_base, concatenate=concatenate)
        case "fourier":
            return Fourier(size, longest=tower.max_positions, concatenate=concatenate)
        case "learned":
            return Learned(size, longest=tower.max_positions, concatenate=concatenate)
        case _:
            return Positions()


def patch_grid(image: Image) -> PatchGrid:
    """The places of the patches of an image."""
    side = image.size // image.patch
    return PatchGrid(side, side, before=int(image.class_token))


def grid_positions(tower: Tower, grid: PatchGrid) -> Positions:
    """The positions of patches that act once, on the input. A learned table has a vector for each place (ViT's)."""
    size, concatenate = tower.position_width or input_width(tower), tower.position_width is not None
    match tower.positions:
        case "sinusoidal":
            axis = Sinusoidal(size // 2, base=tower.position_base)
            return GridTable(grid, rows=axis, columns=axis, concatenate=concatenate)
        case "fourier":
            waves = Fourier(size // 2, longest=max(grid.height, grid.width))
            return GridTable(grid, rows=waves, columns=waves, concatenate=concatenate)
        case "learned":
            return Learned(size, longest=grid.places, concatenate=concatenate)
        case _:
            return Positions()


def blocks(tower: Tower, depth: int, *, causal: bool, memory_width: int | None = None,
           inputs: int | None = None, grid: PatchGrid | None = None) -> nn.ModuleList:
    """`depth` blocks, with the positions that act inside each attention; or layers of a recurrent cell.

    The first of these may have `inputs` of another width. Causal ones read forward. Places may lie on a `grid`.
    """
    if (recurrent := tower.recurrent) is not None:
        direction = "forward" if causal else recurrent.direction
        return nn.ModuleList(
            Recurrent(recurrent.cell, tower.width, inputs=None if place else inputs, direction=direction,
                      dropout=tower.dropout) for place in range(depth))

    def inner() -> Positions:
        if grid is not None:
            return on_grid(grid)
        match tower.positions:
            case "rotary":
                return Rotary(max(tower.widths_of_heads), base=tower.position_base)
            case "relative":
                return RelativeBias(tower.heads, causal=causal)
            case "alibi":
                return Alibi(tower.heads)
            case _:
                return Positions()

    def on_grid(grid: PatchGrid) -> Positions:
        match tower.positions:
            case "rotary":
                return GridRotary(grid, max(tower.widths_of_heads), base=tower.position_base)
            case "relative":
                return GridRelativeBias(grid, tower.heads)
            case "alibi":
                return GridAlibi(grid, tower.heads)
            case _:
                return Positions()

    if grid is None:  # only blocks over an image have it
        tower = replace(tower, layer_scale=None)
    kind = PostNormBlock if tower.norm_place == "post" else Block
    return nn.ModuleList(kind(tower, positions=inner(), memory_width=memory_width) for _ in range(depth))
