"""With a cache, in chunks, or all at once: the same states."""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from attention_paths import WAYS
from regard.kernels.fixed_kv_cache import BeamAncestry, FixedCache
from regard.nn.attention import Attention
from regard.nn.kv_cache import GrowingCache, LayerCache
from regard.nn.mask import Mask
from regard.nn.positions import Alibi, Positions, RelativeBias, Rotary

ROWS, LENGTH, WIDTH, HEADS, GROUPS = 3, 8, 16, 4, 2
HEAD = WIDTH // HEADS
POSITIONS = {
    "none": Positions,
    "rotary": lambda: Rotary(HEAD),
    "alibi": lambda: Alibi(HEADS),
    "relative": lambda: RelativeBias(HEADS, causal=True, buckets=8, farthest=16),
}
CACHES = ["growing", "fixed", "roomy"]
CAUSAL, WINDOW = Mask(causal=True), Mask(causal=True, window=2)
PACKED = Mask(causal=True, documents=torch.tensor([[0, 0, 1, 1, 1, 1, 2, 2]]).expand(ROWS, -1))
in_every_way = pytest.mark.parametrize("way", WAYS[:2], indirect=True)

cuts = st.sets(st.integers(1, LENGTH - 1)).map(lambda inner: [0, *sorted(inner), LENGTH])


def attention(positions: str) -> Attention:
    torch.manual_seed(0)
    module = Attention(WIDTH, heads=HEADS, kv_heads=GROUPS, positions=POSITIONS[positions]())
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def cache(kind: str, rows: int = ROWS) -> LayerCache:
    if kind == "growing":
        return GrowingCache()
    return FixedCache(rows, GROUPS, LENGTH if kind == "fixed" else 2 * LENGTH, HEAD, like=torch.zeros(1))


def places(start: int, stop: int, *, per_row: bool) -> Tensor:
    return torch.arange(start, stop).expand(ROWS if per_row else 1, -1)


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@in_every_way
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", CACHES)
@settings(max_examples=25)
@given(cuts=cuts, per_row=st.booleans(), mask=st.sampled_from([CAUSAL, WINDOW, PACKED]))
def test_cached_in_chunks_is_the_whole_at_once(
        kind: str, positions: str, cuts: list[int], per_row: bool, mask: Mask) -> None:
    model, kept, x = attention(positions), cache(kind), torch.randn(ROWS, LENGTH, WIDTH)
    pieces = [model(x[:, a:b], mask=mask, positions=places(a, b, per_row=per_row), cache=kept)
              for a, b in pairwise(cuts)]
    same(torch.cat(pieces, dim=1), model(x, mask=mask))


class Keys(NamedTuple):
    """How many keys the kernel is given, call by call."""

    counts: list[int]

    def __call__(self, q: Tensor, k: Tensor, *args: Any, **how: Any) -> Tensor:
        self.counts.append(k.shape[2])
        return scaled_dot_product_attention(q, k, *args, **how)


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_a_window_s_kernel_gets_the_keys_that_it_reaches_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, kept, x, given = attention("rotary"), cache(kind), torch.randn(ROWS, LENGTH, WIDTH), Keys([])
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", given)
    with torch.no_grad():
        for start, stop in ((0, 4), (4, 7), (7, 8)):
            model(x[:, start:stop], mask=WINDOW, positions=places(start, stop, per_row=False), cache=kept)
    assert given.counts == [4, 2 + 3, 2 + 1]


@pytest.mark.parametrize(("mask", "expected"), [(CAUSAL, [4, 7, 16, 16]), (WINDOW, [4, 5, 16, 16])])
@torch.no_grad()
def test_where_the_host_may_not_look_it_counts_the_keys_until_a_step_may_be_recorded(
        mask: Mask, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device without numbers, which like a GPU says nothing of its positions."""
    device, given = torch.device("meta"), Keys([])
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", given)
    model, ancestry = attention("rotary").to(device), BeamAncestry(ROWS, 2 * LENGTH, device)
    kept = FixedCache(ROWS, GROUPS, 2 * LENGTH, HEAD, like=torch.zeros(1, device=device), ancestry=ancestry)
    for start, stop in ((0, 4), (4, 7), (7, 8), (8, 10)):
        here = places(start, stop, per_row=False).to(device)
        ancestry.write(here)
        model(torch.zeros(ROWS, stop - start, WIDTH, device=device), mask=mask, positions=here, cache=kept)
    assert given.counts == expected


@pytest.mark.parametrize("length", [3, torch.tensor([[3]])])
def test_what_is_forgotten_is_counted_again_where_it_is_the_same_in_every_row(length: int | Tensor) -> None:
    ancestry = BeamAncestry(ROWS, LENGTH, torch.device("cpu"))
    ancestry.write(places(0, 5, per_row=False))
    ancestry.truncate(length)
    ancestry.write(places(3, 6, per_row=False))
    assert ancestry.filled == (6 if isinstance(length, int) else None)


@in_every_way
@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_that_count_from_0_change_nothing(positions: str) -> None:
    model, x = attention(positions), torch.randn(ROWS, LENGTH, WIDTH)
    for per_row in (False, True):
        same(model(x, mask=CAUSAL, positions=places(0, LENGTH, per_row=per_row)), model(x, mask=CAUSAL))


@in_every_way
@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_may_stand_at_other_positions_in_a_growing_cache(positions: str) -> None:
    model, kept, x = attention(positions), GrowingCache(), torch.randn(ROWS, LENGTH, WIDTH)
    starts = torch.tensor([[0], [5], [2]])
    here = starts + torch.arange(LENGTH)
    pieces = [model(x[:, [i]], mask=CAUSAL, positions=here[:, [i]], cache=kept) for i in range(LENGTH)]
    alone = [model(x[row:row + 1], mask=CAUSAL, positions=here[row:row + 1]) for row in range(ROWS)]
    same(torch.cat(pieces, dim=1), torch.cat(alone))


@in_every_way
@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_of_other_lengths_go_on_each_from_its_own_end_in_a_fixed_cache(positions: str) -> None:
    """Prompts padded on the right: the next token takes the slot where the padding stood."""
    model, kept, x = attention(positions), cache("fixed"), torch.randn(ROWS, LENGTH, WIDTH)
    lengths, longest = torch.tensor([[2], [4], [1]]), 4
    padded = torch.where((torch.arange(longest) < lengths)[..., None], x[:, :longest], torch.full((1,), 9.0))
    model(padded, mask=CAUSAL, positions=places(0, longest, per_row=False), cache=kept)
    for step in range(3):
        here = lengths + step
        fresh = x.gather(1, here[..., None].expand(-1, -1, WIDTH))
        states = model(fresh, mask=CAUSAL, positions=here, cache=kept)
        same(states, model(x, mask=CAUSAL).gather(1, here[..., None].expand(-1, -1, WIDTH)))


@in_every_way
@pytest.mark.parametrize("kind", CACHES)
@settings(max_examples=25)
@given(rows=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=5), per_row=st.booleans(),
       cut=st.integers(1, LENGTH - 1))
def test_a_reordered_row_goes_on_from_what_the_chosen_row_was(
        kind: str, rows: list[int], per_row: bool, cut: int) -> None:
    model, kept, x = attention("rotary"), cache(kind), torch.randn(ROWS, LENGTH, WIDTH)
    model(x[:, :cut], mask=CAUSAL, positions=places(0, cut, per_row=per_row), cache=kept)
    kept.reorder(torch.tensor(rows))
    fresh = torch.randn(len(rows), LENGTH - cut, WIDTH)
    states = model(fresh, mask=CAUSAL, positions=torch.arange(cut, LENGTH)[None], cache=kept)
    same(states, model(torch.cat([x[rows, :cut], fresh], dim=1), mask=CAUSAL)[:, cut:])


@in_every_way
@pytest.mark.parametrize("kind", CACHES)
@settings(max_examples=25)
@given(kept_length=st.integers(0, LENGTH - 1), seen=st.integers(1, LENGTH), step=st.integers(1, 3),
       per_row=st.booleans())
def test_a_truncated_cache_goes_on_as_if_the_rest_had_never_been(
        kind: str, kept_length: int, seen: int, step: int, per_row: bool) -> None:
    model, kept, x = attention("relative"), cache(kind), torch.randn(ROWS, LENGTH, WIDTH)
    kept_length = min(kept_length, seen)
    draft = torch.cat([x[:, :kept_length], torch.randn(ROWS, seen - kept_length, WIDTH)], dim=1)
    model(draft, mask=CAUSAL, positions=places(0, seen, per_row=per_row), cache=kept)
    kept.truncate(kept_length)
    pieces = [model(x[:, a:a + step], mask=CAUSAL, cache=kept,
                    positions=places(a, min(a + step, LENGTH), per_row=per_row))
              for a in range(kept_length, LENGTH, step)]
    same(torch.cat(pieces, dim=1), model(x, mask=CAUSAL)[:, kept_length:])


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), reorder=st.booleans())
def test_a_growing_cache_holds_what_it_was_given_one_after_the_other(sizes: list[int], reorder: bool) -> None:
    kept, given = GrowingCache(), torch.zeros(2, ROWS, GROUPS, 0, HEAD)
    for size in sizes:
        fresh, start = torch.randn(2, ROWS, GROUPS, size, HEAD), given.shape[3]
        given = torch.cat([given, fresh], dim=3)
        k, v, positions, rows, in_order, *_ = kept.append(*fresh, positions=torch.arange(start, start + size)[None])
        assert torch.equal(torch.stack([k, v]), given)
        assert positions.tolist() == [[*range(start + size)]]
        assert (rows, in_order) == (None, True)
        if reorder:
            kept.reorder(torch.tensor([2, 0, 2]))
            given = given[:, [2, 0, 2]]


def test_a_growing_cache_seldom_moves_what_it_holds() -> None:
    kept, places = GrowingCache(), set()
    for position in range(300):
        stored = kept.append(*torch.randn(2, ROWS, GROUPS, 1, HEAD), positions=torch.tensor([[position]]))
        places.add(stored.k.data_ptr())
    assert len(places) < 12


def test_a_growing_cache_says_that_its_keys_are_in_order_only_while_they_are() -> None:
    def in_order(*steps: list[list[int]]) -> bool:
        kept = GrowingCache()
        for step in steps:
            stored = kept.append(*torch.zeros(2, 2, GROUPS, len(step[0]), HEAD), positions=torch.tensor(step))
        return stored.in_order

    assert in_order([[0, 1, 2]], [[3]])
    assert not in_order([[0, 1, 2]], [[4]])
    assert not in_order([[0, 2, 1]], [[3]])
    assert not in_order([[1, 2]])
    assert not in_order([[0], [0]], [[1], [2]])


@in_every_way
@pytest.mark.parametrize("kind", CACHES)
def test_on_a_cpu_bfloat16_keys_are_kept_and_attended_to_in_float32(kind: str) -> None:
    model, kept, x = attention("rotary"), cache(kind), torch.randn(ROWS, LENGTH, WIDTH)
    whole = model(x, mask=CAUSAL)
    model.to(torch.bfloat16)
    pieces = [model(x[:, [i]].bfloat16(), mask=CAUSAL, positions=torch.tensor([[i]]), cache=kept)
              for i in range(LENGTH)]
    assert {piece.dtype for piece in pieces} == {torch.bfloat16}
    assert {tensor.dtype for tensor in kept.tensors() if tensor.is_floating_point()} == {torch.float32}
    torch.testing.assert_close(torch.cat(pieces, dim=1).float(), whole, rtol=0.1, atol=0.1)


@in_every_way
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_growing_cache_truncates_its_rows_at_one_position_not_at_one_slot(positions: str) -> None:
    model, kept, x = attention(positions), GrowingCache(), torch.randn(2, 6, WIDTH)
    here = torch.tensor([[0], [2]]) + torch.arange(6)
    model(x, mask=CAUSAL, positions=here, cache=kept)
    kept.truncate(4)  # row 0 keeps four tokens, row 1 two
    fresh, there = torch.randn(2, 1, WIDTH), torch.tensor([[4], [4]])
    states = model(fresh, mask=CAUSAL, positions=there, cache=kept)
    for row, left in enumerate((4, 2)):
        alone = torch.cat([x[row:row + 1, :left], fresh[row:row + 1]], dim=1)
        places = torch.cat([here[row:row + 1, :left], there[row:row + 1]], dim=1)
        same(states[row:row + 1], model(alone, mask=CAUSAL, positions=places)[:, -1:])
