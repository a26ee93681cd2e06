"""oneDNN's products of a layer that learns give what torch's own give, forth and back."""

import pytest
import torch
from torch import Tensor, nn

from regard.nn import learned
from regard.nn.learned import ROWS
from regard.nn.product import product

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


def gradients(y: Tensor, x: Tensor, layer: nn.Linear) -> list[Tensor | None]:
    wanted = [part for part in (x, *layer.parameters()) if part.requires_grad]
    return list(torch.autograd.grad(y, wanted, torch.ones_like(y).cumsum(0)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", ["nothing", "input", "weight", "bias"])
@pytest.mark.parametrize("shape", [(ROWS,), (3, ROWS), (2, 5, ROWS // 8)])
def test_values_and_gradients_are_those_of_the_layer(bias: bool, frozen: str, shape: tuple[int, ...]) -> None:
    layer, x = nn.Linear(24, 40, bias=bias), torch.randn(*shape, 24, requires_grad=frozen != "input")
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name != frozen)
    assert learned.serves(layer, x)
    fast, slow = product(x, layer), layer(x)
    torch.testing.assert_close(fast, slow)
    for mine, theirs in zip(gradients(fast, x, layer), gradients(slow, x, layer), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3 * float(theirs.abs().max()))


def test_gradients_that_come_in_another_order_are_right() -> None:
    """What is before a transposition gets its gradient transposed."""
    layer, x = nn.Linear(24, 40), torch.randn(2, ROWS, 24, requires_grad=True)
    weights = torch.randn(40, ROWS, 2)
    found = [torch.autograd.grad((y.permute(2, 1, 0) * weights).sum(), x)[0]
             for y in (learned.linear(x, layer), layer(x))]
    torch.testing.assert_close(*found)


def test_few_rows_other_numbers_and_no_gradient_are_left_to_the_layer() -> None:
    layer, x = nn.Linear(24, 40), torch.randn(ROWS, 24)
    assert learned.serves(layer, x)
    assert not learned.serves(layer, x[1:])
    assert not learned.serves(layer.double(), x.double())
    with torch.no_grad():
        assert not learned.serves(layer.float(), x)
