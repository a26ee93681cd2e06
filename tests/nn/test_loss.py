"""The loss in pieces is the loss."""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.kernels.cross_entropy_chunked import MAX_CHUNK_LOGITS
from regard.kernels.kernel import log_kernels
from regard.nn.loss import cross_entropy

IGNORE = 0


def in_pieces(states: Tensor, weight: Tensor, targets: Tensor, *, piece: int, **options: Any) -> tuple[Tensor, Tensor]:
    """With so many logits at a time."""
    with mock.patch.dict(MAX_CHUNK_LOGITS, cpu=piece, cuda=piece), log_kernels() as log:
        found = cross_entropy(states, weight, targets, **options)
    assert log == ["cross_entropy.in_pieces"]
    return found


rows = st.integers(1, 20)
vocabularies = st.integers(2, 30)
smoothings = st.sampled_from([0.0, 0.1, 0.5])


def problem(rows: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    states, weight = torch.randn(rows, 6), torch.randn(vocabulary, 6)
    return states.requires_grad_(), weight.requires_grad_(), torch.randint(0, vocabulary, (rows,))


def whole(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = states @ weight.T
    return F.cross_entropy(logits, targets, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")


@settings(max_examples=200)
@given(rows, vocabularies, smoothings, st.integers(1, 700), st.floats(-2, 2))
def test_the_loss_in_pieces_is_the_loss_at_once_in_value_and_gradient(
        rows: int, vocabulary: int, smoothing: float, piece: int, factor: float) -> None:
    states, weight, targets = problem(rows, vocabulary)
    loss, _ = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=smoothing, piece=piece)
    expected = whole(states, weight, targets, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    ours = torch.autograd.grad(factor * loss, (states, weight))
    theirs = torch.autograd.grad(factor * expected, (states, weight))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=200)
@given(rows, vocabularies, smoothings, st.integers(1, 700), st.floats(-2, 2))
def test_a_bias_of_the_logits_has_its_gradient_beside_the_others(
        rows: int, vocabulary: int, smoothing: float, piece: int, factor: float) -> None:
    states, weight, targets = problem(rows, vocabulary)
    bias = torch.randn(vocabulary, requires_grad=True)
    loss, plain = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=smoothing, piece=piece, bias=bias)
    expected, bare = (F.cross_entropy(states @ weight.T + bias, targets, ignore_index=IGNORE, label_smoothing=amount,
                                      reduction="sum") for amount in (smoothing, 0.0))
    torch.testing.assert_close((loss, plain), (expected, bare.detach()), rtol=1e-5, atol=1e-5)
    ours = torch.autograd.grad(factor * loss, (states, weight, bias))
    theirs = torch.autograd.grad(factor * expected, (states, weight, bias))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_bias_may_be_all_that_learns_and_keeps_its_kind_under_autocast() -> None:
    states, weight, targets = (part.detach() for part in problem(20, 30))
    bias = torch.randn(30, requires_grad=True)
    expected = torch.autograd.grad(F.cross_entropy(states @ weight.T + bias, targets, ignore_index=IGNORE,
                                                   reduction="sum"), bias)[0]
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss, _ = in_pieces(states, weight, targets, ignore=IGNORE, piece=150, bias=bias)
        gradient = torch.autograd.grad(loss, bias)[0]
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() <= (0.02 if enabled else 1e-5) * expected.norm()


@given(rows, vocabularies, smoothings, st.integers(1, 700))
def test_the_second_sum_is_the_plain_negative_log_likelihood_and_has_no_gradient(
        rows: int, vocabulary: int, smoothing: float, piece: int) -> None:
    states, weight, targets = problem(rows, vocabulary)
    _, plain = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=smoothing, piece=piece)
    torch.testing.assert_close(plain, whole(states, weight, targets, 0.0).detach(), rtol=1e-5, atol=1e-5)
    assert not plain.requires_grad


def test_the_sums_of_the_parts_are_the_sum_of_the_whole() -> None:
    states, weight, targets = problem(20, 30)
    loss, plain = cross_entropy(states, weight, targets, ignore=IGNORE, smoothing=0.1)
    halves = [cross_entropy(s, weight, t, ignore=IGNORE, smoothing=0.1)
              for s, t in zip(states.split(10), targets.split(10), strict=True)]
    torch.testing.assert_close(sum(half[0] for half in halves), loss)
    torch.testing.assert_close(sum(half[1] for half in halves), plain)


def test_ignored_rows_count_nothing_and_have_no_gradient() -> None:
    states, weight, _ = problem(5, 7)
    targets = torch.full((5,), IGNORE)
    loss, plain = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=0.1, piece=14)
    assert (loss.item(), plain.item()) == (0.0, 0.0)
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(loss, (states, weight)))


def test_the_ignored_target_may_lie_outside_the_vocabulary() -> None:
    states, weight, targets = problem(9, 7)
    targets[::2] = -100
    loss, _ = cross_entropy(states, weight, targets, ignore=-100)
    torch.testing.assert_close(loss, F.cross_entropy(states @ weight.T, targets, reduction="sum"))


@pytest.mark.parametrize("trained", [0, 1])
def test_states_or_weight_may_stay_as_they_are(trained: int) -> None:
    parts = problem(9, 7)
    parts[1 - trained].requires_grad_(False)
    loss, _ = cross_entropy(*parts, ignore=IGNORE, smoothing=0.1)
    expected = torch.autograd.grad(whole(*parts, 0.1), parts[trained])
    torch.testing.assert_close(torch.autograd.grad(loss, parts[trained]), expected, rtol=1e-4, atol=1e-5)


class Products(TorchDispatchMode):
    """Counts the matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm_.default)
        return func(*args, **(kwargs or {}))


def test_without_gradients_the_loss_is_the_same_and_a_third_of_the_products() -> None:
    states, weight, targets = problem(20, 30)
    counts, losses = [], []
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients), Products() as products:
            loss, _ = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=0.1, piece=150)
        counts.append(products.count)
        losses.append(loss.detach())
    assert torch.equal(*losses)
    assert counts == [12, 4]


def test_under_autocast_the_loss_is_close_and_the_gradients_have_their_tensor_s_kind() -> None:
    states, weight, targets = problem(20, 30)
    expected = whole(states, weight, targets, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = in_pieces(states, weight, targets, ignore=IGNORE, smoothing=0.1, piece=150)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.02, atol=0.02)
    ours = torch.autograd.grad(loss, (states, weight))
    theirs = torch.autograd.grad(expected, (states, weight))
    for rough, exact in zip(ours, theirs, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - exact).norm() <= 0.02 * exact.norm()
