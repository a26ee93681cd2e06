"""Recurrent blocks: what they keep of a text, back-propagation through time by its formula, and where it is cut."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.models.build import text_decoder, text_encoder
from regard.models.recurrent_decoder import RecurrentDecoder
from regard.models.recurrent_layer import Recurrent, summary, turned
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.presets import PRESETS
from regard.settings.schema import Recurrence, Tower

CELLS = ["elman", "gru", "lstm"]


@contextmanager
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def filled(model: nn.Module, seed: int = 0) -> None:
    """Random weights, biases too: with zeros a formula would be right without them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, 0.6, generator=generator))


# Reading.


def steps(cell: nn.RNN | nn.GRU | nn.LSTM, x: Tensor) -> Tensor:
    """The states of one row by the cells' equations, one token after the other."""
    w_x, w_h, b_x, b_h = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
    h = c = torch.zeros(w_h.shape[1])
    states = []
    for token in x:
        of_x, of_h = w_x @ token + b_x, w_h @ h + b_h
        if isinstance(cell, nn.LSTM):
            i, f, g, o = (of_x + of_h).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        elif isinstance(cell, nn.GRU):
            (r_x, z_x, n_x), (r_h, z_h, n_h) = of_x.chunk(3), of_h.chunk(3)
            z = (z_x + z_h).sigmoid()
            h = (1 - z) * (n_x + (r_x + r_h).sigmoid() * n_h).tanh() + z * h
        else:
            h = (of_x + of_h).tanh()
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
def test_a_block_is_its_equations_token_by_token_in_each_direction(kind: str, direction: str) -> None:
    with doubles():
        block = Recurrent(kind, 8, inputs=5, direction=direction)
        filled(block)
        lengths = [7, 4, 1]
        x, real = torch.randn(3, 7, 5), torch.arange(7) < torch.tensor(lengths)[:, None]
        states = block(x, mask=Mask(keys=real))
        for row, length in enumerate(lengths):
            read = x[row, :length]
            parts = [] if block.forth is None else [steps(block.forth, read)]
            parts += [] if block.back is None else [steps(block.back, read.flip(0)).flip(0)]
            torch.testing.assert_close(states[row, :length], torch.cat(parts, dim=-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", CELLS)
def test_a_text_that_is_read_in_pieces_gives_the_states_of_the_whole(kind: str) -> None:
    with doubles():
        block = Recurrent(kind, 6)
        filled(block)
        x = torch.randn(2, 9, 6)
        vectors = tuple(torch.zeros(2, 6) for _ in range(block.vectors))
        parts = []
        for piece in x.split([4, 1, 3, 1], dim=1):
            states, vectors = block.read(piece, vectors)
            parts.append(states)
        torch.testing.assert_close(torch.cat(parts, dim=1), block(x), rtol=0, atol=1e-12)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_a_text_that_is_turned_twice_is_itself_and_once_has_its_last_token_first(lengths: list[int]) -> None:
    real = torch.arange(6) < torch.tensor(lengths)[:, None]
    x = torch.arange(len(lengths) * 6.0).view(len(lengths), 6, 1)
    once = turned(x, real)
    assert turned(once, real).equal(x)
    for row, length in enumerate(lengths):
        assert once[row, :length].equal(x[row, :length].flip(0))
        assert once[row, length:].equal(x[row, length:])


@pytest.mark.parametrize("direction", ["forward", "backward", "bidirectional"])
def test_the_summary_of_a_text_changes_with_each_of_its_tokens_and_not_with_padding(direction: str) -> None:
    block = Recurrent("gru", 8, direction=direction)
    filled(block)
    x, real = torch.randn(1, 6, 8), torch.arange(6)[None] < 4

    def of(x: Tensor) -> Tensor:
        return summary(block(x, mask=Mask(keys=real)), real, direction=direction)

    for place in range(6):
        other = x.clone()
        other[:, place] += 1.0
        assert bool((of(other) == of(x)).all()) == (place >= 4)


# Back-propagation through time: docs/bptt.md has the derivation.


def through_time(block: Recurrent, x: Tensor, errors: Tensor, *, back: int | None = None) -> dict[str, Tensor]:
    """The gradients of a loss whose own derivative by the state h_t is errors[t], as sums over t and k ≤ t.

    With `back`, a sum has only those pairs of t and k that stand in the same piece of so many tokens.
    """
    assert isinstance(block.forth, nn.RNN)
    cell = block.forth
    v = cell.weight_hh_l0.detach()
    with torch.no_grad():
        states = torch.cat([torch.zeros(1, len(v)), block(x[None])[0]])  # h_0, h_1, …
    gradients = {name: torch.zeros_like(parameter) for name, parameter in cell.named_parameters()}
    of_x = torch.zeros_like(x)
    for t in range(1, len(states)):
        for k in range(1, t + 1):
            if back is not None and (t - 1) // back != (k - 1) // back:
                continue
            passed = errors[t - 1]
            for i in range(t, k, -1):  # ∂h_i/∂h_{i-1} = diag(1 - h_i²) V, from the right-most error to h_k
                passed = (passed * (1 - states[i] ** 2)) @ v
            delta = passed * (1 - states[k] ** 2)  # by what is inside the tanh of step k
            gradients["weight_ih_l0"] += torch.outer(delta, x[k - 1])
            gradients["weight_hh_l0"] += torch.outer(delta, states[k - 1])
            gradients["bias_ih_l0"] += delta
            gradients["bias_hh_l0"] += delta
            of_x[k - 1] += delta @ cell.weight_ih_l0.detach()
    return {**gradients, "x": of_x}


@settings(max_examples=40)
@given(length=st.integers(1, 24), width=st.integers(1, 6), inputs=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_back_propagation_through_time_is_the_sum_of_products_of_jacobians(
    length: int, width: int, inputs: int, seed: int
) -> None:
    with doubles():
        block = Recurrent("elman", width, inputs=inputs)
        filled(block, seed)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(length, inputs, generator=generator, requires_grad=True)
        errors = torch.randn(length, width, generator=generator)
        (block(x[None])[0] * errors).sum().backward()
        assert block.forth is not None
        found = {name: parameter.grad for name, parameter in block.forth.named_parameters()} | {"x": x.grad}
        for name, gradient in through_time(block, x.detach(), errors).items():
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-10)


def language_model(kind: str, *, bptt: int | None = None, depth: int = 1) -> RecurrentDecoder:
    tower = Tower(recurrent=Recurrence(cell=kind, bptt=bptt), width=6, depth=depth, heads=1, positions="none",
                  dropout=0.0, tied="none")
    model = text_decoder(tower, vocabulary=11)
    assert isinstance(model, RecurrentDecoder)
    filled(model)
    return model


@settings(max_examples=40)
@given(length=st.integers(1, 15), back=st.integers(1, 16))
def test_truncated_back_propagation_leaves_out_what_is_further_back_than_its_piece(length: int, back: int) -> None:
    with doubles():
        model = language_model("elman", bptt=back)
        [block] = model.blocks
        assert isinstance(block, Recurrent)
        assert block.forth is not None
        x, errors = torch.randn(length, 6), torch.randn(length, 6)
        (model(x[None])[0] * errors).sum().backward()
        gradients = through_time(block, x, errors, back=back)
        for name, parameter in block.forth.named_parameters():
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", CELLS)
def test_truncation_changes_no_state_and_only_gradients(kind: str) -> None:
    with doubles():
        whole, cut = language_model(kind, depth=2), language_model(kind, depth=2, bptt=3)
        cut.load_state_dict(whole.state_dict())
        x = torch.randn(2, 8, 6)
        ones, others = x.clone().requires_grad_(), x.clone().requires_grad_()
        one, other = whole(ones), cut(others)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
        one[:, 7].sum().backward()  # the last token, of the piece 6, 7
        other[:, 7].sum().backward()
        assert ones.grad is not None
        assert others.grad is not None
        assert bool((ones.grad != 0).any(-1).all())
        assert not others.grad[:, :6].any()
        torch.testing.assert_close(ones.grad[:, 6:], others.grad[:, 6:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["elman", "gru", "lstm", "bilstm"])
def test_a_preset_begins_with_states_that_neither_vanish_nor_saturate(name: str) -> None:
    """Of forty tokens, the last state still knows the first: a preset that starts deaf learns late or never."""
    model = text_encoder(PRESETS[name](), vocabulary=64).eval()
    initialize(model, seed=0)
    with torch.no_grad():
        states = model(model.embed(torch.randint(0, 64, (8, 40))))
    assert 0.001 < float(states.std()) < 0.9
