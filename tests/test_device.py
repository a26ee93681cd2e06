"""Memory of a CPU that has been set up is memory as any other."""

import pytest
import torch

from regard.device import LARGE, choose_device, large_pages


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, 3 * LARGE, 64 * LARGE, 1 << 60], ids=str)
def test_a_wish_for_large_pages_changes_nothing_but_the_pages(size: int) -> None:
    choose_device("cpu")
    before = torch.arange(1 << 20)
    large_pages(size)
    after = torch.arange(1 << 20)
    assert torch.equal(before, after)
    assert int(after.sum()) == (1 << 19) * ((1 << 20) - 1)
