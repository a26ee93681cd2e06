"""Position encodings of an image: its patches have a row and a column.

Each is the encoding of a line, twice: half of the numbers for the row, half for the column. Places before the patches,
such as a class token, have neither: they count as row 0 and column 0, and a sum of theirs adds nothing.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attend import Bias
from regard.nn.positions import Alibi, Positions, PositionTable, Rotary

__all__ = ["GridAlibi", "GridRelativeBias", "GridRotary", "GridTable", "PatchGrid", "interpolated"]


@dataclass(frozen=True)
class PatchGrid:
    """Patches, row after row, and the number of places before them.

    >>> rows, columns = PatchGrid(2, 3, before=1).cells(torch.arange(7)[None])
    >>> rows, columns
    (tensor([[0, 0, 0, 0, 1, 1, 1]]), tensor([[0, 0, 1, 2, 0, 1, 2]]))
    """

    height: int
    width: int
    before: int = 0

    @property
    def places(self) -> int:
        return self.before + self.height * self.width

    def cells(self, places: Int[Tensor, "#batch length"]) -> tuple[Tensor, Tensor]:
        """The row and the column of each place."""
        patches = (places - self.before).clamp(min=0)
        return patches // self.width, patches % self.width


class GridTable(PositionTable):
    """The vector of the row and that of the column, side by side (Dosovitskiy et al. 2021, D.4).

    Of sinusoidal axes it is sin and cos of row / C^(4j/D), then of column / C^(4j/D), j < D/4.
    """

    def __init__(self, grid: PatchGrid, *, rows: PositionTable, columns: PositionTable,
                 concatenate: bool = False) -> None:
        super().__init__(rows.size + columns.size, concatenate=concatenate)
        self.grid, self.rows, self.columns = grid, rows, columns

    def vectors(self, positions: Int[Tensor, "#batch length"]) -> Float[Tensor, "#batch length size"]:
        rows, columns = self.grid.cells(positions)
        both = torch.cat([self.rows.vectors(rows), self.columns.vectors(columns)], dim=-1)
        return both * (positions >= self.grid.before)[..., None]


class GridRotary(Positions):
    """Half of a head's numbers turn with the row, half with the column (Heo et al. 2024, 3.2, "axial").

    The class token does not turn.
    """

    def __init__(self, grid: PatchGrid, head: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        self.grid, self.axis = grid, Rotary(head // 2, base=base)

    def rotate(
        self, x: Float[Tensor, "batch heads length head"], positions: Int[Tensor, "#batch length"]
    ) -> Float[Tensor, "batch heads length head"]:
        (rows, columns), (first, second) = self.grid.cells(positions), x.chunk(2, dim=-1)
        return torch.cat([self.axis.rotate(first, rows), self.axis.rotate(second, columns)], dim=-1)


class GridRelativeBias(Positions):
    """A learned number per head and offset in rows and columns (Liu et al. 2021, 3.2, eq. 4: B).

    Three more are for a place before the patches: as the query, as the key, as both (as published with BEiT).
    """

    def __init__(self, grid: PatchGrid, heads: int) -> None:
        super().__init__()
        self.grid = grid
        self.offsets = (2 * grid.height - 1) * (2 * grid.width - 1)
        self.table = nn.Parameter(torch.empty(self.offsets + (3 if grid.before else 0), heads))

    def bias(self) -> Bias:
        return lambda queries, keys: self.table[self.index(queries, keys)].movedim(-1, 1)

    def index(
        self, queries: Int[Tensor, "#batch queries"], keys: Int[Tensor, "#batch keys"]
    ) -> Int[Tensor, "#batch queries keys"]:
        """The row of the table for each query and key."""
        height, width = self.grid.height, self.grid.width
        rows, columns = (keys[:, None, :] - queries[:, :, None] for queries, keys in zip(
            self.grid.cells(queries), self.grid.cells(keys), strict=True))
        # Beyond the grid there is only padding.
        rows, columns = rows.clamp(1 - height, height - 1), columns.clamp(1 - width, width - 1)
        offset = (rows + height - 1) * (2 * width - 1) + columns + width - 1
        asks, is_asked = (queries < self.grid.before)[:, :, None], (keys < self.grid.before)[:, None, :]
        return torch.where(asks | is_asked, self.offsets - 1 + asks + 2 * is_asked.long(), offset)


class GridAlibi(Alibi):
    """A fixed penalty per step of the straight line between two patches (Fuller et al. 2023, 3.1)."""

    def __init__(self, grid: PatchGrid, heads: int) -> None:
        super().__init__(heads)
        self.grid = grid

    def bias(self) -> Bias:
        return lambda queries, keys: -self.distance(queries, keys)[:, None] * self.slopes[:, None, None]

    def distance(
        self, queries: Int[Tensor, "#batch queries"], keys: Int[Tensor, "#batch keys"]
    ) -> Float[Tensor, "#batch queries keys"]:
        """A class token is near to all."""
        rows, columns = (keys[:, None, :] - queries[:, :, None] for queries, keys in zip(
            self.grid.cells(queries), self.grid.cells(keys), strict=True))
        before = (queries < self.grid.before)[:, :, None] | (keys < self.grid.before)[:, None, :]
        return (rows.square() + columns.square()).float().sqrt() * ~before


def interpolated(
    table: Float[Tensor, "places width"], old: PatchGrid, new: PatchGrid
) -> Float[Tensor, "others width"]:
    """A learned table for images of another size (Dosovitskiy et al. 2021, 3.2), bicubic, as published with DINOv2.

    The places before the patches keep their vectors.
    """
    before, patches = table[: old.before], table[old.before :]
    if (old.height, old.width) == (new.height, new.width):
        return table
    image = patches.T.unflatten(-1, (old.height, old.width))[None]
    image = F.interpolate(image, size=(new.height, new.width), mode="bicubic", align_corners=False)
    return torch.cat([before, image[0].flatten(1).T])
