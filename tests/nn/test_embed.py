"""Patches: one matrix for all of them."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.embed import PatchEmbedding, patches
from regard.nn.init import initialize


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 3]))
def test_a_matrix_of_unfolded_patches_is_a_convolution_that_strides_by_a_patch(
        patch: int, height: int, width: int, channels: int) -> None:
    embedding = PatchEmbedding(patch, 5, channels=channels)
    initialize(embedding, seed=0)
    torch.nn.init.normal_(embedding.matrix.bias)
    pixels = torch.randn(2, channels, height * patch, width * patch)
    kernel = embedding.matrix.weight.view(5, channels, patch, patch)
    picture = F.conv2d(pixels, kernel, embedding.matrix.bias, stride=patch)
    torch.testing.assert_close(embedding(pixels), picture.flatten(2).mT, rtol=1e-4, atol=1e-5)


def test_the_patches_of_an_image_are_its_squares_row_after_row() -> None:
    pixels = torch.randn(2, 3, 6, 9)
    found = patches(pixels, 3)
    for place in range(6):
        row, column = divmod(place, 3)
        square = pixels[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        assert torch.equal(found[:, place], square.flatten(1))


def test_a_patch_of_16_by_16_pixels_in_three_colours_is_768_numbers() -> None:
    assert PatchEmbedding(16, 10).matrix.weight.shape == (10, 768)


def test_an_image_that_is_no_whole_number_of_patches_is_refused() -> None:
    with pytest.raises(RuntimeError):
        patches(torch.randn(1, 3, 8, 10), 4)
