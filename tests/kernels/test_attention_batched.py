"""Short sequences in batched products on a CPU: the definition, and where it is left to others."""

import pytest
import torch
from torch import Tensor

from regard.kernels import attention_batched
from regard.kernels.calls import AttentionCall
from regard.nn.mask import Mask
from regard.nn.score import ScaledDotAttend

ROWS, HEADS, HEAD = 3, 4, 8


def heads(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as a product leaves them: parts of one tensor."""
    return torch.randn(ROWS, length, 3 * HEADS, HEAD).transpose(1, 2).split(HEADS, dim=1)


def serves(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> bool:
    return attention_batched.KERNEL.serves(AttentionCall(q, k, v, mask, None, None, 1.0, 1.0, 0.0, lambda call: call.q))


def padding(*lengths: int) -> Mask:
    return Mask(keys=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("mask", [Mask(), padding(20, 20, 20), padding(20, 1, 11), padding(20, 0, 11)])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_it_gives_the_context_and_the_gradients_of_the_definition(mask: Mask, temperature: float) -> None:
    """A row that may see nothing, which is zeros, among them."""
    inputs, attend = [x.requires_grad_() for x in heads(20)], ScaledDotAttend((HEAD,) * HEADS, temperature=temperature)
    q, k, v = inputs
    assert serves(q, k, v, mask)
    fast, slow = attend(q, k, v, mask=mask).context, attend.weights(q, k, mask=mask) @ v
    torch.testing.assert_close(fast, slow, atol=1e-6, rtol=1e-5)
    grad = torch.randn_like(fast)
    for mine, theirs in zip(*(torch.autograd.grad(each, inputs, grad) for each in (fast, slow)), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


def test_one_row_of_keys_is_said_of_all_rows() -> None:
    (q, k, v), attend, mask = heads(20), ScaledDotAttend((HEAD,) * HEADS), padding(20, 11)
    assert mask.keys is not None
    mask = Mask(keys=mask.keys[1:])
    torch.testing.assert_close(attend(q, k, v, mask=mask).context, attend.weights(q, k, mask=mask) @ v)


def test_a_row_that_may_see_nothing_is_zeros_under_autocast_too() -> None:
    """Where what stands for -inf in float32 would become it."""
    (q, k, v), attend = heads(20), ScaledDotAttend((HEAD,) * HEADS)
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(q, k, v, mask=padding(20, 0, 11)).context
    assert context.isfinite().all()
    assert not context[1].any()


def test_dropout_acts_in_training_alone() -> None:
    (q, k, v), attend = heads(20), ScaledDotAttend((HEAD,) * HEADS, dropout=0.5)
    one, other = (attend(q, k, v, mask=Mask()).context for _ in range(2))
    assert not torch.equal(one, other)
    attend.eval()
    torch.testing.assert_close(attend(q, k, v, mask=Mask()).context, attend.weights(q, k, mask=Mask()) @ v)


@pytest.mark.parametrize("mask", [
    Mask(causal=True), Mask(window=3), Mask(documents=torch.ones(ROWS, 20, dtype=torch.int64)),
    Mask(blind=torch.zeros(ROWS, 20, dtype=torch.bool))])
def test_any_mask_but_padding_is_left_to_others(mask: Mask) -> None:
    assert not serves(*heads(20), mask)


def test_lengths_at_which_others_are_faster_are_left_to_them() -> None:
    """A gradient takes them longer."""
    lengths = (15, 16, 64, 65, 128, 129)
    assert [length for length in lengths if serves(*heads(length), Mask())] == [16, 64]
    q, k, v = heads(128)
    assert serves(q.requires_grad_(), k, v, Mask())
