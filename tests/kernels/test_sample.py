"""The draw in one kernel is the open one. Needs a GPU."""

import pytest
import torch

from regard.generate.next_token import pick
from regard.kernels import sample as sample_kernel


def test_a_cpu_is_never_served() -> None:
    assert not sample_kernel.serves(torch.zeros(1, 5), None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [257, 50_304])
@pytest.mark.parametrize(("temperature", "top_k", "min_p"), [
    (0.0, None, None), (0.8, None, None), (1.0, 50, None), (1.3, 200, 0.05), (1.0, None, 0.1),
    (1.0, 1, None), (0.7, 3, None), (1.0, 2_000, None)])
def test_it_draws_what_the_definition_draws(
    dtype: torch.dtype, vocabulary: int, temperature: float, top_k: int | None, min_p: float | None
) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(64, vocabulary, device="cuda")).to(dtype)
    logits[:, 7] = -torch.inf
    logits[3] = 0.5  # all as likely: those at the k-th place are more than k
    uniform = torch.rand(64, 1, dtype=torch.float64, device="cuda")
    assert sample_kernel.serves(logits, None)
    tokens, chances = sample_kernel.draw(logits, uniform, temperature=temperature, top_k=top_k, min_p=min_p)
    exact = logits.double()
    expected = exact.argmax(-1)
    if temperature:
        weights = ((exact - exact.amax(1, keepdim=True)) / temperature).exp()
        if top_k is not None and top_k < vocabulary:
            weights = weights * (exact >= exact.topk(top_k).values[:, -1:])
        if min_p is not None:
            weights = weights * (weights >= min_p)
        expected = pick(weights, uniform)[:, 0]
        assert (weights.gather(1, tokens[:, None]) > 0).all()
    # A sum in float32 passes a number a little earlier or later than one in float64, now and then.
    assert (tokens == expected).float().mean() > 0.95
    torch.testing.assert_close(chances.double(), exact.log_softmax(-1).gather(1, tokens[:, None])[:, 0],
                               atol=1e-3, rtol=1e-4)
