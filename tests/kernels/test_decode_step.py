"""One token through flat blocks: the same as through the blocks themselves, and only where nothing is passed over."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.kernels import linear_onednn
from regard.kernels.kernel import log_kernels, use
from regard.kernels.quantize import quantize
from regard.look.ablate import without
from regard.models.decoder import Decoder
from regard.models.decoder_state import DecoderState
from regard.nn.init import initialize
from regard.settings.schema import Tower

VOCABULARY, ROWS, READ = 40, 3, 5
PLAIN = Tower(width=32, depth=2, heads=4, dropout=0.1)
TOWERS = {
    "gpt2": replace(PLAIN, positions="learned", activation="gelu-tanh"),
    "post-norm": replace(PLAIN, norm_place="post"),
    "llama": replace(PLAIN, positions="rotary", norm="rms", activation="swiglu", kv_heads=2, bias=False),
    "norms on queries and keys": replace(PLAIN, positions="rotary", qk_norm=True),
    "warm": replace(PLAIN, temperature=2.0, head_width=16),
}


def decoder(tower: Tower) -> Decoder:
    model = Decoder(tower, vocabulary=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def begun(model: Decoder) -> DecoderState:
    state = model.begin(ROWS, capacity=12)
    model.step(torch.arange(ROWS * READ).view(ROWS, READ), state)
    return state


def two_steps(model: Decoder, state: DecoderState) -> Tensor:
    return torch.cat([model.step(torch.arange(ROWS)[:, None] + i, state) for i in range(2)], dim=1)


def flat(model: Decoder) -> Tensor:
    state = begun(model)
    with log_kernels() as log:
        states = two_steps(model, state)
    assert log.count("decode_step.cpu") == 2
    return states


def block_by_block(model: Decoder) -> Tensor:
    state = begun(model)
    with use():
        return two_steps(model, state)


def is_flat(model: Decoder, state: DecoderState) -> bool:
    with log_kernels() as log:
        two_steps(model, state)
    return "decode_step.cpu" in log


@pytest.mark.parametrize("tower", TOWERS.values(), ids=TOWERS)
@torch.no_grad()
def test_a_token_through_flat_blocks_is_a_token_through_blocks(tower: Tower) -> None:
    model = decoder(tower)
    torch.testing.assert_close(flat(model), block_by_block(model))
    model.to(torch.bfloat16)
    torch.testing.assert_close(flat(model), block_by_block(model), rtol=0.02, atol=0.02)


@torch.no_grad()
def test_with_narrow_weights_too() -> None:
    model = decoder(TOWERS["gpt2"])
    quantize(model, "int8")
    torch.testing.assert_close(flat(model), block_by_block(model))


@pytest.mark.parametrize("tower", [
    replace(PLAIN, positions="alibi"), replace(PLAIN, positions="relative"), replace(PLAIN, score="bilinear"),
    replace(PLAIN, window=2)], ids=["alibi", "relative", "bilinear", "window"])
@torch.no_grad()
def test_where_a_token_needs_more_it_goes_through_the_blocks(tower: Tower) -> None:
    model = decoder(tower)
    assert not is_flat(model, begun(model))
    torch.testing.assert_close(two_steps(model, begun(model)), block_by_block(model))


@torch.no_grad()
def test_rows_at_other_positions_or_in_other_places_go_through_the_blocks() -> None:
    model = decoder(PLAIN)
    for change in (lambda state: state.truncate(torch.tensor([[5], [3], [4]])),
                   lambda state: state.reorder(torch.tensor([2, 0, 0]))):
        state = begun(model)
        change(state)
        assert not state.in_order
        alone = begun(model)
        change(alone)
        fast = two_steps(model, state)
        with use():
            torch.testing.assert_close(fast, two_steps(model, alone))


def test_nothing_is_passed_over_that_hooks_gradients_or_training_ask_for() -> None:
    model = decoder(PLAIN)
    with torch.no_grad():
        assert is_flat(model, begun(model))
        with without(model, "blocks.1.self", 0):
            assert not is_flat(model, begun(model))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not is_flat(model, begun(model))
        state = begun(model)
        model.train()
        assert not is_flat(model, state)
        model.eval()
        assert is_flat(model, begun(model))
    assert not is_flat(model, begun(model))


@torch.no_grad()
def test_the_choice_of_kernel_is_made_once_for_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = decoder(PLAIN), list[object]()
    serves = linear_onednn.KERNEL.serves
    monkeypatch.setattr(linear_onednn, "KERNEL", replace(
        linear_onednn.KERNEL, serves=lambda call: bool(asked.append(call)) or serves(call)))
    state = model.begin(ROWS, capacity=12)
    for token in range(10):
        model.step(torch.full((ROWS, 1), token), state)
    assert len(asked) == 4 * len(model.blocks)


@torch.no_grad()
def test_a_copied_state_goes_on_with_the_same_weights() -> None:
    model = decoder(PLAIN)
    state = begun(model)
    two_steps(model, state)
    copied = deepcopy(state)
    assert all(mine is theirs for mine, theirs in zip(copied.plan.blocks, model.blocks, strict=True))
    assert copied.plan.on_cpu is not state.plan.on_cpu
    torch.testing.assert_close(two_steps(model, copied), two_steps(model, state))


@torch.no_grad()
def test_keys_that_were_forgotten_in_some_rows_only_are_not_looked_at_again() -> None:
    model = decoder(PLAIN)

    def forgotten() -> DecoderState:
        state = model.begin(2)
        model.step(torch.arange(8).view(2, 4), state)
        state.truncate(torch.tensor([[4], [2]]))
        state.reorder(torch.tensor([1]))
        return state

    fast = model.step(torch.tensor([[7]]), forgotten())
    with use():
        torch.testing.assert_close(fast, model.step(torch.tensor([[7]]), forgotten()))
