"""Rows whose keys lie in one store are what they are when each has its own."""

import pytest
import torch
from torch import Tensor

from regard.look.watch import watch
from regard.models.decoder import Decoder
from regard.models.decoder_state import DecoderState
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.settings.schema import Tower

SOURCES, SIZE, VOCABULARY = 3, 4, 19


def decoder(**settings: object) -> Decoder:
    tower = Tower(**{"width": 16, "depth": 2, "heads": 4, "dropout": 0.0, **settings})  # type: ignore[arg-type]
    model = Decoder(tower, vocabulary=VOCABULARY, memory_width=16).eval()
    initialize(model, seed=0)
    return model


def tokens(rows: int, count: int) -> Tensor:
    return torch.randint(VOCABULARY, (rows, count))


@torch.no_grad()
def both(model: Decoder, *, prompt: int, share: bool = True) -> tuple[DecoderState, DecoderState]:
    """Two states after the same prompt, fanned out; the first has one store for each source."""
    memory, read = Memory(torch.randn(SOURCES, 5, 16)), tokens(SOURCES, prompt)
    found = []
    for shares in (share, False):
        state = model.begin(SOURCES, memory)
        state.may_share = shares
        if prompt:
            model.step(read, state)
        state.fan_out(SIZE)
        found.append(state)
    return found[0], found[1]


@torch.no_grad()
def same_step(model: Decoder, states: tuple[DecoderState, DecoderState], count: int = 1) -> None:
    rows = states[0].rows
    read = tokens(rows, count)
    one, other = (model.step(read, state) for state in states)
    torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("settings", [
    {}, {"positions": "relative"}, {"positions": "alibi"}, {"positions": "rotary"}, {"window": 2}, {"kv_heads": 2},
    {"score": "additive"}, {"norm_place": "pre"}])
@pytest.mark.parametrize("prompt", [0, 3])
def test_rows_change_places_and_leave_their_keys(settings: dict[str, object], prompt: int) -> None:
    torch.manual_seed(prompt)
    model = decoder(**settings)
    states = both(model, prompt=prompt)
    assert states[0].shared_kv is not None
    assert states[1].shared_kv is None
    for _ in range(6):
        same_step(model, states)
        parents = (torch.randint(SIZE, (SOURCES, SIZE)) + SIZE * torch.arange(SOURCES)[:, None]).flatten()
        for state in states:
            state.reorder(parents)


def test_sources_leave_as_they_end() -> None:
    torch.manual_seed(0)
    model = decoder()
    states = both(model, prompt=2)
    same_step(model, states)
    for left in (torch.tensor([0, 2]), torch.tensor([1])):
        for state in states:
            state.reorder((left[:, None] * SIZE + torch.tensor([1, 1, 0, 3])).flatten())
            state.choose(left)
        same_step(model, states)


def test_several_tokens_at_once_and_back_again() -> None:
    torch.manual_seed(0)
    model = decoder()
    states = both(model, prompt=1)
    same_step(model, states, 3)
    for state in states:
        state.truncate(2)
    same_step(model, states, 2)
    same_step(model, states)


def test_a_row_never_goes_to_another_source() -> None:
    states = both(decoder(), prompt=1)
    with pytest.raises(AssertionError, match="stay with it"):
        states[0].reorder(torch.arange(SOURCES * SIZE).roll(1))


def test_who_looks_sees_each_row_with_a_past_of_its_own() -> None:
    torch.manual_seed(0)
    model = decoder()
    with watch(model, "*.self") as seen:
        state = model.begin(SOURCES, Memory(torch.randn(SOURCES, 5, 16)))
        state.fan_out(SIZE)
        assert state.shared_kv is None
        model.step(tokens(SOURCES * SIZE, 2), state)
    assert seen["blocks.0.self"].shape == (SOURCES * SIZE, 4, 2, 2)
    assert model.begin(SOURCES).may_share
    model.blocks[0].register_forward_hook(lambda *seen: None)
    assert not model.begin(SOURCES).may_share


@pytest.mark.parametrize("settings", [{"score": "additive"}, {"kv_heads": 2}])
def test_where_one_store_is_slower_each_has_its_own(settings: dict[str, object]) -> None:
    memory = Memory(torch.randn(SOURCES, 5, 16))
    assert decoder().begin(SOURCES, memory).may_share
    assert not decoder(**settings).begin(SOURCES, memory).may_share
