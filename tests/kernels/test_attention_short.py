"""The kernel for short sequences is the definition, forth and back. Needs a GPU."""

import pytest
import torch

from regard.kernels.kernel import log_kernels
from regard.nn.mask import Mask
from regard.nn.score import ScaledDotAttend

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@needs_gpu
@pytest.mark.parametrize(("queries", "keys", "head", "causal", "padded"), [
    (32, 32, 64, False, False), (32, 32, 64, True, False), (24, 17, 32, False, True), (5, 64, 64, False, True),
    (33, 33, 32, True, True), (1, 1, 16, False, False)])
def test_it_gives_the_context_and_the_gradients_of_the_definition(
    queries: int, keys: int, head: int, causal: bool, padded: bool
) -> None:
    q, k, v = (torch.randn(3, n, 4, head, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
               for n in (queries, keys, keys))
    real = None
    if padded:
        real = torch.rand(3, keys, device="cuda") > 0.3
        real[0] = False  # a sentence of padding alone sees nothing
    mask, attend = Mask(causal=causal, keys=real), ScaledDotAttend((head,) * 4)
    with log_kernels() as log:
        fast = attend(q, k, v, mask=mask).context
    assert log == ["attention.short"]
    slow = attend.weights(q.float(), k.float(), mask=mask) @ v.float()
    torch.testing.assert_close(fast.float(), slow, atol=2e-2, rtol=2e-2)
    grad = torch.randn_like(fast)
    for mine, theirs in zip(torch.autograd.grad(fast, (q, k, v), grad),
                            torch.autograd.grad(slow, (q, k, v), grad.float()), strict=True):
        assert (mine - theirs).norm() <= 1e-2 * theirs.norm() + 1e-6
