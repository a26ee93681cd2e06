"""What a search does between two steps, in kernels, is what its open form does. Needs a GPU."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.generate.beam import Beam, Search
from regard.kernels import beam as beam_kernel

SOURCES, VOCABULARY = 7, 2_500
STATE = ("tokens", "totals", "ended_tokens", "ended_scores", "ended_totals", "done", "length")


class Nothing(torch.nn.Module):
    """A model that is never asked."""

    def begin(self, rows: int, memory: object = None, *, capacity: int | None = None) -> Any:
        return self

    def fan_out(self, size: int) -> None:
        pass

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        raise NotImplementedError

    def logits(self, states: Tensor) -> Tensor:
        raise NotImplementedError


def search(how: Beam, device: str) -> Search:
    return Search(Nothing(), torch.full((SOURCES, 1), 3, device=device), how, None, [])  # type: ignore[arg-type]


def quickly(found: Search, logits: Tensor) -> Tensor:
    return beam_kernel.choose(
        logits, **{name: getattr(found, name) for name in STATE}, start=found.start, end=found.how.end,
        longest=found.how.longest, length_penalty=found.how.length_penalty)


def same_steps(how: Beam, device: str, dtype: torch.dtype, vocabulary: int = VOCABULARY) -> None:
    """Both forms through a whole search, each step from the same place. Often a hypothesis ends."""
    generator = torch.Generator().manual_seed(how.size)
    open_form, quick = search(how, device), search(how, device)
    for _ in range(how.longest):
        logits = 2 * torch.randn(SOURCES * how.size, vocabulary, generator=generator)
        logits += 0.001 * torch.arange(vocabulary)  # hardly any two alike
        logits[:, how.end] = torch.where(torch.rand(len(logits), generator=generator) < 0.4, 9.0, -9.0)
        logits[:, 11] = -math.inf
        narrow = logits.to(device, dtype)
        expected = open_form.choose(*open_form.candidates(narrow, open_form.totals))
        found = quickly(quick, narrow)
        for name in ("totals", "ended_scores", "done", "length"):
            torch.testing.assert_close(getattr(quick, name), getattr(open_form, name), msg=name, rtol=1e-5, atol=1e-5)
        counts, ended = (scores > -math.inf for scores in (open_form.totals, open_form.ended_scores))
        torch.testing.assert_close(quick.ended_totals[ended], open_form.ended_totals[ended])
        assert (found == expected)[counts.flatten()].all()
        assert (quick.tokens == open_form.tokens)[counts].all()
        assert (quick.ended_tokens == open_form.ended_tokens)[ended].all()
        for name in STATE:  # what counts for nothing, and last digits, may differ
            getattr(quick, name).copy_(getattr(open_form, name))
        for one in (open_form, quick):
            one.length += 1


def test_a_cpu_is_never_served() -> None:
    assert not beam_kernel.serves(torch.zeros(5, 50), 5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("size", [1, 2, 5, 11])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 0.6])
def test_it_chooses_what_the_open_form_chooses(size: int, penalty: float) -> None:
    same_steps(Beam(end=2, longest=9, size=size, length_penalty=penalty), "cuda", torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("vocabulary", [30, 2_048, 32_000, 50_257])
def test_of_any_vocabulary_and_any_length(vocabulary: int) -> None:
    same_steps(Beam(end=2, longest=70, size=3), "cuda", torch.float32, vocabulary)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_more_beams_than_it_holds_are_left_to_the_open_form() -> None:
    logits = torch.zeros(12 * SOURCES, VOCABULARY, device="cuda")
    assert beam_kernel.serves(logits, 11)
    assert not beam_kernel.serves(logits, 12)
    assert not beam_kernel.serves(logits[:, :20], 11)  # too few tokens


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_no_number_mixes_nothing(broken: float) -> None:
    found = search(Beam(end=2, longest=4, size=3), "cuda")
    logits = torch.randn(3 * SOURCES, VOCABULARY, device="cuda")
    logits[3, 5] = broken
    parents = quickly(found, logits)
    assert (parents.view(SOURCES, 3) // 3 == torch.arange(SOURCES, device="cuda")[:, None]).all()
    assert ((found.tokens >= 0) & (found.tokens < VOCABULARY)).all()
    assert (found.totals[1] == -math.inf).all()
    assert (found.totals[[0, *range(2, SOURCES)]] > -math.inf).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_of_equal_tokens_the_first_comes_first() -> None:
    found = search(Beam(end=2, longest=4, size=3), "cuda")
    quickly(found, torch.zeros(3 * SOURCES, VOCABULARY, device="cuda", dtype=torch.bfloat16))
    assert found.tokens[:, :, 1].tolist() == SOURCES * [[0, 1, 3]]  # 2 ends
    torch.testing.assert_close(found.totals, torch.full_like(found.totals, -math.log(VOCABULARY)))
