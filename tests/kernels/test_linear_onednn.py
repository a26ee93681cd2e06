"""oneDNN's products of a layer that learns give what torch's own give, forth and back."""

import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from regard.kernels import linear_onednn as onednn
from regard.kernels.calls import ActivatedLinearCall, LinearCall
from regard.kernels.kernel import log_kernels
from regard.kernels.linear_onednn import ROWS
from regard.nn.feed_forward import Activation, FeedForward
from regard.nn.linear import Linear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


def serves(layer: nn.Linear, x: Tensor) -> bool:
    return onednn.KERNEL.serves(LinearCall(x, layer.weight, layer.bias))


def plain(x: Tensor, layer: nn.Linear) -> Tensor:
    """torch's own product."""
    return nn.functional.linear(x, layer.weight, layer.bias)


def activated(x: Tensor, layer: nn.Linear, activation: Activation | None) -> Tensor:
    if activation is None:
        return layer(x)
    call = ActivatedLinearCall(x, layer, activation)
    return onednn.ACTIVATED.run(call) if onednn.ACTIVATED.serves(call) else activation(layer(x))


def gradients(y: Tensor, x: Tensor, layer: nn.Linear) -> list[Tensor | None]:
    wanted = [part for part in (x, *layer.parameters()) if part.requires_grad]
    return list(torch.autograd.grad(y, wanted, torch.ones_like(y).cumsum(0)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", ["nothing", "input", "weight", "bias"])
@pytest.mark.parametrize("shape", [(ROWS,), (3, ROWS), (2, 5, ROWS // 8)])
def test_values_and_gradients_are_those_of_the_layer(bias: bool, frozen: str, shape: tuple[int, ...]) -> None:
    layer, x = Linear(24, 40, bias=bias), torch.randn(*shape, 24, requires_grad=frozen != "input")
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name != frozen)
    assert serves(layer, x)
    fast, slow = layer(x), plain(x, layer)
    torch.testing.assert_close(fast, slow)
    for mine, theirs in zip(gradients(fast, x, layer), gradients(slow, x, layer), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3 * float(theirs.abs().max()))


def test_gradients_that_come_in_another_order_are_right() -> None:
    """What is before a transposition gets its gradient transposed."""
    layer, x = Linear(24, 40), torch.randn(2, ROWS, 24, requires_grad=True)
    weights = torch.randn(40, ROWS, 2)
    found = [torch.autograd.grad((y.permute(2, 1, 0) * weights).sum(), x)[0]
             for y in (layer(x), plain(x, layer))]
    torch.testing.assert_close(*found)


def test_few_rows_other_numbers_and_no_gradient_are_left_to_the_layer() -> None:
    layer, x = Linear(24, 40), torch.randn(ROWS, 24)
    assert serves(layer, x)
    assert not serves(layer, x[1:])
    assert not serves(layer.double(), x.double())
    with torch.no_grad():
        assert not serves(layer.float(), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_without_a_gradient_the_product_is_the_layer_s(dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = Linear(256, 4_096, bias=bias).to(dtype), torch.randn(4, 5, 256).to(dtype)
    assert not serves(layer, x)
    with torch.no_grad():
        if not serves(layer, x):
            pytest.skip("this machine's oneDNN knows no such products")
        assert not serves(Linear(256, 256), x)  # a product with so few weights is mostly a call
        near = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(layer(x), plain(x, layer), atol=near, rtol=near)
        flat = x.flatten(0, 1)
        product = onednn.times(flat, layer.weight, layer.bias)
        torch.testing.assert_close(product, plain(flat, layer), atol=near, rtol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_amd", [False, True])
@torch.no_grad()
def test_a_few_rows_are_multiplied_by_it_too_where_weights_last_or_torch_s_own_are_slow(
    dtype: torch.dtype, is_amd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(onednn, "_is_amd", lambda: is_amd)
    layer, layouts = Linear(256, 4_096).to(dtype), onednn.Layouts()
    near, exact = (1e-5, True) if dtype == torch.float32 else (2e-2, False)
    if not (exact or onednn.knows_bfloat16()):
        pytest.skip("this machine's oneDNN knows no such products")
    for rows in (1, 2, 3, 4, 7):
        x = torch.randn(rows, 1, 256).to(dtype)
        assert serves(layer, x) == (exact and is_amd)
        with onednn.lasting(layouts):
            assert serves(layer, x) == (rows >= 4 or is_amd or not exact)
            torch.testing.assert_close(layer(x), plain(x, layer), atol=near, rtol=near)
        copied = not exact or rows >= 4 or (is_amd and rows > 1)  # one row of float32 needs no copy
        assert len(layouts.made) == copied


@torch.no_grad()
def test_weights_for_whose_copies_there_is_no_room_are_read_as_they_lie() -> None:
    first, second, x = Linear(256, 1_024), Linear(256, 1_024), torch.randn(5, 256)
    layouts = onednn.Layouts(room=first.weight.nbytes + 100)
    with onednn.lasting(layouts):
        for layer in (first, second, first):
            torch.testing.assert_close(layer(x), plain(x, layer), atol=1e-5, rtol=1e-5)
    assert [weight for weight, _ in layouts.made.values()] == [first.weight]
    assert onednn.Layouts().room > 0


def test_a_hook_on_the_layer_is_called_where_its_product_ends_with_the_nonlinearity() -> None:
    part, x, calls = FeedForward(256, 4_096).eval(), torch.randn(64, 1, 256), []
    with torch.no_grad():
        with log_kernels() as log:
            part.hidden(x)
        assert log == ["activated_linear.onednn"]
        for each in (part.up, part.activation):
            hook = each.register_forward_hook(lambda *told: calls.append(1))
            part.hidden(x)
            hook.remove()
    assert calls == [1, 1]


COMPILED = """
import torch
from regard.kernels import linear_onednn
from regard.nn.linear import Linear
for dtype in (torch.float32, torch.bfloat16):
    layer, x = Linear(256, 4_096).to(dtype), torch.randn(64, 256).to(dtype)
    with torch.no_grad():
        for ask in (lambda x: layer(x), lambda x: linear_onednn.times(x, layer.weight)):
            print(torch._dynamo.explain(ask)(x).graph_break_count)
"""


def test_what_is_compiled_multiplies_by_its_own_means() -> None:
    # In a process of its own: the checks of types that tests run under cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0"] * 4, done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "activation", [None, *map(Activation, ("relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "swiglu"))])
@torch.no_grad()
def test_weights_that_last_multiply_as_plain_ones(activation: Activation | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer, x = Linear(256, 2_048).to(dtype), torch.randn(3, 50, 256).to(dtype)
    if not serves(layer, x):
        pytest.skip("this machine's oneDNN knows no such products")
    slow = plain(x, layer) if activation is None else activation(plain(x, layer))
    layouts = onednn.Layouts()
    near = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(activated(x, layer, activation), slow, atol=near, rtol=near)
    for _ in range(2):
        with onednn.lasting(layouts):
            torch.testing.assert_close(activated(x, layer, activation), slow, atol=near, rtol=near)
        assert [weight for weight, _ in layouts.made.values()] == [layer.weight]


@torch.no_grad()
def test_weights_may_change_once_it_is_over() -> None:
    layer, x = Linear(256, 2_048), torch.randn(150, 256)
    with onednn.lasting(onednn.Layouts()):
        before = layer(x)
    layer.weight.mul_(2)
    layer.bias.mul_(2)
    for layouts in (None, onednn.Layouts()):
        with nullcontext() if layouts is None else onednn.lasting(layouts):
            torch.testing.assert_close(layer(x), 2 * before)
