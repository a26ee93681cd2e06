"""Which keys a query may see."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.mask import Mask, whole

ROWS, LENGTH = 2, 9


def may_see(mask: Mask, row: int, q: int, k: int) -> bool:
    """The docstrings of `Mask`, read aloud for one query and one key."""
    seen = not mask.causal or k <= q
    if mask.window is not None:
        lifted = mask.globals is not None and bool(mask.globals[row, q] or mask.globals[row, k])
        seen = seen and (abs(q - k) <= mask.window or lifted)
    if mask.spans is not None and mask.spans[row, q] == mask.spans[row, k] != 0:
        seen = True
    if mask.documents is not None and mask.documents[row, q] != mask.documents[row, k]:
        seen = False
    if mask.keys is not None and not mask.keys[row, k]:
        seen = False
    if mask.blind is not None and mask.blind[row, q]:
        seen = False
    return seen


def per_token(values: st.SearchStrategy[int]) -> st.SearchStrategy[Tensor]:
    row = st.lists(values, min_size=LENGTH, max_size=LENGTH)
    return st.lists(row, min_size=ROWS, max_size=ROWS).map(torch.tensor)


def per_row(positions: st.SearchStrategy[list[int]]) -> st.SearchStrategy[Tensor]:
    """The same positions for all rows, or other ones for each."""
    same = positions.map(lambda p: torch.tensor([p]))
    other = positions.flatmap(lambda p: st.permutations(p).map(lambda shuffled: torch.tensor([p, shuffled])))
    return same | other


flags = st.booleans()
masks = st.builds(
    Mask,
    causal=flags,
    keys=st.none() | per_token(flags),
    window=st.none() | st.integers(0, LENGTH),
    globals=st.none() | per_token(flags),
    spans=st.none() | per_token(st.integers(0, 2)),
    documents=st.none() | per_token(st.integers(0, 2)),
    blind=st.none() | per_token(flags),
)
everything = st.just(list(range(LENGTH)))
chunks = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH)).map(
    lambda ends: list(range(min(ends), max(max(ends), min(ends) + 1))))
one_place = st.integers(0, LENGTH - 1).map(lambda p: [p])
permuted = st.permutations(range(LENGTH))
places = per_row(everything | chunks | one_place | permuted)


def test_a_causal_mask_has_the_rows_1000_1100_1110_1111() -> None:
    here = whole(4, torch.device("cpu"))
    dense = Mask(causal=True).dense(here, here)
    assert dense is not None
    rows = ["".join(str(int(seen)) for seen in row) for row in dense[0, 0]]
    assert rows == ["1000", "1100", "1110", "1111"]


@given(masks, places, places)
def test_dense_is_what_the_docstrings_say(mask: Mask, queries: Tensor, keys: Tensor) -> None:
    dense = mask.dense(queries, keys)
    if dense is None:
        dense = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    shape = (ROWS, queries.shape[1], keys.shape[1])
    expected = torch.tensor([
        [[may_see(mask, row, q, k) for k in keys.expand(ROWS, -1)[row].tolist()]
         for q in queries.expand(ROWS, -1)[row].tolist()] for row in range(ROWS)])
    assert torch.equal(dense[:, 0].expand(shape), expected)


@given(masks, st.integers(0, LENGTH - 1), st.integers(1, 5))
def test_an_empty_slot_of_a_cache_is_hidden_by_causality(mask: Mask, query: int, slots: int) -> None:
    mask = replace(mask, causal=True, spans=None)
    dense = mask.dense(torch.tensor([[query]]), torch.arange(LENGTH, LENGTH + slots)[None])
    assert dense is not None
    assert not dense.any()


@given(masks)
def test_only_causal_means_that_it_equals_the_plain_causal_mask(mask: Mask) -> None:
    if mask.only_causal:
        here = whole(LENGTH, torch.device("cpu"))
        plain, dense = Mask(causal=True).dense(here, here), mask.dense(here, here)
        assert plain is not None
        assert dense is not None
        assert torch.equal(dense, plain)


def test_a_mask_that_asks_for_nothing_is_no_mask() -> None:
    assert Mask().dense(torch.tensor([[0, 1]]), torch.tensor([[0, 1, 2]])) is None
