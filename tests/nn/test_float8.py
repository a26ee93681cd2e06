"""Products in float8 are near the exact ones, as near as numbers of three bits can be; forth and back.

torch multiplies such numbers on a CPU too, slowly.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.models.decoder import Decoder
from regard.nn.float8 import KIND, LARGEST, Rough, product, rounded, use_float8
from regard.nn.init import initialize
from regard.nn.loss import cross_entropy
from regard.settings.errors import UserError
from regard.settings.schema import Run, Tower, Train
from regard.tasks.device import fast_float8
from regard.training.loop import train

BITS = 2.0**-4  # half of the last of three bits behind the point
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
on_a_cpu = pytest.mark.skipif(OLD, reason="this torch multiplies float8 with one scale for each row on GPUs alone")
HERE = [pytest.param("cpu", marks=on_a_cpu), pytest.param("cuda", marks=pytest.mark.skipif(
    not (torch.cuda.is_available() and fast_float8(torch.device("cuda"))), reason="no GPU with units for it"))]
TOWER = Tower(width=32, depth=2, heads=2, dropout=0.0, positions="rotary", norm="rms", activation="swiglu")


def near(found: Tensor, exact: Tensor, *, share: float = BITS) -> bool:
    return bool((found.float() - exact.float()).norm() <= share * exact.float().norm())


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(1e-6, 1e6))
def test_every_number_of_a_row_comes_back_as_near_as_its_bits_allow(rows: int, columns: int, size: float) -> None:
    x = size * torch.randn(rows, columns) * torch.logspace(-3, 3, rows)[:, None]
    small, scale = rounded(x, x.abs().amax(-1, keepdim=True))
    assert small.dtype == KIND
    assert float(small.float().abs().max()) == LARGEST
    least = scale * 2.0**-10  # half of the smallest step there is
    assert ((small.float() * scale - x).abs() <= torch.maximum(BITS * 1.01 * x.abs(), least)).all()


def test_a_row_of_zeros_stays_one() -> None:
    small, scale = rounded(torch.zeros(2, 16), torch.zeros(2, 1))
    assert torch.equal(small.float() * scale, torch.zeros(2, 16))


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("biased", [True, False])
def test_a_product_and_its_gradients_are_near_the_exact_ones(device: str, biased: bool) -> None:
    """Rows of very different sizes, as gradients of rare words are."""
    dtype = torch.bfloat16
    x = (torch.randn(48, 64) * torch.logspace(-3, 3, 48)[:, None]).to(device, dtype).requires_grad_()
    weight = torch.randn(32, 64, device=device, requires_grad=True)
    bias = torch.randn(32, device=device, requires_grad=True) if biased else None
    inputs = [x, weight, *([] if bias is None else [bias])]
    rough = product(x, weight, bias)
    exact = torch.nn.functional.linear(x.float(), weight, bias)
    assert rough.dtype == dtype
    for mine, theirs in zip(rough, exact, strict=True):
        assert near(mine, theirs)
    grad = torch.randn(48, 32, device=device)
    found = torch.autograd.grad(rough, inputs, grad.to(dtype))
    expected = torch.autograd.grad(exact, inputs, grad)
    assert [a.dtype for a in found] == [a.dtype for a in expected]
    assert near(found[0], expected[0])
    for mine, theirs in zip(found[1:], expected[1:], strict=True):  # sums over the rows are exact
        assert near(mine, theirs, share=1e-2)


@on_a_cpu
def test_what_is_not_finite_is_noticed() -> None:
    x = torch.randn(4, 16)
    x[1, 3] = torch.inf
    assert not product(x, torch.randn(16, 16))[1].isfinite().any()


def test_an_outputs_weight_is_multiplied_with_from_both_sides() -> None:
    weight, x = torch.randn(48, 32), torch.randn(16, 32)
    error = torch.randn(16, 48).softmax(-1) - torch.eye(48)[:16]
    rough = Rough(weight)
    assert near(rough.outputs(x), x @ weight.T)
    small = (error / Rough.ERROR_SCALE).to(Rough.ERROR_KIND)
    assert near(rough.inputs(small, dtype=torch.float32), error @ weight, share=2 * BITS)  # one bit less


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_with_a_rough_output_is_near_the_exact_one(device: str, smoothing: float) -> None:
    states, weight = (torch.randn(rows, 32, device=device).bfloat16() for rows in (40, 64))
    states, weight = states.requires_grad_(), (0.3 * weight).requires_grad_()
    targets = torch.randint(64, (40,), device=device)
    targets[::5] = -1
    found, expected = ([loss, *torch.autograd.grad(loss, (states, weight))] for loss, _ in (
        cross_entropy(states, weight, targets, ignore=-1, smoothing=smoothing, piece=640, float8=float8)
        for float8 in (True, False)))
    assert near(found[0], expected[0], share=0.01)
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        assert near(mine, theirs, share=2 * BITS)
    assert (found[1][::5] == 0).all()


def test_a_vocabulary_that_does_not_fit_the_units_is_left_exact() -> None:
    states, weight, targets = torch.randn(8, 32, requires_grad=True), torch.randn(50, 32), torch.arange(8)
    losses = [cross_entropy(states, weight, targets, ignore=-1, float8=float8)[0] for float8 in (True, False)]
    assert torch.equal(*losses)


def made(tower: Tower = TOWER) -> Decoder:
    model = Decoder(tower, vocabulary=64)
    initialize(model, seed=0)
    return model


@on_a_cpu
def test_a_model_is_rough_while_it_trains_and_exact_when_it_answers() -> None:
    exact, rough = made(), made()
    use_float8(rough)
    tokens = torch.randint(64, (2, 12))
    states, expected = rough(rough.embed(tokens)), exact(exact.embed(tokens))
    assert near(states, expected, share=0.2)
    assert not torch.equal(states, expected)
    assert torch.equal(rough.eval()(rough.embed(tokens)), exact.eval()(exact.embed(tokens)))
    assert dict(rough.named_parameters()).keys() == dict(exact.named_parameters()).keys()


def test_products_that_do_not_fit_the_units_are_left_exact() -> None:
    odd = replace(TOWER, width=24, hidden_width=20)
    exact, rough = made(odd), made(odd)
    use_float8(rough)
    tokens = torch.randint(64, (2, 12))
    assert torch.equal(rough(rough.embed(tokens)), exact(exact.embed(tokens)))


@on_a_cpu
def test_a_loss_curve_in_float8_follows_the_exact_one() -> None:
    tokens = torch.arange(4 * 33).remainder(7).view(4, 33) * 9 % 64
    curves = []
    for is_rough in (True, False):
        model = made()
        if is_rough:
            use_float8(model)
        optimizer, curve = torch.optim.AdamW(model.parameters(), lr=3e-3), []
        for _ in range(30):
            states = model(model.embed(tokens[:, :-1])).flatten(0, 1)
            loss, _ = cross_entropy(states, model.output.weight, tokens[:, 1:].flatten(), ignore=-1, float8=is_rough)
            optimizer.zero_grad()
            (loss / 128).backward()
            optimizer.step()
            curve.append(float(loss.detach()) / 128)
        curves.append(curve)
    rough, exact = curves
    assert exact[-1] < 0.3 * exact[0]
    assert all(abs(a - b) < 0.1 * exact[0] for a, b in zip(rough, exact, strict=True))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there may be units for it here")
def test_where_there_are_no_units_for_it_a_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.precision=float8: cpu has no units for it"):
        train(Run(device="cpu", train=Train(precision="float8")), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
