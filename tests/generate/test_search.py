"""Beam search, sampling and filters, on models so small that everything can be counted out."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from regard.generate.beam import Beam, beam
from regard.generate.filters import Forbid, ForcePrefix, NoRepeat
from regard.generate.sampler import Sampling, gather, sample
from regard.models import build
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Tower

VOCABULARY, START, END = 6, 1, 2
SMALL = Tower(width=16, depth=1, heads=2, ffn_width=32)


def translator(seed: int, *, sharpness: float = 1.5) -> EncoderDecoder:
    model = build.translator(SMALL, sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=seed)
    with torch.no_grad():
        model.decoder.output.weight.mul_(sharpness)
    return model.eval()


def memory_of(model: EncoderDecoder, rows: int, seed: int, *, length: int = 5) -> tuple[Tensor, Memory]:
    source = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
    return source, model.encode(source)


def prompts(rows: int) -> Tensor:
    return torch.full((rows, 1), START)


def log_probability(model: EncoderDecoder, source: Tensor, answer: tuple[int, ...]) -> float:
    """From one whole forward pass: no cache, no steps."""
    read = torch.tensor([[START, *answer[:-1]]])
    chances = model.logits(model(source[None], read))[0].log_softmax(-1)
    return chances[torch.arange(len(answer)), torch.tensor(answer)].sum().item()


def all_answers(longest: int) -> list[tuple[int, ...]]:
    return [answer for length in range(1, longest + 1) for answer in itertools.product(range(VOCABULARY), repeat=length)
            if END not in answer[:-1] and (answer[-1] == END or length == longest)]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_wide_enough_beam_finds_what_exhaustive_search_finds(penalty: float) -> None:
    longest = 3
    for seed in range(3):
        model = translator(seed)
        source, memory = memory_of(model, 2, seed)
        how = Beam(end=END, longest=longest, size=VOCABULARY**longest, length_penalty=penalty)
        found = beam(model, prompts(2), memory=memory, how=how)
        for row in range(2):
            scores = ((log_probability(model, source[row], a) / len(a) ** penalty, a) for a in all_answers(longest))
            scored = sorted(scores, reverse=True)
            assert len(found[row]) == len(scored)
            for hypothesis, (score, answer) in zip(found[row][:10], scored[:10], strict=True):
                assert hypothesis.score == pytest.approx(score, abs=1e-5)
                assert tuple(hypothesis.tokens) == tuple(t for t in answer if t != END)


def test_a_beam_of_one_is_greedy() -> None:
    for seed in range(10):
        model = translator(seed)
        _, memory = memory_of(model, 4, seed)
        searched = beam(model, prompts(4), memory=memory, how=Beam(end=END, longest=8, size=1))
        likeliest = Sampling(end=END, longest=8, temperature=0)
        drawn = gather(sample(model, prompts(4), memory=memory, how=likeliest), end=END)
        assert [h[0].tokens for h in searched] == [h.tokens for h in drawn]
        assert [h[0].score for h in searched] == pytest.approx([h.score for h in drawn], abs=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_gives_each_sentence_what_it_gets_alone(size: int) -> None:
    model = translator(7)
    source, _ = memory_of(model, 6, 7)
    how = Beam(end=END, longest=9, size=size)
    together = beam(model, prompts(6), memory=model.encode(source), how=how)
    for row in range(6):
        alone = beam(model, prompts(1), memory=model.encode(source[row : row + 1]), how=how)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]], abs=1e-5)


def test_padding_changes_no_answer() -> None:
    model = translator(3)
    source, memory = memory_of(model, 3, 3)
    padded = torch.cat([source, torch.zeros(3, 4, dtype=torch.long)], dim=1)
    how = Beam(end=END, longest=7, size=3)
    plain = beam(model, prompts(3), memory=memory, how=how)
    with_padding = beam(model, prompts(3), memory=model.encode(padded, Mask(keys=padded != 0)), how=how)
    for a, b in zip(plain, with_padding, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


def test_the_score_of_an_answer_is_its_log_probability_by_length() -> None:
    model = translator(5)
    source, memory = memory_of(model, 3, 5)
    found = beam(model, prompts(3), memory=memory, how=Beam(end=END, longest=6, size=4))
    for row, hypotheses in enumerate(found):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            answer = (*h.tokens, END) if len(h.tokens) < 6 else tuple(h.tokens)
            assert h.log_probability == pytest.approx(log_probability(model, source[row], answer), abs=1e-4)
            assert h.score == pytest.approx(h.log_probability / len(answer), abs=1e-6)


def test_a_longer_prompt_is_read_before_the_search_begins() -> None:
    model = Decoder(SMALL, vocabulary=VOCABULARY)
    initialize(model, seed=1)
    model.eval()
    prompt = torch.tensor([[START, 3, 4, 5], [START, 5, 5, 3]])
    found = beam(model, prompt, how=Beam(end=END, longest=2, size=VOCABULARY**2))
    for row in range(2):
        best = found[row][0]
        answer = [*best.tokens, END][:2]
        states = model(model.embed(torch.cat([prompt[row], torch.tensor(answer[:-1], dtype=torch.long)])[None]))
        chances = model.logits(states)[0].log_softmax(-1)
        total = sum(chances[3 + i, token].item() for i, token in enumerate(answer))
        assert best.log_probability == pytest.approx(total, abs=1e-5)


def test_forbidden_ids_never_come() -> None:
    model = translator(2)
    _, memory = memory_of(model, 4, 2)
    forbid = Forbid([0, 1, 4], vocabulary=VOCABULARY, device=torch.device("cpu"))
    for hypotheses in beam(model, prompts(4), memory=memory, how=Beam(end=END, longest=8), filters=[forbid]):
        for h in hypotheses:
            assert not {0, 1, 4} & set(h.tokens)


def test_an_answer_begins_with_the_prefix_it_was_given() -> None:
    model = translator(4)
    _, memory = memory_of(model, 3, 4)
    force = ForcePrefix(torch.tensor([5, 3]), start=1)
    for hypotheses in beam(model, prompts(3), memory=memory, how=Beam(end=END, longest=8), filters=[force]):
        assert hypotheses
        for h in hypotheses:
            assert h.tokens[:2] == [5, 3]
            assert h.log_probability > -math.inf


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_run_of_tokens_comes_twice(size: int) -> None:
    model = translator(6, sharpness=4.0)
    _, memory = memory_of(model, 4, 6)
    longest = 5 if size == 1 else 12
    found = beam(model, prompts(4), memory=memory, how=Beam(end=END, longest=longest), filters=[NoRepeat(size)])
    for hypotheses in found:
        for h in hypotheses:
            tokens = [START, *h.tokens]
            runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
            assert len(set(runs)) == len(runs)


def test_samples_follow_the_models_distribution() -> None:
    model = translator(8)
    source, memory = memory_of(model, 1, 8)
    rows = 4000
    many = Memory(memory.states.expand(rows, -1, -1))
    first = next(sample(model, prompts(rows), memory=many, how=Sampling(end=END, longest=1)))
    expected = model.logits(model(source, prompts(1)))[0, 0].softmax(-1)
    seen = torch.bincount(first.tokens, minlength=VOCABULARY) / rows
    assert (seen - expected).abs().max() < 4 * 0.5 / math.sqrt(rows)


def test_a_seed_gives_the_same_samples_again() -> None:
    model = translator(9)
    _, memory = memory_of(model, 5, 9)

    def drawn(seed: int) -> list[list[int]]:
        how = Sampling(end=END, longest=6, seed=seed)
        return [h.tokens for h in gather(sample(model, prompts(5), memory=memory, how=how), end=END)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
