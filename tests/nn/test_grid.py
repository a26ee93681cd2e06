"""How a model knows the rows and columns of an image."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.grid import GridAlibi, GridRelativeBias, GridRotary, GridTable, PatchGrid, interpolated
from regard.nn.positions import Fourier, PositionTable, Sinusoidal

sides = st.integers(1, 6)
grids = st.builds(PatchGrid, sides, sides, before=st.integers(0, 1))


def places(grid: PatchGrid) -> Tensor:
    return torch.arange(grid.places)[None]


def cells(grid: PatchGrid) -> list[tuple[int, int]]:
    return [*[(0, 0)] * grid.before, *product(range(grid.height), range(grid.width))]


@given(grids)
def test_places_are_read_row_after_row(grid: PatchGrid) -> None:
    rows, columns = grid.cells(places(grid))
    assert list(zip(rows[0].tolist(), columns[0].tolist(), strict=True)) == cells(grid)


@given(grids, st.integers(1, 4))
def test_half_of_a_patch_s_numbers_are_its_row_s_and_half_its_column_s(grid: PatchGrid, quarter: int) -> None:
    size = 4 * quarter
    axis = Sinusoidal(size // 2)
    found = GridTable(grid, rows=axis, columns=axis).vectors(places(grid))[0]
    for place, (row, column) in enumerate(cells(grid)):
        loop = [f(number / 10_000 ** (4 * j / size)) for number in (row, column) for j in range(quarter)
                for f in (math.sin, math.cos)]
        expected = [0.0] * size if place < grid.before else loop
        assert found[place].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("axis", [Sinusoidal(8), Fourier(8, longest=5)])
def test_no_two_patches_have_the_same_vector(axis: PositionTable) -> None:
    found = GridTable(PatchGrid(4, 5), rows=axis, columns=axis).vectors(torch.arange(20)[None])[0]
    distance = (found[:, None] - found).norm(dim=-1) + torch.eye(20)
    assert distance.min() > 1e-3


@given(grids, st.data())
def test_a_rotary_score_depends_on_the_offset_in_rows_and_columns(grid: PatchGrid, data: st.DataObject) -> None:
    rotary, q, k = GridRotary(grid, 16), torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(query: tuple[int, int], key: tuple[int, int]) -> Tensor:
        i, j = (torch.tensor([[grid.before + row * grid.width + column]]) for row, column in (query, key))
        return rotary.rotate(q, i) @ rotary.rotate(k, j).mT

    row, other_row = (data.draw(st.integers(0, grid.height - 1)) for _ in range(2))
    column, other_column = (data.draw(st.integers(0, grid.width - 1)) for _ in range(2))
    down = data.draw(st.integers(-min(row, other_row), grid.height - 1 - max(row, other_row)))
    right = data.draw(st.integers(-min(column, other_column), grid.width - 1 - max(column, other_column)))
    here = score((row, column), (other_row, other_column))
    torch.testing.assert_close(here, score((row + down, column + right), (other_row + down, other_column + right)),
                               rtol=1e-4, atol=1e-4)


def test_a_rotary_head_turns_one_half_with_the_row_and_one_with_the_column() -> None:
    grid, x = PatchGrid(3, 4, before=1), torch.randn(1, 1, 1, 8)
    rotary = GridRotary(grid, 8)
    turned = rotary.rotate(x, torch.tensor([[1 + 2 * 4 + 3]]))[0, 0, 0]  # row 2, column 3
    for half, number in ((0, 2), (4, 3)):
        for j in range(2):
            angle = torch.tensor(number / 10_000 ** (2 * j / 4))
            plane = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
            pair = [half + j, half + j + 2]
            torch.testing.assert_close(turned[pair], plane @ x[0, 0, 0, pair])
    assert torch.equal(rotary.rotate(x, torch.tensor([[0]])), x)


@given(grids)
def test_a_relative_bias_is_one_number_per_offset_and_three_for_a_class_token(grid: PatchGrid) -> None:
    index = GridRelativeBias(grid, 2).index(places(grid), places(grid))[0]
    seen: dict[object, int] = {}
    for query, key in product(range(grid.places), repeat=2):
        (row, column), (key_row, key_column) = cells(grid)[query], cells(grid)[key]
        is_outside = query < grid.before, key < grid.before
        offset: object = str(is_outside) if any(is_outside) else (key_row - row, key_column - column)
        assert seen.setdefault(offset, int(index[query, key])) == index[query, key]
    assert len(set(seen.values())) == len(seen)
    assert max(seen.values()) < len(GridRelativeBias(grid, 2).table)
    assert min(seen.values()) >= 0


def test_a_penalty_grows_with_the_straight_line_between_two_patches() -> None:
    grid = PatchGrid(4, 5, before=1)
    bias = GridAlibi(grid, 2).bias()(places(grid), places(grid))
    for slope, head in zip(GridAlibi(grid, 2).slopes.tolist(), bias[0], strict=True):
        for query, key in product(range(grid.places), repeat=2):
            (row, column), (key_row, key_column) = cells(grid)[query], cells(grid)[key]
            distance = math.dist((row, column), (key_row, key_column)) if query and key else 0.0
            assert head[query, key].item() == pytest.approx(-slope * distance)


def test_a_table_for_other_images_is_the_bicubic_picture_of_the_old_one() -> None:
    old, new = PatchGrid(3, 4, before=1), PatchGrid(6, 5, before=1)
    table = torch.randn(old.places, 7)
    found = interpolated(table, old, new)
    assert torch.equal(found[0], table[0])
    for feature in range(7):
        picture = table[1:, feature].view(1, 1, 3, 4)
        expected = F.interpolate(picture, (6, 5), mode="bicubic", align_corners=False)
        torch.testing.assert_close(found[1:, feature].view(6, 5), expected[0, 0])


def test_a_table_that_is_the_same_everywhere_stays_the_same_at_any_size() -> None:
    table = torch.randn(1, 5).expand(16, -1)
    torch.testing.assert_close(interpolated(table, PatchGrid(4, 4), PatchGrid(7, 3)), table[:1].expand(21, -1))
    assert interpolated(table, PatchGrid(4, 4), PatchGrid(4, 4)) is table
