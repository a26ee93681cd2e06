"""What an attention learns, on a task of a second."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.attention import CrossAttention, Memory
from regard.nn.mask import Mask
from regard.nn.score import SCORES

WIDTH, HEAD, NAMES, PAIRS, BATCH = 64, 256, 32, 8, 16


def losses(score: str, seed: int, *, steps: int = 50) -> Tensor:
    """Look up: among pairs of a name and a value, tell the value of the name that is asked for."""
    torch.manual_seed(seed)
    attention = CrossAttention(WIDTH, heads=1, memory_width=2 * WIDTH, head_widths=(HEAD,), score=score)
    for part in (attention.q, attention.kv):  # queries and keys of independent numbers of variance 1
        torch.nn.init.normal_(part.weight, std=part.in_features**-0.5)
    names, values = torch.randn(NAMES, WIDTH), torch.randn(PAIRS, WIDTH)
    optimizer, found = torch.optim.Adam(attention.parameters(), lr=1e-3), []
    for _ in range(steps):
        named = torch.stack([torch.randperm(NAMES)[:PAIRS] for _ in range(BATCH)])
        valued, asked = torch.randint(PAIRS, (2, BATCH, PAIRS))
        memory = Memory(torch.cat([names[named], values[valued]], dim=-1))
        states = attention(names[named.gather(1, asked)], memory)
        loss = F.cross_entropy((states @ values.T / WIDTH**0.5).flatten(0, 1), valued.gather(1, asked).flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


@pytest.mark.parametrize("seed", [0, 1])
def test_scaled_scores_learn_in_fewer_steps_than_unscaled_ones_where_heads_are_wide(seed: int) -> None:
    """Of width 256, the unscaled scores have a deviation of 16: their softmax is saturated, its gradient small."""
    scaled, unscaled = losses("scaled-dot", seed), losses("dot", seed)
    assert scaled[0] == pytest.approx(float(unscaled[0]), abs=0.3)  # both begin by guessing one of 8
    assert scaled[40:].max() < 0.05
    assert unscaled[40:].min() > 0.3


def test_the_softmax_of_unscaled_scores_passes_less_of_the_gradient_on() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 512, HEAD), torch.randn(1, 1, PAIRS, HEAD)
    passed = {}
    for score in ("scaled-dot", "dot"):
        weights = SCORES[score]((HEAD,)).weights(q, k, mask=Mask())
        passed[score] = float((weights * (1 - weights)).sum(-1).mean())  # the trace of the softmax's Jacobian
    assert passed["scaled-dot"] > 0.7
    assert passed["dot"] < 0.3
