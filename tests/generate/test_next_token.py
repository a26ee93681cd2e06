"""A draw: the right tokens may come, each as often as it should, and a row for itself alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.generate.next_token import COLUMN, NUCLEUS, apply_top_k_top_p, draw, largest, pick

SIZES = st.sampled_from([1, 2, 7, COLUMN, 500, COLUMN * 70, COLUMN * 70 + 1, 5003])


def distribution(size: int, seed: int, *, rows: int = 3, sharpness: float = 2.0) -> Tensor:
    return (sharpness * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))).softmax(-1)


def kept(weights: Tensor, **rules: float) -> Tensor:
    """What may be drawn, by token."""
    return apply_top_k_top_p(weights, **rules) > 0  # type: ignore[arg-type]


def test_top_k_top_p_and_min_p_keep_the_likeliest_alone() -> None:
    weights = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    assert kept(weights, top_k=2).tolist() == [[False, True, False, True]]
    assert kept(weights, top_p=0.39).tolist() == [[False, True, False, False]]
    assert kept(weights, top_p=0.41).tolist() == [[False, True, False, True]]
    assert kept(weights, top_p=1e-9).tolist() == [[False, True, False, False]]
    assert kept(weights, min_p=0.6).tolist() == [[False, True, False, True]]
    assert kept(weights, min_p=1.0).tolist() == [[False, True, False, False]]
    assert kept(weights, top_k=9, top_p=1.0).all()
    assert kept(weights, top_k=2, top_p=0.5).tolist() == [[False, True, False, False]]  # 0.4 of the 0.7 that are left


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-20, 1e300])
def test_the_coldest_draw_is_the_likeliest_and_the_hottest_is_one_of_those_that_may_come(temperature: float) -> None:
    logits = torch.tensor([[-math.inf, 1.0, 30.0, -50.0, -math.inf]])
    found = draw(logits, torch.tensor([[0.9]], dtype=torch.float64), temperature=temperature)
    assert found.tokens.tolist() == ([2] if temperature < 1 else [3])
    assert found.log_probabilities.isfinite().all()


@pytest.mark.parametrize("sharpness", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.95])
def test_a_nucleus_is_what_sorting_all_finds_wherever_it_is_looked_for(sharpness: float, top_p: float) -> None:
    weights = distribution(4 * NUCLEUS, 0, sharpness=sharpness) + 1e-9 * torch.arange(4 * NUCLEUS)
    ordered, places = weights.double().sort(descending=True)
    inside = (ordered.cumsum(-1) - ordered < top_p).gather(1, places.argsort())
    doubtful = (kept(weights, top_p=top_p) != inside).sum(-1)
    assert doubtful.max() <= 1  # of float32, one token may stand right on the border


@settings(max_examples=50)
@given(size=SIZES, count=st.integers(1, 60), seed=st.integers(0, 99))
def test_the_largest_are_found_column_by_column(size: int, count: int, seed: int) -> None:
    numbers, count = distribution(size, seed), min(count, size)
    values, places = largest(numbers, count)
    expected = numbers.topk(count)
    assert torch.equal(values, expected.values)
    assert torch.equal(numbers.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())


@settings(max_examples=50)
@given(size=SIZES, seed=st.integers(0, 99), uniform=st.floats(0, 1 - 2**-24))
def test_a_pick_inverts_the_distribution_function(size: int, seed: int, uniform: float) -> None:
    weights = distribution(size, seed)
    weights[:, seed % size] = 0.0 if size > 1 else 1.0
    place = pick(weights, torch.full((3, 1), uniform, dtype=torch.float64))
    ends = weights.double().cumsum(-1)
    share = ends / ends[:, -1:]
    assert bool((share.gather(1, place) > uniform - 1e-12).all())
    assert bool((share.gather(1, place) - (weights.double() / ends[:, -1:]).gather(1, place) < uniform + 1e-12).all())
    assert bool((weights.gather(1, place) > 0).all())


@pytest.mark.parametrize("size", [6, COLUMN * 65 + 3])
def test_evenly_spread_numbers_draw_every_token_by_its_share(size: int) -> None:
    many = 20_000
    logits = 3 * torch.randn(1, size)
    logits[0, 0] = -math.inf
    uniform = (torch.arange(many, dtype=torch.float64)[:, None] + 0.5) / many
    seen = torch.bincount(draw(logits.expand(many, -1), uniform).tokens, minlength=size) / many
    assert (seen - logits[0].softmax(-1)).abs().max() < 2 / many
    assert seen[0] == 0


def test_a_row_draws_what_it_draws_alone() -> None:
    logits, uniform = torch.randn(8, 5000), torch.rand(8, 1, dtype=torch.float64)
    for rules in ({}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0.0},
                  {"temperature": 0.7, "top_k": 100, "top_p": 0.8, "min_p": 0.02}):
        together = draw(logits, uniform, **rules)  # type: ignore[arg-type]
        alone = [draw(logits[[row]], uniform[[row]], **rules) for row in range(8)]  # type: ignore[arg-type]
        assert together.tokens.tolist() == [int(each.tokens) for each in alone]


def test_a_cold_draw_is_the_likeliest_and_a_hot_one_anything() -> None:
    logits, uniform = torch.randn(50, 300), torch.rand(50, 1, dtype=torch.float64)
    assert torch.equal(draw(logits, uniform, temperature=1e-3).tokens, logits.argmax(-1))
    assert torch.equal(draw(logits, uniform, temperature=0).tokens, logits.argmax(-1))
    even = (uniform[:, 0] * 300).long()
    assert (draw(logits, uniform, temperature=1e6).tokens - even).abs().max() <= 1


def test_the_log_probability_is_the_models_own_whatever_the_rules() -> None:
    logits, uniform = torch.randn(20, 300), torch.rand(20, 1, dtype=torch.float64)
    tokens, chances = draw(logits, uniform, temperature=0.5, top_k=3)
    torch.testing.assert_close(chances, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0])
