"""The recurrent translators are the equations of their papers, step by step; and all that writes, writes by them."""

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.check.consistency import CHECKS, checks
from regard.check.probe import made_up, of_encoder_decoder
from regard.generate.beam import Beam, beam
from regard.generate.sampler import Sampling, gather, sample
from regard.look.watch import sites, watch
from regard.models import build
from regard.models.build import text_decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import SCORES
from regard.settings.presets import PRESETS
from regard.settings.schema import Embedding, Recurrence, Tower

WIDTH, VOCABULARY, START, END = 8, 6, 1, 2
TINY = Tower(recurrent=Recurrence(cell="gru"), width=WIDTH, depth=1, heads=1, positions="none",
             embedding=Embedding(scaled=False), dropout=0.0)
PLACES = replace(TINY, score="additive", recurrent=Recurrence(cell="lstm", gate=True))
TOWERS_OF = {"soft": PLACES, "hard": replace(PLACES, recurrent=Recurrence(cell="lstm", attention="hard"))}
NAMES = ["sutskever", "bahdanau", "luong", *TOWERS_OF]
LOOK = ["bahdanau", "luong", *TOWERS_OF]


def recurrent(tower: Tower) -> Recurrence:
    assert tower.recurrent is not None
    return tower.recurrent


def reading(tower: Tower, **how: Any) -> Tower:
    return replace(tower, recurrent=replace(recurrent(tower), **how))


# The papers' equations, for one sentence and one token at a time.

Numbers = dict[str, Tensor]
"""A decoder's parameters by their names."""


def cell(kind: str, at: str, numbers: Numbers, x: Tensor, kept: list[Tensor]) -> list[Tensor]:
    """One step of a layer: its state, and what else it keeps. In torch's order of gates."""
    given = numbers[f"{at}.weight_ih_l0"] @ x + numbers[f"{at}.bias_ih_l0"]
    carried = numbers[f"{at}.weight_hh_l0"] @ kept[0] + numbers[f"{at}.bias_hh_l0"]
    if kind == "elman":
        return [torch.tanh(given + carried)]
    if kind == "gru":
        (gr, gz, gn), (cr, cz, cn) = given.chunk(3), carried.chunk(3)
        z = torch.sigmoid(gz + cz)
        return [z * kept[0] + (1 - z) * torch.tanh(gn + torch.sigmoid(gr + cr) * cn)]
    i, f, g, o = (given + carried).chunk(4)
    c = torch.sigmoid(f) * kept[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


def layers(tower: Tower, numbers: Numbers, x: Tensor, kept: list[list[Tensor]]) -> tuple[Tensor, list[list[Tensor]]]:
    after = []
    for place, own in enumerate(kept):
        after.append(cell(recurrent(tower).cell, f"blocks.{place}.forth", numbers, x, own))
        x = after[-1][0]
    return x, after


def score(kind: str, numbers: Numbers, q: Tensor, k: Tensor) -> Tensor:
    """Luong et al. 2015, 3.1: dot, general and concat, which is Bahdanau et al. 2015, A.1.2; and the others."""
    match kind:
        case "dot":
            return q @ k
        case "scaled-dot":
            return q @ k / WIDTH**0.5
        case "bilinear":
            return q @ numbers["cross.attend.weight"][0] @ k
        case "additive":
            both = torch.cat([numbers["cross.attend.query_weight"][0], numbers["cross.attend.key_weight"][0]]).T
            return numbers["cross.attend.out_weight"][0, :, 0] @ torch.tanh(both @ torch.cat([q, k]))
    return -((q - k) ** 2).sum() / 2


def looked(kind: str, numbers: Numbers, q: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """What a state sees of the source, and how much of each of its states."""
    powers = torch.stack([score(kind, numbers, q, k) for k in h]).exp()
    weights = powers / powers.sum()
    return sum(weight * k for weight, k in zip(weights, h, strict=True)), weights


def begun(tower: Tower, numbers: Numbers, h: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """The vectors before the first token, from the states that have read the source to one of its ends."""
    last = {"forward": h[-1], "backward": h[0],
            "bidirectional": torch.cat([h[-1, : WIDTH // 2], h[0, WIDTH // 2 :]])}[recurrent(tower).direction]
    return list(torch.tanh(numbers["start.weight"] @ last + numbers["start.bias"]).split(list(sizes)))


def bahdanau(tower: Tower, numbers: Numbers, words: Tensor, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Bahdanau et al. 2015, A.2.2, but t from s_i: what the output layer sees of each token, and the weights."""
    (s,), w = begun(tower, numbers, h, [WIDTH]), WIDTH
    word, bias = numbers["word.weight"], numbers["word.bias"]
    given, seen, gates = (numbers[f"{name}.weight"] for name in ("word", "seen", "gates"))
    states, every = [], []
    for e in words:
        c, weights = looked(tower.score, numbers, s, h)
        r = torch.sigmoid(word[:w] @ e + bias[:w] + seen[:w] @ c + gates[:w] @ s)
        z = torch.sigmoid(given[w : 2 * w] @ e + bias[w : 2 * w] + seen[w : 2 * w] @ c + gates[w:] @ s)
        new = torch.tanh(given[2 * w :] @ e + bias[2 * w :] + seen[2 * w :] @ c
                         + numbers["candidate.weight"] @ (r * s))
        s = (1 - z) * s + z * new
        t = numbers["deep.weight"] @ torch.cat([s, e, c]) + numbers["deep.bias"]
        states.append(torch.maximum(t[0::2], t[1::2]))
        every.append(weights)
    return states, every


def show_attend_tell(tower: Tower, numbers: Numbers, words: Tensor, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Xu et al. 2015, eq. 1 to 7, 4.2.1, and eq. 9 with the likeliest place."""
    both = torch.tanh(numbers["start.weight"] @ h.mean(0) + numbers["start.bias"])
    (state, kept), states, every = both.chunk(2), [], []
    for e in words:
        mean, weights = looked(tower.score, numbers, state, h)
        seen = h[weights.argmax()] if recurrent(tower).attention == "hard" else mean
        if recurrent(tower).gate:
            seen = torch.sigmoid(numbers["gate.weight"] @ state + numbers["gate.bias"]) * seen
        i, f, g, o = (numbers["word.weight"] @ e + numbers["word.bias"] + numbers["seen.weight"] @ seen
                      + numbers["carried.weight"] @ state).chunk(4)
        kept = torch.sigmoid(f) * kept + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o) * torch.tanh(kept)
        word = numbers["deep_word.weight"] @ e if "deep_word.weight" in numbers else e
        states.append(word + numbers["deep_state.weight"] @ state + numbers["deep_state.bias"]
                      + numbers["deep_seen.weight"] @ seen)
        every.append(weights)
    return states, every


def stacked(tower: Tower) -> list[int]:
    return [WIDTH] * ((2 if recurrent(tower).cell == "lstm" else 1) * tower.depth)


def by_layer(tower: Tower, vectors: list[Tensor]) -> list[list[Tensor]]:
    each = len(vectors) // tower.depth
    return [vectors[place : place + each] for place in range(0, len(vectors), each)]


def luong(tower: Tower, numbers: Numbers, words: Tensor, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Luong et al. 2015, eq. 5 and 7, and 3.3."""
    out = numbers["combine.weight"].shape[0]
    vectors = begun(tower, numbers, h, [*stacked(tower), *([out] if recurrent(tower).input_feeding else [])])
    fed = vectors.pop() if recurrent(tower).input_feeding else None
    kept, states, every = by_layer(tower, vectors), [], []
    for e in words:
        state, kept = layers(tower, numbers, e if fed is None else torch.cat([e, fed]), kept)
        c, weights = looked(tower.score, numbers, state, h)
        states.append(torch.tanh(numbers["combine.weight"] @ torch.cat([c, state])))
        fed = states[-1] if recurrent(tower).input_feeding else None
        every.append(weights)
    return states, every


def left(tower: Tower, numbers: Numbers, words: Tensor) -> list[list[Tensor]]:
    """Sutskever et al. 2014, 3: the vectors of each layer when it has read a source."""
    ways = {"forward": ["forth"], "backward": ["back"], "bidirectional": ["forth", "back"]}[recurrent(tower).direction]
    width, every, x = WIDTH // len(ways), [], list(words)
    for layer in range(tower.depth):
        states, ends = [], []
        for way in ways:
            kept = [words.new_zeros(width)] * (2 if recurrent(tower).cell == "lstm" else 1)
            passed = []
            for e in x if way == "forth" else x[::-1]:
                kept = cell(recurrent(tower).cell, f"encoder.blocks.{layer}.{way}", numbers, e, kept)
                passed.append(kept[0])
            states.append(passed if way == "forth" else passed[::-1])
            ends.append(kept)
        x = [torch.cat(parts) for parts in zip(*states, strict=True)]
        every.append([torch.cat(parts) for parts in zip(*ends, strict=True)])
    return every


def fixed(tower: Tower, numbers: Numbers, words: Tensor, kept: list[list[Tensor]]) -> Tensor:
    """And what is written from there."""
    own, states = {name.removeprefix("decoder."): p for name, p in numbers.items() if name.startswith("decoder.")}, []
    for e in words:
        state, kept = layers(tower, own, e, kept)
        states.append(own["narrow.weight"] @ state + own["narrow.bias"] if "narrow.weight" in own else state)
    return torch.stack(states)


def paper(tower: Tower) -> Callable[[Tower, Numbers, Tensor, Tensor], tuple[list[Tensor], list[Tensor]]]:
    if recurrent(tower).context == "output":
        return luong
    return show_attend_tell if recurrent(tower).cell == "lstm" else bahdanau


# Against them.

TOWERS = [
    *(replace(reading(TINY, direction="bidirectional"), score=score) for score in SCORES),
    replace(reading(TINY, direction="backward"), score="additive", embedding=Embedding(scaled=False, width=4)),
    replace(TINY, score="additive", tied="none"),
    *(replace(reading(TINY, cell="lstm", attention=kind, gate=gate), score=score)
      for kind, gate, score in [("soft", False, "additive"), ("soft", True, "scaled-dot"), ("hard", True, "additive"),
                                ("hard", False, "bilinear")]),
    replace(reading(TINY, cell="lstm", gate=True), score="additive", embedding=Embedding(scaled=False, width=4)),
    *(replace(reading(TINY, cell=cell, context="output", direction="bidirectional", input_feeding=feeding), score=score,
              depth=depth)
      for (score, feeding), (depth, cell) in zip(
          itertools.product(SCORES, [False, True]), itertools.cycle([(1, "lstm"), (2, "gru"), (3, "elman")]),
          strict=False)),
    replace(reading(TINY, cell="lstm", context="output", direction="backward", input_feeding=True), score="bilinear",
            depth=2, embedding=Embedding(scaled=False, width=4)),
]
BOTTLENECKS = [
    replace(reading(TINY, cell=cell, context="fixed", direction=direction), depth=depth,
            embedding=Embedding(scaled=False, width=narrow))
    for cell, depth, direction, narrow in [("lstm", 2, "backward", None), ("gru", 1, "forward", None),
                                           ("elman", 3, "bidirectional", None), ("lstm", 1, "bidirectional", 4)]]


def named(tower: Tower) -> str:
    how = recurrent(tower)
    words = [how.context, how.cell, str(tower.depth), how.direction, tower.score, tower.tied]
    more = {"fed": how.input_feeding, "hard": how.attention == "hard", "gate": how.gate,
            "narrow": tower.embedding.width is not None}
    return " ".join([*words, *(name for name, given in more.items() if given)])


Model = TypeVar("Model", bound=nn.Module)


def shaken(model: Model) -> Model:
    """With weights and biases of every size, in float64."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def source_of(lengths: Sequence[int]) -> tuple[Memory, list[Tensor]]:
    """States of sources with padding behind them; and without, each by itself."""
    states = torch.randn(len(lengths), max(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(states, Mask(keys=real)), [row[:length] for row, length in zip(states, lengths, strict=True)]


def numbers_of(model: nn.Module) -> Numbers:
    return dict(model.named_parameters())


@pytest.mark.parametrize("tower", TOWERS, ids=named)
def test_states_weights_and_gradients_are_those_of_the_papers_equations(tower: Tower) -> None:
    model = shaken(text_decoder(tower, vocabulary=VOCABULARY, memory_width=WIDTH))
    memory, alone = source_of([5, 2, 4])
    tokens = torch.randint(0, VOCABULARY, (3, 6))
    x, numbers = model.embed(tokens), numbers_of(model)
    read = [paper(tower)(tower, numbers, words, h) for words, h in zip(x, alone, strict=True)]
    expected = torch.stack([torch.stack(states) for states, _ in read])
    with watch(model) as seen:
        states = model(x, memory)
    for row, (_, weights) in enumerate(read):
        length, found = len(alone[row]), seen["cross"][row, 0].double()
        torch.testing.assert_close(found[:, :length], torch.stack(weights).detach(), rtol=0, atol=1e-6)
        assert (found[:, length:] == 0).all()
    same_with_gradients(states, expected, [memory.states, *numbers.values()])


@pytest.mark.parametrize("tower", BOTTLENECKS, ids=named)
def test_a_decoder_without_attention_goes_on_from_where_each_layer_of_the_encoder_has_ended(tower: Tower) -> None:
    model = shaken(build.translator(tower, sources=VOCABULARY, targets=VOCABULARY))
    source, target, lengths, numbers = text(3, 5), text(3, 4), [5, 2, 4], numbers_of(model)
    words, written = model.encoder.embed(source), model.decoder.embed(target)
    expected = torch.stack([fixed(tower, numbers, written[row], left(tower, numbers, words[row, :length]))
                            for row, length in enumerate(lengths)])
    same_with_gradients(model(source, target, mask=real(lengths)), expected, list(numbers.values()))


def same_with_gradients(ours: Tensor, theirs: Tensor, learned: Sequence[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    direction = torch.randn_like(theirs)
    mine, others = (torch.autograd.grad(states, learned, direction, retain_graph=True, allow_unused=True)
                    for states in (ours, theirs))
    for one, other in zip(mine, others, strict=True):
        assert (one is None or not one.any()) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("half", [False, True])
def test_the_gradient_by_hand_is_the_one_that_autograd_finds(half: bool, temperature: float) -> None:
    """In bfloat16 as far as it goes: there, what is summed over the steps is rounded less often by hand."""
    source, target, found = text(3, 7), text(3, 9), []
    for by_hand in (True, False):
        model = translator("bahdanau", temperature=temperature)
        model.decoder.additive = by_hand
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            states = model(source, target, mask=real([7, 3, 5]))
        (states.float() * torch.linspace(-1, 1, states.shape[-1])).sum().backward()
        found.append([states, *(p.grad for p in model.parameters())])
    assert torch.equal(found[0][0], found[1][0])
    for mine, other in zip(*found, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert (mine - other).norm() <= (0.03 if half else 1e-5) * other.norm()


def test_the_output_is_the_words_own_matrix_where_they_are_tied() -> None:
    for name in NAMES:
        tower = small(name)
        for tied, same in (("all", True), ("none", False)):
            model = text_decoder(replace(tower, tied=tied), vocabulary=VOCABULARY, memory_width=tower.width)
            assert (model.output.weight is model.tokens.table.weight) == same


@pytest.mark.parametrize("score", SCORES)
def test_what_is_known_of_the_keys_beforehand_changes_no_weight(score: str) -> None:
    attend = SCORES[score]((WIDTH, WIDTH))
    for parameter in attend.parameters():
        nn.init.normal_(parameter)
    q, k = torch.randn(2, 2, 3, WIDTH), torch.randn(2, 2, 5, WIDTH)
    mask = Mask(keys=torch.arange(5).expand(2, -1) < 4)
    weights = attend.weights(q, k, mask=mask)
    assert torch.equal(attend.weights(q, k, mask=mask, projected_keys=attend.project_keys(k)), weights)
    torch.testing.assert_close(attend(q, k, k, mask=mask, projected_keys=attend.project_keys(k)).context, weights @ k)


# The one search, the one sampler, and all that looks on.


def small(name: str) -> Tower:
    return replace(TOWERS_OF.get(name) or PRESETS[name](), width=16, dropout=0.0)


def translator(name: str, seed: int = 0, *, vocabulary: int = VOCABULARY, **settings: object) -> EncoderDecoder:
    model = build.translator(replace(small(name), **settings), sources=vocabulary, targets=vocabulary)
    initialize(model, seed=seed)
    with torch.no_grad():
        model.decoder.output.weight.mul_(2.0)
    return model.eval()


def text(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def prompts(rows: int) -> Tensor:
    return torch.full((rows, 1), START)


def real(lengths: Sequence[int]) -> Mask:
    return Mask(keys=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def scored(model: EncoderDecoder, source: Tensor, longest: int) -> list[tuple[float, tuple[int, ...]]]:
    """All answers to one source, the best first: from whole forward passes, without a state."""
    found = []
    for length in range(1, longest + 1):
        every = [answer for answer in itertools.product(range(VOCABULARY), repeat=length)
                 if END not in answer[:-1] and (answer[-1] == END or length == longest)]
        tokens = torch.tensor(every)
        read = torch.cat([prompts(len(every)), tokens[:, :-1]], dim=1)
        chances = model.logits(model(source.expand(len(every), -1), read)).log_softmax(-1)
        totals = chances.gather(2, tokens[:, :, None]).sum((1, 2)) / length
        found += zip(totals.tolist(), every, strict=True)
    return sorted(found, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_wide_enough_beam_finds_what_exhaustive_search_finds(name: str) -> None:
    longest, lengths = 3, [5, 3]
    model, source = translator(name), text(2, 5)
    found = beam(model, prompts(2), memory=model.encode(source, real(lengths)),
                 how=Beam(end=END, longest=longest, size=VOCABULARY**longest))
    for row, length in enumerate(lengths):
        expected = scored(model, source[row, :length], longest)
        assert len(found[row]) == len(expected)
        for hypothesis, (score, answer) in zip(found[row][:10], expected[:10], strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert tuple(hypothesis.tokens) == tuple(token for token in answer if token != END)


@pytest.mark.parametrize("name", NAMES)
def test_samples_follow_the_model_and_the_coldest_are_the_beam_of_one(name: str) -> None:
    model, source, rows = translator(name), text(4, 5), 4000
    memory = model.encode(source)
    cold = gather(sample(model, prompts(4), memory=memory, how=Sampling(end=END, longest=8, temperature=0)), end=END)
    searched = beam(model, prompts(4), memory=memory, how=Beam(end=END, longest=8, size=1))
    assert [row[0].tokens for row in searched] == [row.tokens for row in cold]
    many = Memory(memory.states[:1].expand(rows, -1, -1))
    first = next(sample(model, prompts(rows), memory=many, how=Sampling(end=END, longest=1)))
    expected = model.logits(model(source[:1], prompts(1)))[0, 0].softmax(-1)
    seen = torch.bincount(first.tokens, minlength=VOCABULARY) / rows
    assert (seen - expected).abs().max() < 4 * 0.5 / rows**0.5


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", LOOK)
def test_watching_changes_no_bit_and_joins_the_weights_of_all_steps(name: str, score: str) -> None:
    model, source, target = translator(name, score=score), text(2, 5), text(2, 7)
    mask = real([5, 3])
    assert list(sites(model)) == ["decoder.cross"]
    with torch.no_grad():
        before = model(source, target, mask=mask)
        with watch(model) as seen:
            assert torch.equal(model(source, target, mask=mask), before)
        state = model.begin(2, model.encode(source, mask), capacity=9)
        with watch(model) as stepped:
            for piece in target.split([1, 2, 4], dim=1):
                model.step(piece, state)
    weights = seen["decoder.cross"]
    assert weights.shape == (2, 1, 7, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 7))
    assert (weights[1, :, :, 3:] == 0).all()
    torch.testing.assert_close(stepped["decoder.cross"], weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_learns_is_watched_without_a_change_too(name: str) -> None:
    model, source, target = translator(name), text(2, 5), text(2, 7)
    plain = model(source, target)
    with watch(model) if sites(model) else torch.enable_grad():
        watched = model(source, target)
    assert torch.equal(plain, watched)


@pytest.mark.parametrize("name", NAMES)
def test_every_check_holds(name: str) -> None:
    model = translator(name, vocabulary=64)
    rows, sources = made_up(60)[:4], made_up(60)[4:8]
    found = list(checks(of_encoder_decoder(model, sources, [[START, *row] for row in rows], pad=0, token_pad=0,
                                           end=END, decode=lambda ids: " ".join(map(str, ids)))))
    assert [check.name for check in found if not check.holds] == []
    # They know the order without positions; and where there is no attention, none is fused.
    assert len(found) == len(CHECKS) - (1 if sites(model) else 2)


# What is carried from step to step.


@settings(max_examples=12)
@given(name=st.sampled_from(NAMES), pieces=st.lists(st.integers(1, 4), min_size=1, max_size=5),
       capacity=st.booleans(), share=st.integers(1, 3))
def test_step_by_step_is_the_whole_at_once(name: str, pieces: list[int], capacity: bool, share: int) -> None:
    model, length = translator(name), sum(pieces)
    source, target, mask = text(2, 6), text(2 * share, length), real([6, 4])
    state = model.begin(2 * share, model.encode(source, mask), capacity=length + 2 if capacity else None)
    states = torch.cat([model.step(piece, state) for piece in target.split(pieces, dim=1)], dim=1)
    assert mask.keys is not None
    whole = model(source.repeat_interleave(share, 0), target, mask=Mask(keys=mask.keys.repeat_interleave(share, 0)))
    torch.testing.assert_close(states, whole, rtol=1e-5, atol=1e-5)
    assert state.position.tolist() == [[length]]


@settings(max_examples=12)
@given(name=st.sampled_from(NAMES), read=st.integers(1, 7), kept=st.lists(st.integers(0, 8), min_size=3, max_size=3),
       one=st.booleans(), capacity=st.booleans())
def test_a_state_can_go_back_in_each_row_and_take_another_way(
        name: str, read: int, kept: list[int], one: bool, capacity: bool) -> None:
    """To one place in all rows, or to another in each; a place that was never reached changes nothing."""
    model, source, first, then = translator(name), text(3, 6), text(3, read, 1), text(3, 4, 2)
    lengths = [6, 2, 5]
    state = model.begin(3, model.encode(source, real(lengths)), capacity=16 if capacity else None)
    model.step(first, state)
    state.truncate(kept[0] if one else torch.tensor(kept)[:, None])
    places = [min(read, kept[0] if one else place) for place in kept]
    assert state.position.expand(3, 1).flatten().tolist() == places
    if not one and not capacity:
        return  # rows that stand at different places need a state of fixed size
    after = model.step(then, state)
    for row, place in enumerate(places):
        alone = model.begin(1, model.encode(source[row : row + 1, : lengths[row]]))
        whole = model.step(torch.cat([first[row, :place], then[row]])[None], alone)
        torch.testing.assert_close(after[row], whole[0, place:], rtol=1e-5, atol=1e-5)


@settings(max_examples=12)
@given(name=st.sampled_from(NAMES), rows=st.lists(st.integers(0, 1), min_size=4, max_size=4),
       sources=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True), capacity=st.booleans())
def test_rows_take_the_place_of_others_and_sources_are_left_behind(
        name: str, rows: list[int], sources: list[int], capacity: bool) -> None:
    """Two rows to a source, as beams have them: rows[2i] and rows[2i + 1] say whom the rows of source i follow."""
    model, source, target, mask = translator(name), text(3, 6), text(6, 5, 3), real([6, 3, 5])
    state = model.begin(6, model.encode(source, mask), capacity=12 if capacity else None)
    model.step(target[:, :2], state)
    within = torch.tensor([*rows, 0, 1]).view(3, 2) + 2 * torch.arange(3)[:, None]
    state.reorder(within.flatten())
    kept = torch.tensor(sources)
    state.reorder((2 * kept[:, None] + torch.arange(2)).flatten())
    state.choose(kept)
    follow, going_on = within[kept].flatten(), target[:, 2:][: 2 * len(kept)]
    assert mask.keys is not None
    whole = model(source[kept].repeat_interleave(2, 0), torch.cat([target[follow, :2], going_on], dim=1),
                  mask=Mask(keys=mask.keys[kept].repeat_interleave(2, 0)))
    torch.testing.assert_close(model.step(going_on, state), whole[:, 2:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_beams_share_their_source_and_what_is_known_of_it(name: str) -> None:
    model = translator(name)
    state = model.begin(2, model.encode(text(2, 5)))
    shared = state.source.tensors()
    state.reorder(torch.tensor([0, 0, 0, 1, 1, 1]))
    model.step(prompts(6), state)
    assert [tensor.data_ptr() for tensor in state.source.tensors()] == [tensor.data_ptr() for tensor in shared]
    assert all(len(tensor) == 2 for tensor in shared)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_copy_of_a_state_goes_on_by_itself_with_the_same_weights(name: str) -> None:
    model, target = translator(name), text(2, 4)
    state = model.begin(2, model.encode(text(2, 5)), capacity=8)
    model.step(target[:, :2], state)
    copy = deepcopy(state)
    assert copy.decoder is state.decoder
    one, other = model.step(target[:, 2:], state), model.step(target[:, 2:], copy)
    assert torch.equal(one, other)
    assert not {tensor.data_ptr() for tensor in copy.tensors()} & {tensor.data_ptr() for tensor in state.tensors()}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_runs_under_autocast(name: str) -> None:
    model, source, target = translator(name), text(2, 6), text(2, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        state = model.begin(2, model.encode(source), capacity=8)
        states = torch.cat([model.step(piece, state) for piece in target.split(1, dim=1)], dim=1)
    torch.testing.assert_close(states.float(), model(source, target).detach(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_learns(name: str) -> None:
    model = build.translator(replace(small(name), dropout=0.1, attention_dropout=0.1), sources=VOCABULARY,
                           targets=VOCABULARY)
    initialize(model, seed=0)
    model.logits(model(text(2, 6), text(2, 7), mask=real([6, 4]))).logsumexp(-1).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0
