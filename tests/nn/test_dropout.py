"""Dropout draws few numbers, and is dropout all the same."""

import math

import pytest
import torch

from regard.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(1)
    count = 1_000_003  # no multiple of four
    dropped = Dropout(p)(torch.ones(count))
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / count))
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(2)
    dropped = (Dropout(0.5)(torch.ones(400_000)) == 0).float() - 0.5
    for distance in (1, 2, 3, 4, 5, 8):
        assert (dropped[distance:] * dropped[:-distance]).mean().abs().item() < 0.25 * 5 / math.sqrt(400_000)


def test_the_gradient_passes_where_the_number_passed() -> None:
    x = torch.randn(50, 7, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, y)


def test_a_seed_drops_the_same_again() -> None:
    x = torch.ones(1000)
    torch.manual_seed(3)
    first = Dropout(0.2)(x)
    torch.manual_seed(3)
    assert torch.equal(first, Dropout(0.2)(x))


def test_nothing_is_dropped_outside_of_training() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
