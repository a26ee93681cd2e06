"""One attention, several readings: the definition, and each faster way that this machine has."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_cases import BIASES, CPU, EQUAL, HEADS, MASKS, UNEQUAL, Case, agree, apart, call, cases
from attention_paths import WAYS, Taken
from regard.generate.beam import Beam, beam
from regard.models.build import translator
from regard.nn.attend import Attend, AttentionPositions
from regard.nn.init import initialize
from regard.nn.mask import Mask, whole
from regard.nn.score import SCORES, AdditiveAttend, BilinearAttend, DistanceAttend, DotAttend, ScaledDotAttend
from regard.settings.presets import PRESETS

in_every_way = pytest.mark.parametrize("way", WAYS, indirect=True)


@in_every_way
@pytest.mark.parametrize(("groups", "widths"), [(HEADS, EQUAL), (2, EQUAL), (HEADS, UNEQUAL)])
def test_every_way_gives_the_context_and_the_gradients_of_the_definition(
        groups: int, widths: tuple[int, ...], way: Taken, request: pytest.FixtureRequest) -> None:
    expected = request.node.callspec.params["way"]
    for mask, bias in product(MASKS, BIASES):
        for queries, keys, start in [(6, 6, None), (3, 7, None), (2, 7, 4)]:
            way.clear()
            agree(call(Case(mask=mask, bias=bias, groups=groups, widths=widths, temperature=1.5, queries=queries,
                            keys=keys, start=start)))
            plain = mask in ("none", "keys", "blind") and bias == "none" and (groups, widths, start) == (
                HEADS, EQUAL, None) and queries == keys
            assert set(way) == {expected if expected != "batched" or plain else "fused"}


@in_every_way
@settings(max_examples=150)
@given(cases())
def test_fast_and_explicit_agree_in_value_and_gradient(case: Case) -> None:
    agree(call(case))


@in_every_way
@settings(max_examples=50)
@given(cases())
def test_fast_and_explicit_agree_to_the_last_digits_in_float64(case: Case) -> None:
    ours = call(replace(case, bias="none"), torch.float64)  # the biases are numbers of float32
    assert apart(ours.fast(), ours.explicit()) <= 1e-12


@in_every_way
@settings(max_examples=50)
@given(cases())
def test_fast_and_explicit_agree_in_bfloat16_as_far_as_it_goes(case: Case) -> None:
    ours = call(replace(case, score="scaled-dot"), torch.bfloat16)
    assert apart(ours.fast().float(), ours.explicit().float()) <= 0.03


@given(cases())
@example(Case(mask="blind"))
def test_a_row_of_weights_is_never_negative_and_sums_to_one_or_sees_nothing(case: Case) -> None:
    ours = call(case)
    weights = ours.weights()
    queries, keys, *_ = ours.positions or AttentionPositions(whole(case.queries, CPU), whole(case.keys, CPU))
    dense = ours.mask.dense(queries, keys)
    allowed = torch.ones_like(weights, dtype=torch.bool) if dense is None else dense.expand_as(weights)
    assert (weights >= 0).all()
    assert (weights[~allowed] == 0).all()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).float())


@in_every_way
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("score", SCORES)
def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients(score: str, bias: str) -> None:
    ours = call(Case(score=score, bias=bias, mask="blind"))
    half_blind = replace(ours, mask=Mask(keys=torch.tensor([[True] * 5, [False] * 5])))
    for one in (ours, half_blind):
        for context in (one.fast(), one.explicit()):
            assert (context[1] == 0).all()
            assert all(g.isfinite().all() for g in torch.autograd.grad(context.sum(), (one.q, one.k, one.v)))


@in_every_way
@pytest.mark.parametrize("score", SCORES)
def test_where_one_weight_is_1_the_result_is_exactly_that_value(score: str) -> None:
    ours = call(Case(score=score))
    for kept in range(5):
        alone = replace(ours, mask=Mask(keys=(torch.arange(5) == kept).expand(2, -1)))
        for context in (alone.fast(), alone.explicit()):
            assert torch.equal(context, ours.v[:, :, kept, None].expand_as(context))


@in_every_way
@pytest.mark.parametrize("score", SCORES)
def test_a_high_temperature_makes_the_weights_uniform_and_a_low_one_one_hot(score: str) -> None:
    hot, plain, cold = (call(Case(score=score, temperature=t)) for t in (1e7, 1.0, 1e-5))
    torch.testing.assert_close(hot.weights(), torch.full_like(hot.weights(), 1 / 5))
    best = plain.attend.scores(plain.q, plain.k).argmax(-1)
    torch.testing.assert_close(cold.weights(), torch.nn.functional.one_hot(best, 5).float())
    torch.testing.assert_close(plain.weights(), plain.attend.scores(plain.q, plain.k).softmax(-1))
    for one in (hot, cold):
        torch.testing.assert_close(one.fast(), one.explicit())


def test_dot_scores_are_h_times_s_transposed() -> None:
    h, s = torch.randn(1, 1, 4, 6), torch.randn(1, 1, 5, 6)
    torch.testing.assert_close(DotAttend((6,)).scores(h, s)[0, 0], h[0, 0] @ s[0, 0].T)


def test_bilinear_scores_with_the_identity_are_dot_scores() -> None:
    q, k = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6)
    bilinear = BilinearAttend((6, 6, 6))
    bilinear.weight.data.copy_(torch.eye(6))
    torch.testing.assert_close(bilinear.scores(q, k), DotAttend((6, 6, 6)).scores(q, k))


def test_bilinear_scores_are_h_w_s_head_by_head() -> None:
    q, k = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6)
    bilinear = BilinearAttend((6, 6, 6))
    torch.nn.init.normal_(bilinear.weight)
    for head, w in enumerate(bilinear.weight):
        for h, s, scores in zip(q[:, head], k[:, head], bilinear.scores(q, k)[:, head], strict=True):
            torch.testing.assert_close(scores, torch.stack([torch.stack([a @ w @ b for b in s]) for a in h]))


def additive(heads: int, width: int) -> AdditiveAttend:
    attend = AdditiveAttend((width,) * heads)
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    return attend


def test_additive_scores_are_the_formula_pair_by_pair() -> None:
    attend = additive(2, 3)
    q, k = torch.randn(2, 2, 4, 3), torch.randn(2, 2, 5, 3)
    scores = attend.scores(q, k)
    for head in range(2):
        first = torch.cat([attend.key_weight[head], attend.query_weight[head]]).T  # W₁ of [h, s]: (3, 6)
        for row in range(2):
            for i in range(4):
                for j in range(5):
                    met = torch.tanh(first @ torch.cat([k[row, head, j], q[row, head, i]]))
                    torch.testing.assert_close(scores[row, head, i, j], attend.out_weight[head, :, 0] @ met)


@in_every_way
@pytest.mark.parametrize("score", SCORES)
def test_the_gradients_of_every_score_are_those_of_finite_differences(score: str) -> None:
    case = Case(score=score, rows=1, queries=2, keys=3, widths=(3, 2), groups=2, mask="causal keys")
    ours = call(case, torch.float64)
    assert torch.autograd.gradcheck(
        lambda q, k, v, *_: ours.attend(q, k, v, mask=ours.mask).context,
        (ours.q, ours.k, ours.v, *ours.attend.parameters()))


def test_distance_scores_are_minus_half_the_squared_distance_pair_by_pair() -> None:
    q, k = torch.randn(2, 2, 4, 3), torch.randn(2, 2, 5, 3)
    loop = torch.stack(
        [torch.stack([-(a - b).square().sum(-1) / 2 for b in k.unbind(2)], -1) for a in q.unbind(2)], -2)
    torch.testing.assert_close(DistanceAttend((3, 3)).scores(q, k), loop)


def entropy(weights: Tensor) -> float:
    """1: uniform; 0: one-hot."""
    return float(torch.special.entr(weights).sum(-1).mean() / math.log(weights.shape[-1]))


def test_scaled_weights_begin_near_uniform_and_unscaled_ones_peaked() -> None:
    q, k = torch.randn(1, 1, 64, 256), torch.randn(1, 1, 64, 256)
    assert entropy(ScaledDotAttend((256,)).weights(q, k, mask=Mask())) > 0.8
    assert entropy(DotAttend((256,)).weights(q, k, mask=Mask())) < 0.2


@in_every_way
def test_the_worked_example_of_the_lecture_comes_out() -> None:
    q = torch.tensor([[[[10.0, 1.0, 1.0]]]])
    k = torch.tensor([[[[10.0, 1.0, 1.0], [9.0, 8.0, 1.0]]]])
    v = torch.tensor([[[[1.0, 0.0, 2.0], [0.0, 1.0, 4.0]]]])
    assert DotAttend((3,)).scores(q, k).flatten().tolist() == [102.0, 99.0]
    attend = ScaledDotAttend((3,))
    assert attend.scores(q, k).flatten().tolist() == pytest.approx([58.9, 57.2], abs=0.05)
    weights = attend.weights(q, k, mask=Mask())
    assert weights.flatten().tolist() == pytest.approx([0.85, 0.15], abs=0.005)
    context = attend(q, k, v, mask=Mask()).context
    assert context.flatten().tolist() == pytest.approx([0.85, 0.15, 0.85 * 2 + 0.15 * 4], abs=0.02)


@in_every_way
@settings(max_examples=60)
@given(st.integers(60, 300), st.integers(0, 30), st.sampled_from(MASKS), st.sampled_from(BIASES),
       st.integers(0, 9))
@example(300, 3, "all", "alibi", 0)
@example(300, 3, "window spans", "none", 0)
def test_a_window_over_a_long_sequence_gives_what_the_dense_mask_gives(
        length: int, window: int, kind: str, bias: str, seed: int) -> None:
    ours = call(Case(mask=kind, bias=bias, rows=1, queries=length, keys=length, groups=2, seed=seed))
    ours = replace(ours, mask=replace(ours.mask, window=window))
    assert apart(ours.fast(), ours.explicit()) <= 1e-5


@in_every_way
@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 80), st.integers(0, 30), st.sampled_from(MASKS), st.sampled_from(BIASES),
       st.integers(0, 9))
def test_a_window_over_keys_in_order_gives_what_the_dense_mask_gives(
        queries: int, keys: int, window: int, kind: str, bias: str, seed: int) -> None:
    """As in a cache: wherever in it the queries stand, and in each row elsewhere."""
    ours = call(Case(mask=kind, bias=bias, queries=queries, keys=keys, groups=2, seed=seed))
    places = AttentionPositions(torch.randint(0, keys, (len(ours.q), queries)), whole(keys, CPU), in_order=True)
    ours = replace(ours, mask=replace(ours.mask, window=window), positions=places)
    assert apart(ours.fast(), ours.explicit()) <= 1e-5


@in_every_way
def test_queries_beyond_the_window_of_the_last_key_get_zeros() -> None:
    ours = call(Case(mask="window", queries=300, keys=50))
    assert apart(ours.fast(), ours.explicit()) <= 1e-5
    assert (ours.fast()[:, :, 60:] == 0).all()


@in_every_way
def test_dropout_acts_on_the_weights_in_training_alone() -> None:
    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 64, 8), torch.ones(1, 1, 64, 1)
    for score in SCORES:
        attend = SCORES[score]((8,), dropout=0.5)
        for parameter in attend.parameters():
            torch.nn.init.normal_(parameter)
        assert not torch.allclose(attend(q, k, v, mask=Mask()).context, torch.ones(1))
        torch.testing.assert_close(attend.eval()(q, k, v, mask=Mask()).context, torch.ones(1, 1, 4, 1))


@pytest.mark.parametrize("preset", ["transformer-base", "luong", "bahdanau"])
def test_a_new_score_is_one_class_and_one_line(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of CONTRIBUTING.md, from the class to a model of every shape that learns and searches."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    source = text.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"Attend": Attend, "F": torch.nn.functional, "Tensor": Tensor}
    exec(source, names)
    monkeypatch.setitem(SCORES, "cosine", names["CosineAttend"])
    tower = replace(PRESETS[preset](), width=8, depth=1, heads=2, score="cosine", temperature=0.1)
    model = translator(tower, sources=9, targets=9)
    initialize(model, seed=0)
    source_ids = torch.tensor([[3, 4, 5]])
    model(source_ids, source_ids).sum().backward()
    model.eval()
    found = beam(model, torch.tensor([[1]]), memory=model.encode(source_ids), how=Beam(end=2, longest=4, size=2))
    assert len(found[0]) == 2
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    weights = names["CosineAttend"]((4, 4)).weights(q, k, mask=Mask())
    cosines = torch.nn.functional.cosine_similarity(q[:, :, :, None], k[:, :, None], dim=-1)
    torch.testing.assert_close(weights, cosines.softmax(-1))
