"""Self- and cross-attention: many heads, shared keys, shared sources, and shuffled tokens."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attention_paths import WAYS
from regard.models.build import text_encoder
from regard.models.encoder import Encoder
from regard.nn.attention import Attention, CrossAttention, Memory
from regard.nn.global_attention import GlobalAttention
from regard.nn.init import initialize
from regard.nn.kv_cache import GrowingCache
from regard.nn.mask import Mask
from regard.nn.positions import Alibi, Positions, RelativeBias, Rotary
from regard.settings.schema import Tower

WIDTH = 12
in_every_way = pytest.mark.parametrize("way", WAYS, indirect=True)
widths = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def ready(module: nn.Module) -> nn.Module:
    """With weights of every size and with biases, so that none of them can go missing unseen."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def one_by_one(q: Tensor, k: Tensor, v: Tensor, widths: tuple[int, ...], mask: Mask, *,
               values: tuple[int, ...] | None = None) -> Tensor:
    """[Z₁ … Z_H] with Z = softmax(QKᵀ/√d) V, a head at a time, from the projections of all side by side."""
    here = (torch.arange(q.shape[1])[None], torch.arange(k.shape[1])[None])
    allowed = mask.dense(*here)
    heads = []
    for query, key, value in zip(q.split(widths, -1), k.split(widths, -1), v.split(values or widths, -1),
                                 strict=True):
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        if allowed is not None:
            scores = scores.masked_fill(~allowed[:, 0], -math.inf)
        heads.append(scores.softmax(-1) @ value)
    return torch.cat(heads, -1)


@in_every_way
@given(widths, st.booleans())
def test_many_heads_are_the_heads_one_by_one_side_by_side(widths: tuple[int, ...], causal: bool) -> None:
    attention = ready(Attention(WIDTH, heads=len(widths), head_widths=widths))
    x, mask = torch.randn(2, 5, WIDTH), Mask(causal=causal)
    q, k, v = attention.qkv(x).chunk(3, dim=-1)
    expected = attention.out(one_by_one(q, k, v, widths, mask))
    torch.testing.assert_close(attention(x, mask=mask), expected, rtol=1e-4, atol=1e-5)


@in_every_way
@settings(max_examples=40)
@given(widths, st.data(), st.booleans())
def test_values_may_be_of_another_width_than_keys_in_every_head(
        widths: tuple[int, ...], data: st.DataObject, cached: bool) -> None:
    """Whole, or with a cache: a part first, then token by token."""
    values = tuple(data.draw(st.integers(1, 6)) for _ in widths)
    attention = ready(Attention(WIDTH, heads=len(widths), head_widths=widths, value_widths=values))
    x, mask = torch.randn(2, 5, WIDTH), Mask(causal=True)
    q, k, v = attention.qkv(x).split([sum(widths), sum(widths), sum(values)], dim=-1)
    expected = attention.out(one_by_one(q, k, v, widths, mask, values=values))
    if cached:
        cache, here = GrowingCache(), torch.arange(5)[None]
        parts = [attention(x[:, piece], mask=mask, positions=here[:, piece], cache=cache)
                 for piece in (slice(0, 3), slice(3, 4), slice(4, 5))]
        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(attention(x, mask=mask), expected, rtol=1e-4, atol=1e-5)
    assert attention.out.weight.shape == (WIDTH, sum(values))


@in_every_way
@settings(max_examples=40)
@given(widths, st.data())
def test_a_memory_s_values_may_be_of_another_width_than_its_keys(
        widths: tuple[int, ...], data: st.DataObject) -> None:
    values = tuple(data.draw(st.integers(1, 6)) for _ in widths)
    attention = ready(CrossAttention(WIDTH, heads=len(widths), memory_width=7, head_widths=widths,
                                     value_widths=values))
    x, states = torch.randn(2, 5, WIDTH), torch.randn(2, 7, 7)
    k, v = attention.kv(states).split([sum(widths), sum(values)], dim=-1)
    expected = attention.out(one_by_one(attention.q(x), k, v, widths, Mask(), values=values))
    torch.testing.assert_close(attention(x, Memory(states)), expected, rtol=1e-4, atol=1e-5)


def test_global_tokens_have_values_of_another_width_too() -> None:
    attention = ready(GlobalAttention(WIDTH, heads=2, value_widths=(3, 9)))
    attention.global_qkv.load_state_dict(attention.qkv.state_dict())
    x, chosen = torch.randn(1, 9, WIDTH), torch.arange(9)[None] == 0
    plain = ready(Attention(WIDTH, heads=2, value_widths=(3, 9)))
    plain.load_state_dict(attention.state_dict(), strict=False)
    mask = Mask(window=2, globals=chosen)
    torch.testing.assert_close(attention(x, mask=mask), plain(x, mask=mask), rtol=1e-4, atol=1e-5)


def test_every_head_has_a_width_for_its_values() -> None:
    with pytest.raises(ValueError, match="value_widths: 1 widths for 2 heads"):
        Attention(WIDTH, heads=2, value_widths=(3,))


def test_the_query_may_come_from_the_output_before() -> None:
    """q_i = W_Q o_{i−1}: an output at a time; and its gradient goes back through all of them."""
    attention = ready(CrossAttention(WIDTH, heads=2, memory_width=7, value_widths=(3, 9)))
    memory, first = Memory(torch.randn(1, 6, 7)), torch.randn(1, 1, WIDTH, requires_grad=True)
    remembered, output, expected = attention.remember(memory.states), first, first
    k, v = attention.kv(memory.states).split([WIDTH, WIDTH], dim=-1)
    for _ in range(4):
        output = attention(output, memory, cache=remembered)
        expected = attention.out(one_by_one(attention.q(expected), k, v, (6, 6), Mask(), values=(3, 9)))
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    ours, theirs = (torch.autograd.grad(last.sum(), [first, attention.q.weight], retain_graph=True)
                    for last in (output, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@given(widths)
def test_the_output_matrix_takes_the_sum_of_the_head_widths_to_the_width(widths: tuple[int, ...]) -> None:
    for attention in (Attention(WIDTH, heads=len(widths), head_widths=widths),
                      CrossAttention(WIDTH, heads=len(widths), head_widths=widths)):
        assert attention.out.weight.shape == (WIDTH, sum(widths))


@in_every_way
@given(widths, st.integers(1, 20))
def test_cross_attention_reads_a_memory_of_any_width(widths: tuple[int, ...], memory_width: int) -> None:
    attention = ready(CrossAttention(WIDTH, heads=len(widths), memory_width=memory_width, head_widths=widths))
    x, states = torch.randn(2, 5, WIDTH), torch.randn(2, 7, memory_width)
    keys = torch.rand(2, 7) < 0.7
    keys[:, 0] = True
    k, v = attention.kv(states).chunk(2, dim=-1)
    expected = attention.out(one_by_one(attention.q(x), k, v, widths, Mask(keys=keys)))
    torch.testing.assert_close(attention(x, Memory(states, Mask(keys=keys))), expected, rtol=1e-4, atol=1e-5)


@in_every_way
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_shared_keys_are_the_same_keys_repeated(groups: int) -> None:
    shared = ready(Attention(WIDTH, heads=4, kv_heads=groups))
    whole = ready(Attention(WIDTH, heads=4))
    for name in ("weight", "bias"):
        q, k, v = getattr(shared.qkv, name).data.split([12, 3 * groups, 3 * groups])
        parts = (part.unflatten(0, (groups, 3)).repeat_interleave(4 // groups, dim=0) for part in (k, v))
        getattr(whole.qkv, name).data.copy_(torch.cat([q, *(part.flatten(0, 1) for part in parts)]))
    whole.out.load_state_dict(shared.out.state_dict())
    x = torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(shared(x, mask=Mask(causal=True)), whole(x, mask=Mask(causal=True)))


def test_heads_of_unequal_widths_cannot_share_keys() -> None:
    with pytest.raises(ValueError, match="unequal"):
        Attention(WIDTH, heads=2, kv_heads=1, head_widths=(4, 8))


@in_every_way
@settings(max_examples=50)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_rows_that_share_a_source_see_what_they_would_see_of_their_own_copy(
        sources: int, share: int, length: int, remembered: bool) -> None:
    attention = ready(CrossAttention(WIDTH, heads=4, kv_heads=2))
    x, states = torch.randn(sources * share, length, WIDTH), torch.randn(sources, 6, WIDTH)
    keys = torch.arange(6) < torch.randint(1, 7, (sources, 1))
    copied = Memory(states.repeat_interleave(share, 0), Mask(keys=keys.repeat_interleave(share, 0)))
    memory = Memory(states, Mask(keys=keys))
    cache = attention.remember(states) if remembered else None
    torch.testing.assert_close(attention(x, memory, cache=cache), attention(x, copied), rtol=1e-4, atol=1e-5)


def encoder(positions: str, **settings: object) -> Encoder:
    tower = replace(Tower(), width=16, depth=2, heads=4, positions=positions, dropout=0.0, **settings)
    model = text_encoder(tower, vocabulary=50).double()
    initialize(model, seed=0)
    return model.eval()


@in_every_way
@settings(max_examples=30)
@given(st.permutations(range(7)), st.sampled_from(["scaled-dot", "dot", "bilinear", "additive", "distance"]))
def test_without_positions_shuffled_tokens_give_shuffled_states(order: list[int], score: str) -> None:
    model, tokens = encoder("none", score=score), torch.randint(50, (2, 7))
    states = model(model.embed(tokens))
    torch.testing.assert_close(model(model.embed(tokens[:, order])), states[:, order], rtol=1e-10, atol=1e-12)


@in_every_way
@given(st.permutations(range(8)))
def test_without_positions_shuffling_is_exact_where_the_sums_are(order: list[int]) -> None:
    """Whole numbers, and weights that are powers of two: no sum is rounded, so its order cannot show."""
    attention = Attention(4, heads=2)
    for parameter in attention.parameters():
        parameter.data.copy_(torch.randint(-4, 5, parameter.shape))
    attention.qkv.weight.data[:4], attention.qkv.bias.data[:4] = 0, 0  # no question: all weights are 1/8
    x = torch.randint(-8, 9, (1, 8, 4)).float()
    assert torch.equal(attention(x[:, order], mask=Mask()), attention(x, mask=Mask())[:, order])


@pytest.mark.parametrize("positions", ["sinusoidal", "fourier", "learned", "rotary", "relative", "alibi"])
def test_with_positions_it_does_not(positions: str) -> None:
    torch.manual_seed(0)
    model, tokens = encoder(positions), torch.arange(7)[None]
    order = [3, 0, 5, 1, 6, 2, 4]
    states = model(model.embed(tokens))
    assert (model(model.embed(tokens[:, order])) - states[:, order]).abs().max() > 1e-3


@in_every_way
@pytest.mark.parametrize("kind", [lambda: Rotary(4), lambda: Alibi(4), lambda: RelativeBias(4, causal=True)])
def test_only_the_distance_counts_where_positions_are_relative(kind: Callable[[], Positions]) -> None:
    """Queries and keys are turned the same way: all of them further on is the same."""
    attention, x, here = ready(Attention(16, heads=4, positions=kind())), torch.randn(2, 5, 16), torch.arange(5)[None]
    states = attention(x, mask=Mask(causal=True), positions=here)
    there = attention(x, mask=Mask(causal=True), positions=here + 7)
    torch.testing.assert_close(there, states, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(attention(x, mask=Mask(causal=True), positions=2 * here), states, atol=1e-3)


@in_every_way
def test_with_qk_norm_the_size_of_queries_and_keys_does_not_matter() -> None:
    """Scores are then products of directions: only values carry the input's scale."""
    torch.manual_seed(0)
    part = Attention(16, heads=4, kv_heads=2, bias=False, qk_norm=True)
    initialize(part, seed=0)
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(part(1_000 * x, mask=Mask(causal=True)), 1_000 * part(x, mask=Mask(causal=True)),
                               rtol=1e-3, atol=1e-2)


@torch.no_grad()
def test_heads_of_unequal_widths_are_exact_to_the_last_digits_in_float64() -> None:
    """softmax(q kᵀ / √d_k) v of each head by itself, with its own width d_k (Vaswani et al. 2017, eq. 1)."""
    widths = (2, 3, 7)
    one = Attention(12, heads=3, head_widths=widths)
    for parameter in one.parameters():
        torch.nn.init.normal_(parameter)
    one.double().eval()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = (part.split(widths, dim=-1) for part in one.qkv(x).split(12, dim=-1))
    each = [((a @ b.mT) / math.sqrt(width)).softmax(-1) @ c for a, b, c, width in zip(q, k, v, widths, strict=True)]
    torch.testing.assert_close(one(x, mask=Mask()), one.out(torch.cat(each, -1)), atol=1e-14, rtol=1e-13)
    # However it was cast before: widths are whole numbers.
    torch.testing.assert_close(one.bfloat16().double().attend.scale, torch.tensor(
        [1 / math.sqrt(width) for width in widths], dtype=torch.float64)[:, None, None], atol=1e-15, rtol=0)
