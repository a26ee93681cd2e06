"""The filters of a model are the principal components of the matrix that reads its patches."""

from typing import Any

import numpy as np
import pytest
import torch

from regard.look.filters import components, drawn, filters
from regard.models.build import image_encoder
from regard.settings.errors import UserError
from regard.settings.schema import Image, Run, Tower


def run_of(**image: Any) -> Run:
    tower = Tower(width=32, depth=1, heads=2, positions="learned", image=Image(size=16, patch=4, **image))
    return Run(task="classify", model=tower)


@pytest.mark.parametrize(("grey", "channels"), [(False, 3), (True, 1)])
def test_the_matrix_of_patches_is_cut_as_the_patches_are(grey: bool, channels: int) -> None:
    run = run_of(grey=grey)
    encoder = image_encoder(run.model)
    found = filters(encoder, run)
    assert found.shape == (32, channels, 4, 4)
    pixels = torch.randn(1, channels, 4, 4)
    wide = torch.zeros(1, channels, 16, 16)
    wide[..., :4, :4] = pixels
    matrix = encoder.inputs.patches
    torch.testing.assert_close(matrix(wide)[0, 0] - matrix.matrix.bias, (found * pixels).sum((1, 2, 3)))


def test_a_stem_of_convolutions_has_the_filters_of_its_first() -> None:
    run = run_of(stem="convolutions")
    assert filters(image_encoder(run.model), run).ndim == 4


def test_a_model_that_reads_text_has_none() -> None:
    with pytest.raises(UserError, match="reads no images"):
        filters(torch.nn.Linear(2, 2), Run(task="classify"))


def test_components_are_orthogonal_sorted_and_explain_the_matrix() -> None:
    draw = torch.Generator().manual_seed(0)
    found = torch.randn(50, 3, 4, 4, generator=draw) * torch.linspace(3, 0.1, 48).view(3, 4, 4)
    first, shares = components(found, 48)
    flat = first.reshape(48, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(48), atol=1e-9)
    assert (np.diff(shares) <= 1e-12).all()
    assert shares.sum() == pytest.approx(1)
    centred = (found - found.mean(0)).movedim(1, -1).flatten(1).double().numpy()
    np.testing.assert_allclose(((centred @ flat.T) ** 2).sum(0) / (centred**2).sum(), shares, atol=1e-9)
    assert (np.take_along_axis(flat, np.abs(flat).argmax(1)[:, None], 1) > 0).all()
    assert len(components(found)[0]) == 28


def test_the_components_of_a_matrix_of_one_filter_are_that_filter() -> None:
    pattern = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).expand(3, 2, 2)
    found = torch.linspace(-1, 2, 9).view(-1, 1, 1, 1) * pattern
    first, shares = components(found)
    assert shares[0] == pytest.approx(1)
    np.testing.assert_allclose(np.abs(first[0]), np.full((2, 2, 3), 12**-0.5), atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_each_component_is_drawn_from_black_to_white(channels: int) -> None:
    tones = np.zeros((9, 2, 2, channels))
    tones[:, 0, 0], tones[:, 1, 1] = -3.0, 5.0
    picture = np.asarray(drawn(tones))
    assert picture.shape == (2 * 70 + 6, 7 * 70 + 6, 3)
    assert picture[6, 6].tolist() == [0, 0, 0]
    assert picture[6 + 63, 6 + 63].tolist() == [255, 255, 255]
    assert picture[6 + 63, 6].tolist() == [96, 96, 96]  # 3/8 of the way
    assert (picture[80:, 2 * 70 + 6 :] == 255).all()  # there are only nine
