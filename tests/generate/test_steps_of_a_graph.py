"""What a recorded step needs, shown without a GPU: no look from the host, nothing but changes in place."""

import pytest
import torch

from regard.generate.filters import Filter, NoRepeat, PenalizeRepeats
from regard.generate.next_token import draw
from regard.generate.sampler import Sampler, Sampling, padded
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Tower

RULES = [{}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.9, "temperature": 0.8}, {"min_p": 0.1, "samples": 2}]
ROWS = [[3, 4, 5], [6], [7, 8, 9, 10, 11]]
OTHERS = [[4, 9], [5, 5, 5, 3, 8], [1, 2, 3, 4]]


def draws(rows: list[list[int]], rules: dict[str, float], filters: list[Filter]) -> Sampler:
    model = Decoder(Tower(width=16, depth=2, heads=2, positions="rotary"), vocabulary=5000)
    initialize(model, seed=0)
    how = Sampling(end=2, longest=6, **rules)  # type: ignore[arg-type]
    barred = torch.rand(3, 5000, generator=torch.Generator().manual_seed(rows[0][0])) < 0.9
    return Sampler(model.eval(), padded(rows), how, lengths=[*map(len, rows)], filters=filters, seeds=rows,
                 barred=barred)


@pytest.mark.parametrize("rules", RULES)
def test_a_draw_never_asks_what_a_tensor_holds(rules: dict[str, float]) -> None:
    # On the meta device there is nothing to be asked.
    logits, uniform = torch.randn(4, 5000, device="meta"), torch.rand(4, 1, dtype=torch.float64, device="meta")
    history, length = torch.ones(4, 9, dtype=torch.long, device="meta"), torch.ones(4, dtype=torch.long, device="meta")
    for keep in (NoRepeat(2), PenalizeRepeats(1.2)):
        logits = keep(logits, history, length=length)
    how = {name: value for name, value in rules.items() if name != "samples"}
    assert draw(logits, uniform, **how).tokens.is_meta  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", RULES)
@torch.no_grad()
def test_one_that_takes_over_all_tensors_of_another_goes_on_as_it(rules: dict[str, float]) -> None:
    filters: list[Filter] = [NoRepeat(2), PenalizeRepeats(1.2)]
    recorded, fresh = draws(OTHERS, rules, filters), draws(ROWS, rules, filters)
    recorded.advance()
    changed = [recorded.tokens, recorded.chances, recorded.newest, recorded.history, recorded.length, recorded.step]
    places = [tensor.data_ptr() for tensor in changed]
    torch._foreach_copy_(recorded.tensors(), fresh.tensors())
    for _ in range(5):
        recorded.advance()
        fresh.advance()
    assert torch.equal(recorded.tokens, fresh.tokens)
    assert torch.equal(recorded.chances, fresh.chances)
    now = [recorded.tokens, recorded.chances, recorded.newest, recorded.history, recorded.length, recorded.step]
    assert [tensor.data_ptr() for tensor in now] == places
