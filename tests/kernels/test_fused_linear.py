"""A product with its norm, nonlinearity and residual sum is the same as one after the other."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from kernels.proof import HAS_GPU, HAS_TRITON, PROOFS, filled, machine, place
from regard.kernels.fused_linear import Slots, few_rows, fused_linear, projected_into_cache, weights_of
from regard.kernels.kernel import log_kernels
from regard.kernels.norm import norm_of_sum
from regard.kernels.quantize import ScaledLinear
from regard.nn.feed_forward import Activation
from regard.nn.linear import Linear
from regard.nn.norm import Norm

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU here")
DEVICE = place(True)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """A GPU, or Triton's interpreter."""
    if not HAS_GPU and not HAS_TRITON:
        pytest.skip("needs a GPU, or Triton's interpreter")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    with machine(PROOFS["linear.few_rows"]), torch.no_grad():
        yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "activation", "bias", "sums", "rows", "inputs", "outputs"), [
    ("layer", None, True, False, 1, 768, 2304), ("rms", "swiglu", False, False, 2, 64, 172),
    (None, None, True, True, 3, 3072, 768), ("layer", "gelu-tanh", True, False, 1, 1600, 6400),
    ("layer", "gelu", True, True, 4, 37, 5), ("rms", "relu", False, True, 1, 640, 160)])
def test_one_kernel_gives_what_four_do(
    dtype: torch.dtype, kind: str | None, activation: str | None, bias: bool, sums: bool, rows: int, inputs: int,
    outputs: int,
) -> None:
    if not HAS_GPU and (dtype == torch.bfloat16 or inputs * outputs > 2_000_000):
        pytest.skip("slow in the interpreter")
    torch.manual_seed(0)
    bend = None if activation is None else Activation(activation)
    layer = Linear(inputs, 2 * outputs if bend and bend.gated else outputs, bias=bias).to(DEVICE, dtype)
    norm = None if kind is None else filled(Norm(inputs, kind=kind), DEVICE, dtype)
    x = torch.randn(rows, 1, inputs, device=DEVICE, dtype=dtype)
    add = torch.randn(rows, 1, outputs, device=DEVICE, dtype=dtype) if sums else None
    weights = weights_of(layer)
    assert weights is not None
    assert few_rows(x, weights)
    fast = fused_linear(x, weights, norm=None if norm is None else norm.call(x), activation=bend and bend.name,
                        gated=bool(bend and bend.gated), add=add)
    y = x.double() if norm is None else norm.double().definition(x.double())
    y = nn.functional.linear(y, layer.weight.double(), None if layer.bias is None else layer.bias.double())
    y = y if bend is None else bend(y)
    y = y if add is None else y + add.double()
    near = 2e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(fast.double(), y, atol=near, rtol=near)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_norm_of_a_sum_is_one_kernel_and_the_same(kind: str) -> None:
    torch.manual_seed(0)
    norm = filled(Norm(37, kind=kind), DEVICE)
    x, y = (torch.randn(3, 5, 37, device=DEVICE) for _ in range(2))
    torch.testing.assert_close(norm_of_sum(norm.call(x), y), norm.definition(x + y), atol=1e-5, rtol=1e-5)


@needs_gpu
def test_an_odd_number_of_outputs_is_multiplied_in_rows_that_begin_in_line() -> None:
    layer, x = Linear(64, 5_001).cuda(), torch.randn(3, 5, 64, device="cuda")
    with log_kernels() as log:
        y = layer(x)
    assert log == ["linear.aligned_rows"]
    assert y.stride() == (5 * 5_056, 5_056, 1)


def test_whole_numbers_with_a_scale_are_multiplied_as_they_are() -> None:
    layer = ScaledLinear(nn.Linear(64, 256).to(DEVICE))
    x = torch.randn(9, 1, 64, device=DEVICE)
    torch.testing.assert_close(torch.cat([layer(row) for row in x.split(3)]), layer(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("heads", "groups", "head", "rows", "apart"), [
    (12, 12, 64, 1, False), (4, 2, 16, 3, True), (6, 1, 8, 2, False)])
def test_keys_and_values_go_straight_into_their_slots(
    heads: int, groups: int, head: int, rows: int, apart: bool
) -> None:
    torch.manual_seed(0)
    layer, x = Linear(40, (heads + 2 * groups) * head).to(DEVICE), torch.randn(rows, 1, 40, device=DEVICE)
    keys, values = (torch.zeros(rows, groups, 11, head, device=DEVICE) for _ in range(2))
    at = torch.randint(0, 11, (rows if apart else 1, 1), device=DEVICE)
    weights = weights_of(layer)
    assert weights is not None
    q = projected_into_cache(x, weights, Slots(keys, values, at))
    assert q is not None
    wanted = nn.functional.linear(x, layer.weight, layer.bias).split(
        [heads * head, groups * head, groups * head], dim=-1)
    torch.testing.assert_close(q, wanted[0], atol=1e-5, rtol=1e-5)
    slots = at.expand(rows, 1)[:, None, :, None].expand(rows, groups, 1, head)
    for cache, new in ((keys, wanted[1]), (values, wanted[2])):
        expected: Tensor = torch.zeros_like(cache).scatter_(2, slots, new.view(rows, groups, 1, head))
        torch.testing.assert_close(cache, expected, atol=1e-5, rtol=1e-5)
