"""A window and global tokens at linear cost are the dense definition, forth and back."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.kernels import attention_window_blocks
from regard.kernels.calls import AttentionCall
from regard.nn.mask import Mask
from regard.nn.score import DotAttend, ScaledDotAttend

HEADS, WIDTH = 4, 8


def drawn(rows: int, length: int, groups: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(rows, heads, length, WIDTH).requires_grad_() for heads in (HEADS, groups, groups))  # type: ignore[return-value]


def explicit(attend: DotAttend, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    return attend.weights(q, k, mask=mask) @ v.repeat_interleave(HEADS // v.shape[1], dim=1)


def windowed(attend: DotAttend, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """The linear way, also where `forward` would take the dense one because the sequence is short."""
    call = AttentionCall(q, k, v, mask, None, None, attend.scale, attend.temperature, attend.dropped, attend.context)
    return attention_window_blocks.run(call)


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that without a gradient even these sequences are worked off in several pieces."""
    monkeypatch.setattr(attention_window_blocks, "SMALL_MASK", 1)


def agree(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> None:
    attend = ScaledDotAttend((WIDTH,) * HEADS)
    fast, slow = windowed(attend, q, k, v, mask), explicit(attend, q, k, v, mask)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    without_gradient = windowed(attend, q.detach(), k.detach(), v.detach(), mask)
    torch.testing.assert_close(without_gradient, slow, rtol=1e-5, atol=1e-5)
    direction = torch.randn_like(fast)
    gradients = [torch.autograd.grad(context, (q, k, v), direction) for context in (fast, slow)]
    for quick, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, exact, rtol=1e-5, atol=1e-5)


@st.composite
def masks(draw: st.DrawFn) -> tuple[int, int, Mask]:
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 230))
    torch.manual_seed(draw(st.integers(0, 99)))
    shape = (rows, length)
    whole = torch.rand(shape) < draw(st.sampled_from([0.0, 0.01, 0.1]))
    whole[:, 0] |= draw(st.booleans())
    real = torch.arange(length) < torch.randint(0, length + 1, (rows, 1))
    documents = (torch.rand(shape) < 0.02).cumsum(1)
    pick = st.booleans()
    return rows, length, Mask(
        causal=draw(pick), window=draw(st.sampled_from([0, 1, 5, 64, 70, 300])), globals=whole if draw(pick) else None,
        keys=real if draw(pick) else None, documents=documents if draw(pick) else None,
        blind=torch.rand(shape) < 0.1 if draw(pick) else None)


@settings(max_examples=150)
@given(masks(), st.sampled_from([1, 2, HEADS]))
@example((2, 1, Mask(window=3, globals=torch.ones(2, 1, dtype=torch.bool))), HEADS)
@example((1, 129, Mask(window=64, globals=torch.ones(1, 129, dtype=torch.bool))), HEADS)
def test_a_window_with_global_tokens_is_the_dense_definition(case: tuple[int, int, Mask], groups: int) -> None:
    rows, length, mask = case
    agree(*drawn(rows, length, groups), mask)


def test_a_global_token_inside_a_window_is_counted_once() -> None:
    length, here = 200, torch.arange(200)
    whole = (here == 100)[None]
    attend, value = ScaledDotAttend((WIDTH,) * HEADS), torch.ones(1, HEADS, length, WIDTH)
    still = torch.zeros(1, HEADS, length, WIDTH)  # all scores alike: a weight is one over the number of keys seen
    shown = windowed(attend, still, still, value * (here == 100)[:, None], Mask(window=10, globals=whole))[0, 0, :, 0]
    assert shown[105] == pytest.approx(1 / 21)
    assert shown[50] == pytest.approx(1 / 22)
    assert shown[100] == pytest.approx(1 / 200)


def test_rows_may_have_different_numbers_of_global_tokens_or_padding_for_them() -> None:
    whole, real = torch.zeros(4, 150, dtype=torch.bool), torch.ones(4, 150, dtype=torch.bool)
    whole[0, 0] = whole[1, [0, 40, 149]] = whole[3, [0, 140]] = True
    real[1, 100:] = real[3, 120:] = False
    agree(*drawn(4, 150), Mask(window=7, globals=whole, keys=real))
    agree(*drawn(4, 150), Mask(window=7, globals=whole, keys=real, most_globals=3))
    agree(*drawn(4, 150), Mask(window=7, globals=whole, keys=real, most_globals=9))


def test_a_mask_for_all_rows_may_be_given_once() -> None:
    whole, real = torch.zeros(1, 150, dtype=torch.bool), torch.ones(1, 150, dtype=torch.bool)
    whole[0, [0, 70]], real[0, 130:] = True, False
    agree(*drawn(3, 150), Mask(window=9, globals=whole, keys=real))


def test_queries_that_may_see_nothing_get_zeros_and_pass_no_gradient_on() -> None:
    q, k, v = drawn(2, 300)
    whole, real = torch.zeros(2, 300, dtype=torch.bool), torch.ones(2, 300, dtype=torch.bool)
    whole[:, 0], real[1] = True, False
    context = ScaledDotAttend((WIDTH,) * HEADS)(q, k, v, mask=Mask(window=20, globals=whole, keys=real)).context
    assert (context[1] == 0).all()
    assert (context[0] != 0).all()
    gradients = torch.autograd.grad(context.sum(), (q, k, v))
    assert all(gradient.isfinite().all() and (gradient[1] == 0).all() for gradient in gradients)


def test_a_mask_that_has_served_in_inference_serves_in_training_too() -> None:
    whole, real = torch.arange(150).expand(2, -1) == 7, torch.arange(150).expand(2, -1) < 140
    mask, (q, k, v) = Mask(window=5, globals=whole, keys=real), drawn(2, 150)
    with torch.inference_mode():
        windowed(ScaledDotAttend((WIDTH,) * HEADS), q, k, v, mask)
    agree(q, k, v, mask)


def test_no_tensor_grows_with_the_square_of_the_length() -> None:
    window = 64

    def entries(length: int) -> int:
        """Of the largest tensor in the blocks of a sequence."""
        q, k, v = drawn(1, length)
        whole = torch.zeros(1, length, dtype=torch.bool)
        near = attention_window_blocks.cut(q, k, v, Mask(window=window, globals=whole, most_globals=1), 0, length)
        return max(part.numel() for part in near[:4])

    assert entries(4_096) == 4 * entries(1_024)


def test_with_dropout_the_mean_over_many_draws_is_the_whole() -> None:
    q, k, v = (x.detach() for x in drawn(1, 200))
    whole = torch.zeros(1, 200, dtype=torch.bool)
    whole[0, 3] = True
    mask, attend = Mask(window=30, globals=whole), ScaledDotAttend((WIDTH,) * HEADS, dropout=0.3)
    kept = attend.eval()(q, k, v, mask=mask).context
    draws = torch.stack([attend.train()(q, k, v, mask=mask).context for _ in range(300)])
    assert draws.std(0).min() > 0
    assert (draws.mean(0) - kept).abs().mean() < 0.02


COMPILED = """
import torch
from regard.nn.score import ScaledDotAttend
from regard.nn.mask import Mask
q, k, v = (torch.randn(2, 4, 300, 8) for _ in range(3))
whole = torch.arange(300).expand(2, -1) == 0
attend = ScaledDotAttend((8,) * 4)
def call(q, k, v, whole):
    return attend(q, k, v, mask=Mask(window=20, globals=whole, most_globals=1)).context
print(torch.equal(torch.compile(call, fullgraph=True, backend="eager")(q, k, v, whole), call(q, k, v, whole)))
"""


def test_it_is_one_graph_where_the_number_of_global_tokens_is_known() -> None:
    # In a process of its own: the checks of types that tests run under cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.slow
def test_the_benchmark_finds_the_same_memory_for_each_token_of_a_longer_text() -> None:
    command = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "window.py"), "--longest", "2048"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    windowed, _ = done.stdout.split("full")
    short, long = (line.split() for line in windowed.splitlines() if line.lstrip()[:2] in ("1,", "2,"))
    assert float(long[-1]) == pytest.approx(float(short[-1]), rel=0.05)
