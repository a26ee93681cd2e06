"""Logits become the gradient of their loss; by torch's operations, by the kernel, and as shapes alone."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from regard.kernels.cross_entropy_chunked import MAX_CHUNK_LOGITS
from regard.kernels.cross_entropy_triton import errors_
from regard.nn.loss import cross_entropy

HERE = [pytest.param("cpu"),
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"))]


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1, 17, 4096, 20_011])
def test_logits_become_their_gradient(device: str, dtype: torch.dtype, vocabulary: int) -> None:
    logits = (5 * torch.randn(6, vocabulary, device=device)).to(dtype)
    place = torch.randint(vocabulary, (6,), device=device)
    whole = logits.float().clone().requires_grad_()
    F.cross_entropy(whole, place, reduction="sum").backward()
    total, own = errors_(logits, place, 1.0)
    torch.testing.assert_close(total, whole.detach().logsumexp(-1))
    torch.testing.assert_close(own, whole.detach()[torch.arange(6), place])
    near = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(logits.float(), whole.grad, atol=near, rtol=near)


def test_of_shapes_alone_it_gives_shapes() -> None:
    logits = torch.empty(6, 9, device="meta", dtype=torch.bfloat16)
    for found in errors_(logits, torch.empty(6, device="meta", dtype=torch.long), 1.0):
        assert (found.shape, found.dtype) == ((6,), torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_the_loss_and_its_gradients_are_those_of_a_cpu(dtype: torch.dtype, smoothing: float) -> None:
    states, weight = torch.randn(50, 64).to(dtype).float(), torch.randn(1000, 64).to(dtype).float()
    targets = torch.randint(-1, 1000, (50,))
    found = []
    for device, kind in (("cpu", torch.float32), ("cuda", dtype)):
        parts = [x.to(device, kind).requires_grad_() for x in (states, weight)]
        with mock.patch.dict(MAX_CHUNK_LOGITS, cpu=20_000, cuda=20_000):
            loss, plain = cross_entropy(*parts, targets.to(device), ignore=-1, smoothing=smoothing)
        found.append([loss, plain, *torch.autograd.grad(loss, parts)])
    for exact, fast in zip(*found, strict=True):
        assert (fast.cpu().float() - exact).norm() <= (1e-2 if dtype == torch.bfloat16 else 1e-3) * exact.norm()
