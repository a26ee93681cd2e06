"""Sampling: prompts of different lengths in one batch, seeds, samples, rows that end, filters on the way."""

from collections.abc import Sequence

import pytest
import torch

from regard.generate.filters import ForcePrefix, NoRepeat, PenalizeRepeats
from regard.generate.sampler import Sampling, gather, padded, sample
from regard.models.build import translator
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Tower

VOCABULARY, END = 40, 2
SMALL = Tower(width=16, depth=2, heads=2, ffn_width=32)
LENGTHS = [3, 1, 9, 4, 4, 17, 2, 6, 5, 12, 1, 8, 7, 3, 10, 15]
NEAR = 1e-4  # two likeliest logits this close may change places when sums are made in another order


def decoder(seed: int = 0, *, positions: str = "rotary", sharpness: float = 3.0, window: int | None = None) -> Decoder:
    tower = Tower(width=16, depth=2, heads=2, ffn_width=32, positions=positions, window=window)  # type: ignore[arg-type]
    model = Decoder(tower, vocabulary=VOCABULARY)
    initialize(model, seed=seed)
    with torch.no_grad():
        model.output.weight.mul_(sharpness)
    return model.eval()


def prompts(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    dice = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (length,), generator=dice).tolist() for length in lengths]


def written(model: Decoder, rows: list[list[int]], how: Sampling) -> list[list[int]]:
    """What each row gets, its seed being itself."""
    steps = sample(model, padded(rows), lengths=[*map(len, rows)], seeds=rows, how=how)
    return [h.tokens for h in gather(steps, end=how.end)]


def parts_at_a_tie(model: Decoder, prompt: list[int], one: list[int], other: list[int]) -> bool:
    """Whether two greedy answers part where the two best logits are as good as equal."""
    place = next(i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    states = model(model.embed(torch.tensor([prompt + one[:place]])))
    best = model.logits(states)[0, -1].topk(2).values
    return float(best[0] - best[1]) < NEAR


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi", "relative"])
@torch.no_grad()
def test_greedy_text_is_the_same_alone_and_in_a_batch_of_mixed_lengths(positions: str) -> None:
    model, rows = decoder(1, positions=positions), prompts(LENGTHS)
    how = Sampling(end=END, longest=20, temperature=0)
    together = written(model, rows, how)
    ties = 0
    for row, got in zip(rows, together, strict=True):
        [alone] = written(model, [row], how)
        if got != alone:
            assert parts_at_a_tie(model, row, got, alone)
            ties += 1
    assert ties <= 1
    # And it is what whole passes without any cache say.
    row, got = rows[5], together[5]
    for place, token in enumerate(got):
        assert int(model.logits(model(model.embed(torch.tensor([row + got[:place]]))))[0, -1].argmax()) == token


@pytest.mark.parametrize("rules", [
    {}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1, "temperature": 1.3}, {"samples": 3, "top_k": 12}])
def test_drawn_text_is_the_same_alone_and_in_a_batch_of_mixed_lengths(rules: dict[str, float]) -> None:
    model, rows = decoder(2, sharpness=1.5), prompts(LENGTHS)
    how = Sampling(end=END, longest=15, seed=7, **rules)  # type: ignore[arg-type]
    together = written(model, rows, how)
    alone = [answer for row in rows for answer in written(model, [row], how)]
    assert together == alone


def test_a_window_is_kept_in_a_batch_of_mixed_lengths() -> None:
    model, rows = decoder(3, window=3), prompts(LENGTHS)
    how = Sampling(end=END, longest=12, temperature=0)
    assert written(model, rows, how) == [written(model, [row], how)[0] for row in rows]


def test_what_stands_after_a_prompt_is_not_read() -> None:
    model, rows = decoder(4), prompts([2, 7, 5])
    how, lengths = Sampling(end=END, longest=9), [2, 7, 5]
    junk = padded(rows)
    junk[0, 2:], junk[2, 5:] = 11, 33
    assert gather(sample(model, junk, lengths=lengths, how=how), end=END) == gather(
        sample(model, padded(rows), lengths=lengths, how=how), end=END)


def test_prompts_that_are_all_shorter_than_what_they_stand_in_are_read_to_their_ends() -> None:
    model, rows = decoder(4), padded(prompts([3, 3]))
    how, wider = Sampling(end=END, longest=9), torch.cat([rows, torch.full((2, 3), 9)], dim=1)
    assert [h.tokens for h in gather(sample(model, wider, lengths=[3, 3], how=how), end=END)] == [
        h.tokens for h in gather(sample(model, rows, how=how), end=END)]


def test_the_samples_of_a_prompt_are_drawn_apart_and_alike_however_many_there_are() -> None:
    model, rows = decoder(5, sharpness=1.0), prompts([4, 6])
    three = written(model, rows, Sampling(end=END, longest=10, samples=3))
    assert len(set(map(tuple, three))) == 6
    one = written(model, rows, Sampling(end=END, longest=10))
    assert [three[0], three[3]] == one


def test_samples_of_a_translation_share_its_source() -> None:
    model = translator(SMALL, sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=6)
    model.eval()
    source, start = torch.randint(3, VOCABULARY, (4, 5)), torch.ones(4, 1, dtype=torch.long)
    how = Sampling(end=END, longest=12, samples=3)
    together = gather(sample(model, start, memory=model.encode(source), seeds=source.tolist(), how=how), end=END)
    for row in range(4):
        alone = gather(sample(model, start[:1], memory=model.encode(source[[row]]), seeds=source[[row]].tolist(),
                              how=how), end=END)
        assert [h.tokens for h in together[3 * row : 3 * row + 3]] == [h.tokens for h in alone]


def test_rows_that_the_caller_has_enough_of_end() -> None:
    model, rows = decoder(7), prompts([3, 3, 3])
    enough: set[int] = set()
    tokens = []
    for drawn in sample(model, padded(rows), how=Sampling(end=999, longest=8), enough=enough):
        tokens.append(drawn.tokens.tolist())
        enough.add(1)
        if len(tokens) == 4:
            enough |= {0, 2}
    assert len(tokens) == 4
    assert [row[1] for row in tokens][1:] == [999] * 3
    assert all(row[0] != 999 != row[2] for row in tokens)


def test_filters_count_from_each_rows_own_length() -> None:
    model, rows = decoder(8, sharpness=6.0), prompts([2, 9, 5, 1])
    lengths, how = [2, 9, 5, 1], Sampling(end=END, longest=14, temperature=0)
    force = ForcePrefix(torch.tensor([5, 6]), start=torch.tensor(lengths))
    for filters in ([NoRepeat(2)], [force], [PenalizeRepeats(1.5)], [force, PenalizeRepeats(1.3), NoRepeat(3)]):
        together = gather(sample(model, padded(rows), lengths=lengths, how=how, filters=filters), end=END)
        for row, got in zip(rows, together, strict=True):
            own = [ForcePrefix(torch.tensor([5, 6]), start=len(row)) if f is force else f for f in filters]
            alone = gather(sample(model, padded([row]), how=how, filters=own), end=END)[0]
            assert got.tokens == alone.tokens
            if force in filters:
                assert got.tokens[:2] == [5, 6]


def test_a_repetition_penalty_makes_what_came_before_less_likely_and_nothing_else() -> None:
    logits, history = torch.tensor([[2.0, -1.0, 0.5, 3.0], [1.0, 1.0, -2.0, 0.0]]), torch.tensor([[0, 1, 3], [2, 2, 0]])
    got = PenalizeRepeats(2.0)(logits, history, length=torch.tensor([2, 1]))
    assert got.tolist() == [[1.0, -2.0, 0.5, 3.0], [1.0, 1.0, -4.0, 0.0]]
    assert torch.equal(PenalizeRepeats(1.0)(logits, history, length=torch.tensor([3])), logits)
