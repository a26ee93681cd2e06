"""Encoder, decoder and both together: nothing leaks, and every way of running gives the same."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.models import build
from regard.models.build import text_encoder
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import SCORES
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower

VOCABULARY, LENGTH = 40, 9
POSITIONS = get_args(get_type_hints(Tower)["positions"])

TOWER = Tower(width=16, depth=2, heads=4, ffn_width=24, max_positions=32)

towers = st.builds(
    lambda **chosen: replace(TOWER, **chosen),
    positions=st.sampled_from(POSITIONS), norm_place=st.sampled_from(["pre", "post"]),
    score=st.sampled_from(list(SCORES)),
    kv_heads=st.sampled_from([None, 1, 2]), norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["relu", "swiglu"]), head_width=st.sampled_from([None, 6]))


def ready(model: nn.Module) -> nn.Module:
    initialize(model, seed=0)
    return model.eval()


def decoder(tower: Tower) -> Decoder:
    return ready(Decoder(tower, vocabulary=VOCABULARY))


def translator(tower: Tower) -> EncoderDecoder:
    return ready(build.translator(tower, sources=VOCABULARY, targets=VOCABULARY))


def text(rows: int, length: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (rows, length))


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(towers, st.integers(1, LENGTH - 1))
def test_a_later_token_changes_nothing_before_it_not_a_bit(tower: Tower, place: int) -> None:
    source, target = text(2, 7), text(2, LENGTH)
    changed = target.clone()
    changed[:, place:] = text(2, LENGTH - place)
    alone, both = decoder(tower), translator(tower)
    for states in (lambda t: alone(alone.embed(t)), lambda t: both(source, t)):
        before, after = states(target), states(changed)
        assert torch.equal(before[:, :place], after[:, :place])


@settings(max_examples=40)
@given(towers, st.integers(1, 5))
def test_padding_is_seen_by_nobody(tower: Tower, extra: int) -> None:
    model, source, target = translator(tower), text(2, 6), text(2, 7)
    keys = torch.arange(6 + extra).expand(2, -1) < 6
    padded = torch.cat([source, text(2, extra)], dim=1)
    longer = torch.cat([target, text(2, extra)], dim=1)
    same(model(padded, longer, mask=Mask(keys=keys))[:, :7], model(source, target))


@settings(max_examples=40)
@given(towers, st.lists(st.integers(1, 8), min_size=2, max_size=4))
def test_a_sentence_gives_the_same_alone_and_in_a_batch(tower: Tower, lengths: list[int]) -> None:
    model, longest = translator(tower), max(lengths)
    source, target = text(len(lengths), longest), text(len(lengths), 5)
    keys = torch.arange(longest) < torch.tensor(lengths)[:, None]
    batch = model.logits(model(source, target, mask=Mask(keys=keys)))
    for row, length in enumerate(lengths):
        alone = model.logits(model(source[row:row + 1, :length], target[row:row + 1]))
        same(batch[row:row + 1], alone)


@settings(max_examples=60)
@given(towers, st.lists(st.integers(1, 4), min_size=1, max_size=6), st.booleans(), st.integers(1, 3))
def test_step_by_step_is_the_whole_at_once(tower: Tower, steps: list[int], fixed: bool, share: int) -> None:
    """With a cache that grows or one of fixed size; and with several rows (beams) to a source."""
    model, length = translator(tower), sum(steps)
    source, target = text(2, 6), text(2 * share, length)
    mask = Mask(keys=torch.tensor([[True] * 6, [True] * 4 + [False] * 2]))
    state = model.begin(2 * share, model.encode(source, mask), capacity=length + 3 if fixed else None)
    states = torch.cat([model.step(piece, state) for piece in target.split(steps, dim=1)], dim=1)
    whole = model(source.repeat_interleave(share, 0), target, mask=Mask(keys=mask.keys.repeat_interleave(share, 0)))
    same(states, whole)
    assert state.position.tolist() == [[length]]


@pytest.mark.parametrize("capacity", [None, 12])
def test_a_state_can_go_back_and_take_another_way(capacity: int | None) -> None:
    model, source, target = translator(TOWER), text(3, 6), text(3, LENGTH)
    state = model.begin(3, model.encode(source), capacity=capacity)
    model.step(target[:, :4], state)
    model.step(text(3, 5), state)
    state.truncate(4)
    same(model.step(target[:, 4:], state), model(source, target)[:, 4:])


def test_truncating_moves_no_row_forward() -> None:
    model = decoder(TOWER)
    state = model.begin(3, capacity=12)
    model.step(text(3, 6), state)
    state.position = torch.tensor([[2], [5], [6]])  # the rows end at different places
    state.truncate(5)
    assert state.position.tolist() == [[2], [5], [5]]


@pytest.mark.parametrize("capacity", [None, 12])
def test_rows_can_be_reordered_and_sources_left_behind(capacity: int | None) -> None:
    model, source, target = translator(TOWER), text(3, 6), text(6, LENGTH)
    keys = torch.arange(6) < torch.tensor([[6], [3], [5]])
    state = model.begin(6, model.encode(source, Mask(keys=keys)), capacity=capacity)
    model.step(target[:, :4], state)
    kept, rows = torch.tensor([0, 2]), torch.tensor([1, 1, 4, 5])  # two rows to a source
    state.choose(kept)
    state.reorder(rows)
    whole = model(source[[0, 0, 2, 2]], target[rows], mask=Mask(keys=keys[[0, 0, 2, 2]]))
    same(model.step(target[rows, 4:], state), whole[:, 4:])


def test_the_source_s_window_does_not_narrow_what_the_target_sees() -> None:
    model, source, target = translator(TOWER), text(2, 12), text(2, 5)
    mask = Mask(keys=torch.arange(12).expand(2, -1) < 10, window=2)
    memory = Memory(model.encoder(model.encoder.embed(source), mask=mask), Mask(keys=mask.keys))
    same(model(source, target, mask=mask), model.decoder(model.decoder.embed(target), memory))


@pytest.mark.parametrize("capacity", [None, 12])
def test_a_step_runs_under_autocast(capacity: int | None) -> None:
    model, source, target = translator(TOWER), text(2, 6), text(2, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        state = model.begin(2, model.encode(source), capacity=capacity)
        states = torch.cat([model.step(piece, state) for piece in target.split(1, dim=1)], dim=1)
    torch.testing.assert_close(states.float(), model(source, target).detach(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_every_positions_kind_and_norm_place_learns(positions: str, place: str, norm: str) -> None:
    tower = replace(TOWER, positions=positions, norm_place=place, norm=norm, dropout=0.1, attention_dropout=0.1)
    model = translator(tower).train()
    logits = model.logits(model(text(2, 6), text(2, 7), mask=Mask(keys=torch.ones(2, 6, dtype=torch.bool))))
    logits.logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("kind", ["sinusoidal", "fourier", "learned"])
def test_concatenated_positions_fill_up_the_width(kind: str, place: str) -> None:
    model = translator(replace(TOWER, positions=kind, position_width=6, norm_place=place))
    assert model.decoder.tokens.table.weight.shape == (VOCABULARY, 10)
    assert model.decoder.embed(text(2, 7)).shape == (2, 7, 16)
    model.logits(model(text(2, 6), text(2, 7))).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_tied_weights_are_one_tensor() -> None:
    def tables(tied: str, sources: int = VOCABULARY) -> list[Tensor]:
        model = build.translator(replace(TOWER, tied=tied), sources=sources, targets=VOCABULARY)
        inputs, decoder = model.encoder.inputs, model.decoder
        return [inputs.tokens.table.weight, decoder.tokens.table.weight, decoder.output.weight]

    assert len({id(table) for table in tables("all")}) == 1
    assert len({id(table) for table in tables("none")}) == 3
    for source, target, output in (tables("output"), tables("all", sources=30)):
        assert target is output
        assert source is not target


def test_tied_weights_stay_one_tensor_when_the_model_is_moved_or_loaded() -> None:
    model = build.translator(TOWER, sources=VOCABULARY, targets=VOCABULARY)
    model.to(torch.float64).load_state_dict(translator(TOWER).double().state_dict())
    assert model.encoder.inputs.tokens.table.weight is model.decoder.output.weight


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_transformer_base_has_the_parameters_that_its_formula_gives() -> None:
    width, hidden, depth, vocabulary = 512, 2048, 6, 37_000
    attention = 4 * (width * width + width)
    feed_forward = width * hidden + hidden + hidden * width + width
    norm = 2 * width
    expected = vocabulary * width + depth * (attention + feed_forward + 2 * norm) + depth * (
        2 * attention + feed_forward + 3 * norm)
    with torch.device("meta"):
        model = build.translator(PRESETS["transformer-base"](), sources=vocabulary, targets=vocabulary)
    assert parameters(model) == expected == 63_082_496  # the paper's table 3 says 65 million


def test_the_encoder_and_the_decoder_are_the_same_blocks() -> None:
    encoder, alone = text_encoder(TOWER, vocabulary=VOCABULARY), Decoder(TOWER, vocabulary=VOCABULARY)
    assert list(encoder.blocks.state_dict()) == list(alone.blocks.state_dict())
    assert type(encoder.blocks[0]) is type(alone.blocks[0])


def test_a_seed_gives_the_same_model_and_another_seed_another() -> None:
    first, again, other = (Decoder(TOWER, vocabulary=VOCABULARY) for _ in range(3))
    for model, seed in ((first, 1), (again, 1), (other, 2)):
        initialize(model, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.tokens.table.weight, other.tokens.table.weight)


def test_a_decoder_with_a_window_sees_no_further_back_through_one_block() -> None:
    tower = Tower(width=16, depth=1, heads=2, positions="rotary", window=2, dropout=0.0)
    model = Decoder(tower, vocabulary=11)
    initialize(model, seed=0)
    tokens = torch.arange(8)[None] % 11
    other = tokens.clone()
    other[0, 0] = 9
    with torch.no_grad():
        a, b = model(model.embed(tokens)), model(model.embed(other))
    assert torch.equal(a[:, 3:], b[:, 3:])
    assert not torch.equal(a[:, 2], b[:, 2])
