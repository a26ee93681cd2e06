"""Long prompts are read in chunks, and texts are scored: the numbers of one whole pass, in bounded memory."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.generate.prefill import prefill
from regard.generate.sampler import Sampling, gather, sample
from regard.generate.score import compare, scores
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Tower


class Largest(TorchDispatchMode):
    """Sees the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(made, torch.Tensor) and not func.is_view and not func._schema.is_mutable:
                self.bytes = max(self.bytes, made.nbytes)
        return out


def decoder(*, vocabulary: int = 300, longest: int = 64, **settings: Any) -> Decoder:
    model = Decoder(Tower(width=16, depth=2, heads=2, ffn_width=32, max_positions=longest, **settings),
                    vocabulary=vocabulary)
    initialize(model, seed=0)
    return model.eval()


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("settings", [
    {"positions": "rotary", "kv_heads": 1}, {"positions": "alibi"}, {"positions": "learned", "window": 5}])
@torch.no_grad()
def test_a_prompt_read_in_chunks_is_the_prompt_read_at_once(settings: dict[str, Any], chunk: int) -> None:
    model, tokens = decoder(**settings), torch.randint(3, 300, (3, 40))
    state = model.begin(3, capacity=48)
    prefill(model, tokens[:, :-1], state, chunk=chunk)
    got = model.logits(model.step(tokens[:, -1:], state))
    torch.testing.assert_close(got, model.logits(model(model.embed(tokens)))[:, -1:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_prompt_of_32768_tokens_makes_no_tensor_larger_than_a_chunk_by_all_keys() -> None:
    length, chunk = 32_768, 64
    # One layer of one narrow head: the bound is about shapes, and this way the test takes seconds.
    model = Decoder(Tower(width=4, depth=1, heads=1, ffn_width=4, positions="rotary"), vocabulary=50_000)
    initialize(model, seed=0)
    state = model.eval().begin(1, capacity=length)
    with Largest() as seen:
        prefill(model, torch.randint(3, 50_000, (1, length)), state, chunk=chunk)
    assert seen.bytes <= 4 * chunk * length  # the mask, as numbers
    assert int(state.position) == length


@torch.no_grad()
def test_a_window_s_prompt_makes_no_tensor_that_grows_with_its_length() -> None:
    model = decoder(positions="rotary", window=20)
    for length in (256, 4_096):
        state = model.begin(1, capacity=length)
        with Largest() as seen:
            prefill(model, torch.randint(3, 300, (1, length)), state, chunk=64)
        assert seen.bytes <= 8 * 64 * (64 + 20)  # how far apart queries and keys are


@torch.no_grad()
def test_sampling_after_a_long_prompt_makes_the_logits_of_one_token_alone() -> None:
    model, vocabulary = decoder(vocabulary=20_000, positions="rotary"), 20_000
    prompt = torch.randint(3, vocabulary, (1, 1_500))
    with Largest() as seen:
        gather(sample(model, prompt, how=Sampling(end=2, longest=2)), end=2)
    assert seen.bytes <= 4 * 512 * 1_502


@torch.no_grad()
def test_scores_are_the_log_probabilities_of_whole_passes_whoever_else_is_scored() -> None:
    model = decoder(positions="rotary")
    rows = [torch.randint(3, 300, (length,)).tolist() for length in (5, 1, 30, 2, 30, 17, 8)]
    together = scores(model, rows, chunk=6)
    for row, got in zip(rows, together, strict=True):
        assert got.shape == (len(row) - 1,)
        chances = model.logits(model(model.embed(torch.tensor([row]))))[0].log_softmax(-1)
        expected = [float(chances[place, token]) for place, token in enumerate(row[1:])]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got, scores(model, [row])[0], rtol=1e-4, atol=1e-4)
    assert scores(model, []) == []


@torch.no_grad()
def test_scores_never_hold_all_logits() -> None:
    model = decoder(vocabulary=60_000, positions="rotary")
    with Largest() as seen:
        scores(model, [torch.randint(3, 60_000, (400,)).tolist() for _ in range(4)])
    assert seen.bytes <= 4 * 2**21  # of 4 × 400 × 60,000 × 4 = 366 MiB


@pytest.mark.parametrize("lengths", [[7, 1, 30, 7], [5], [4, 4]])
@torch.no_grad()
def test_endings_are_compared_by_what_scoring_each_whole_row_says(lengths: list[int]) -> None:
    model = decoder(positions="rotary")
    prompts = [torch.randint(3, 300, (length,)).tolist() for length in lengths]
    endings = [[torch.randint(3, 300, (size,)).tolist() for size in (1, 4, 2)] for _ in prompts]
    got = compare(model, prompts, endings)
    for place, prompt in enumerate(prompts):
        rows = scores(model, [[*prompt, *ending] for ending in endings[place]])
        np.testing.assert_allclose(got[place], [row[len(prompt) - 1 :].sum() for row in rows], rtol=1e-4)
