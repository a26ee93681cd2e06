"""Short sequences in batched products on a CPU: the definition, and where it is left to others."""

import pytest
import torch
from torch import Tensor

from regard.nn import batched
from regard.nn.attend import ScaledDotAttend
from regard.nn.mask import Mask

ROWS, HEADS, HEAD = 3, 4, 8


def heads(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as a product leaves them: parts of one tensor."""
    return torch.randn(ROWS, length, 3 * HEADS, HEAD).transpose(1, 2).split(HEADS, dim=1)


def padding(*lengths: int) -> Mask:
    return Mask(keys=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("mask", [Mask(), padding(20, 20, 20), padding(20, 1, 11)])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
@torch.no_grad()
def test_it_gives_the_context_of_the_definition(mask: Mask, temperature: float) -> None:
    (q, k, v), attend = heads(20), ScaledDotAttend((HEAD,) * HEADS, temperature=temperature)
    assert batched.serves(q, k, v, mask)
    torch.testing.assert_close(attend(q, k, v, mask=mask).context, attend.weights(q, k, mask=mask) @ v,
                               atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_a_row_that_may_see_nothing_still_gets_zeros() -> None:
    (q, k, v), mask = heads(20), padding(20, 0, 11)
    assert not batched.serves(q, k, v, mask)
    context = ScaledDotAttend((HEAD,) * HEADS)(q, k, v, mask=mask).context
    assert bool((context[1] == 0).all())
    assert bool(context.isfinite().all())


@pytest.mark.parametrize("mask", [
    Mask(causal=True), Mask(window=3), Mask(documents=torch.ones(ROWS, 20, dtype=torch.int64)),
    Mask(blind=torch.zeros(ROWS, 20, dtype=torch.bool))])
@torch.no_grad()
def test_any_mask_but_padding_is_left_to_others(mask: Mask) -> None:
    assert not batched.serves(*heads(20), mask)


def test_gradients_and_lengths_at_which_others_are_faster_are_left_to_them() -> None:
    assert not batched.serves(*heads(20), Mask())
    with torch.no_grad():
        assert [length for length in (15, 16, 64, 65) if batched.serves(*heads(length), Mask())] == [16, 64]
