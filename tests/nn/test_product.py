"""A product with its norm, nonlinearity and residual sum is the same as one after the other."""

import pytest
import torch
from torch import nn

from regard.nn.init import initialize
from regard.nn.narrow import ScaledLinear
from regard.nn.norm import Norm
from regard.nn.product import Activation, Slots, _serves, product, project

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def test_without_anything_around_it_a_product_is_the_layer() -> None:
    layer, x = nn.Linear(6, 4), torch.randn(2, 3, 6)
    assert torch.equal(product(x, layer), layer(x))
    assert not _serves(layer, x[:1, :1].contiguous())


def test_the_norm_comes_first_and_the_sum_last() -> None:
    layer, norm, x, add = nn.Linear(6, 4), Norm(6), torch.randn(2, 3, 6), torch.randn(2, 3, 4)
    initialize(norm, seed=0)
    relu = Activation("relu")
    assert torch.equal(product(x, layer, norm=norm, activation=relu, add=add), add + layer(norm(x)).relu())


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "activation", "bias", "sums", "rows", "inputs", "outputs"), [
    ("layer", None, True, False, 1, 768, 2304), ("rms", Activation("silu", True), False, False, 2, 64, 172),
    (None, None, True, True, 3, 3072, 768), ("layer", Activation("gelu-tanh"), True, False, 1, 1600, 6400),
    ("layer", Activation("gelu"), True, True, 4, 37, 5), ("rms", Activation("relu"), False, True, 1, 6400, 1600)])
def test_one_kernel_gives_what_four_do(
    dtype: torch.dtype, kind: str | None, activation: Activation | None, bias: bool, sums: bool, rows: int,
    inputs: int, outputs: int,
) -> None:
    torch.manual_seed(0)
    gated = activation is not None and activation.gated
    layer = nn.Linear(inputs, 2 * outputs if gated else outputs, bias=bias).cuda().to(dtype)
    norm = None
    if kind is not None:
        norm = Norm(inputs, kind=kind)
        for parameter in norm.parameters():
            nn.init.normal_(parameter)
        norm.cuda().to(dtype)
    x = torch.randn(rows, 1, inputs, device="cuda", dtype=dtype)
    add = torch.randn(rows, 1, outputs, device="cuda", dtype=dtype) if sums else None
    with torch.no_grad():
        assert _serves(layer, x)
        fast = product(x, layer, norm=norm, activation=activation, add=add)
        exact = layer.double()
        slow = product(x.double(), exact, norm=None if norm is None else norm.double(), activation=activation,
                       add=None if add is None else add.double())
    near = 2e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(fast.double(), slow, atol=near, rtol=near)


@needs_gpu
@pytest.mark.parametrize("name", ["relu", "gelu-tanh"])
def test_many_rows_end_with_their_nonlinearity_too(name: str) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 128).cuda(), torch.randn(5, 7, 64, device="cuda")
    torch.set_float32_matmul_precision("highest")
    slow = Activation(name)(layer(x))
    with torch.no_grad():
        torch.testing.assert_close(product(x, layer, activation=Activation(name)), slow, atol=1e-5, rtol=1e-5)


@needs_gpu
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_norm_of_a_sum_is_one_kernel_and_the_same(kind: str) -> None:
    torch.manual_seed(0)
    norm = Norm(37, kind=kind).cuda()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x, y = (torch.randn(3, 5, 37, device="cuda") for _ in range(2))
    slow = norm(x + y)
    with torch.no_grad():
        torch.testing.assert_close(norm.of_sum(x, y), slow, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(norm(x + y), slow, atol=1e-5, rtol=1e-5)
        narrow = (x + y).bfloat16()
        torch.testing.assert_close(norm(narrow).float(), norm(narrow.float()), atol=2e-2, rtol=1e-2)


@needs_gpu
def test_an_odd_number_of_outputs_is_multiplied_in_rows_that_begin_in_line() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    layer, x = nn.Linear(64, 5_001).cuda(), torch.randn(3, 5, 64, device="cuda")
    slow = layer(x).detach()
    with torch.no_grad():
        y = product(x, layer)
        assert y.stride() == (5 * 5_056, 5_056, 1)
        torch.testing.assert_close(y, slow, atol=1e-5, rtol=1e-5)


@needs_gpu
@pytest.mark.parametrize("activation", [None, Activation("silu", True)])
def test_whole_numbers_with_a_scale_are_multiplied_as_they_are(activation: Activation | None) -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    layer, norm = ScaledLinear(nn.Linear(64, 256).cuda()), Norm(64, kind="rms").cuda()
    nn.init.normal_(norm.weight)
    x = torch.randn(9, 1, 64, device="cuda")
    with torch.no_grad():
        many = product(x, layer, norm=norm, activation=activation)
        few = torch.cat([product(row, layer, norm=norm, activation=activation) for row in x.split(3)])
    torch.testing.assert_close(few, many, atol=1e-4, rtol=1e-4)


@needs_gpu
@pytest.mark.parametrize(("heads", "groups", "head", "rows", "apart"), [
    (12, 12, 64, 1, False), (4, 2, 16, 3, True), (6, 1, 8, 2, False)])
def test_keys_and_values_go_straight_into_their_slots(
    heads: int, groups: int, head: int, rows: int, apart: bool
) -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    layer, x = nn.Linear(40, (heads + 2 * groups) * head).cuda(), torch.randn(rows, 1, 40, device="cuda")
    keys, values = (torch.zeros(rows, groups, 11, head, device="cuda") for _ in range(2))
    at = torch.randint(0, 11, (rows if apart else 1, 1), device="cuda")
    with torch.no_grad():
        q, whole = project(x, layer, Slots(keys, values, at)), layer(x)
    assert q is not None
    wanted = whole.split([heads * head, groups * head, groups * head], dim=-1)
    torch.testing.assert_close(q, wanted[0], atol=1e-5, rtol=1e-5)
    slots = at.expand(rows, 1)[:, None, :, None].expand(rows, groups, 1, head)
    for cache, new in ((keys, wanted[1]), (values, wanted[2])):
        expected = torch.zeros_like(cache).scatter_(2, slots, new.view(rows, groups, 1, head))
        torch.testing.assert_close(cache, expected, atol=1e-5, rtol=1e-5)
