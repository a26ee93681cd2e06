"""On a GPU a search is recorded and replayed: the answers are those of the open search. Needs a GPU."""

from typing import Literal

import pytest
import torch

from regard.generate.beam import Beam, Hypothesis, Search, beam
from regard.generate.sampler import Sampler, Sampling, gather, padded, sample
from regard.kernels.cuda_graphs import Captures
from regard.models import build
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Tower

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
HOW = Beam(end=2, longest=12, size=3)


def translator(seed: int) -> EncoderDecoder:
    model = build.translator(Tower(width=64, depth=2, heads=4), sources=128, targets=128)
    initialize(model, seed=seed)
    with torch.no_grad():
        model.decoder.output.weight.mul_(2)
    return model.eval()


def search(model: EncoderDecoder, source: torch.Tensor, captures: Captures[Search] | None = None,
           ) -> list[list[Hypothesis]]:
    memory = model.encode(source, Mask(keys=source != 0))
    prompt = torch.ones(len(source), 1, dtype=torch.long, device=source.device)
    return beam(model, prompt, memory=memory, how=HOW, captures=captures)


def sources(seed: int, length: int = 7) -> torch.Tensor:
    torch.manual_seed(seed)
    source = torch.randint(3, 128, (5, length))
    source[0, 4:] = 0
    return source


def same(mine: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> None:
    for here, there in zip(mine, other, strict=True):
        assert here[0].tokens == there[0].tokens
        assert [h.score for h in here] == pytest.approx([h.score for h in there], abs=1e-4)


@torch.no_grad()
def test_a_recorded_search_serves_batch_after_batch_of_any_shape() -> None:
    torch.set_float32_matmul_precision("highest")
    model, captures = translator(0), Captures[Search]()
    expected = {(seed, length): search(model, sources(seed, length)) for seed in range(3) for length in (7, 9)}
    model.cuda()
    for (seed, length), answers in expected.items():
        same(search(model, sources(seed, length).cuda(), captures), answers)
    assert len(captures.kept) == 2


@torch.no_grad()
def test_weights_that_change_in_place_or_move_are_seen() -> None:
    torch.set_float32_matmul_precision("highest")
    captures, first, second = Captures[Search](), translator(0), translator(1)
    expected = search(second, sources(0))
    first.cuda()
    search(first, sources(0).cuda(), captures)
    first.load_state_dict(second.state_dict())
    same(search(first, sources(0).cuda(), captures), expected)
    moved = translator(1).cuda()
    same(search(moved, sources(0).cuda(), captures), expected)


@pytest.mark.parametrize("rules", [
    {"temperature": 0.0}, {}, {"top_k": 20}, {"top_p": 0.9, "min_p": 0.05, "samples": 2}])
@pytest.mark.parametrize("positions", ["rotary", "learned"])
@torch.no_grad()
def test_recorded_draws_are_those_of_the_open_ones_whatever_the_lengths(
    rules: dict[str, float], positions: Literal["rotary", "learned"]
) -> None:
    torch.set_float32_matmul_precision("highest")
    tower, captures = Tower(width=64, depth=2, heads=4, kv_heads=2, positions=positions), Captures[Sampler]()
    model = Decoder(tower, vocabulary=5000)
    initialize(model, seed=0)
    model.eval()
    how = Sampling(end=2, longest=21, **rules)  # type: ignore[arg-type]
    # Each shape four times: at first in the open, then recorded, then replayed.
    batches = [[[5 + turn] * length for length in lengths] for turn in range(4)
               for lengths in ([1, 9, 4, 30], [7, 2, 8, 40], [3, 3, 3, 3])]

    def written(rows: list[list[int]], device: str) -> list[list[int]]:
        steps = sample(model.to(device), padded(rows).to(device), lengths=[*map(len, rows)], seeds=rows, how=how,
                       captures=captures)
        return [h.tokens for h in gather(steps, end=how.end)]

    expected = [written(rows, "cpu") for rows in batches]
    assert [written(rows, "cuda") for rows in batches] == expected
    assert len(captures.kept) == 2  # rows in step are recorded apart from rows at positions of their own
