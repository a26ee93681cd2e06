"""The steps that are explained are those the model takes: their sum is the model's own output."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.look.explain import catch, example, explain
from regard.look.watch import sites, watch
from regard.models import build
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.nn.score import SCORES, DotAttend
from regard.settings.errors import UserError
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower

SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 11, 12, 13]])


def translator(**settings: object) -> EncoderDecoder:
    model = build.translator(Tower(width=32, depth=1, heads=4, **settings), sources=40, targets=40)
    initialize(model, seed=0)
    return model.eval()


def test_the_lecture_s_numbers_come_out_of_its_inputs() -> None:
    steps = example()
    torch.testing.assert_close(steps.scores, torch.tensor([102.0, 99.0]))
    assert [f"{score:.1f}" for score in steps.divided.tolist()] == ["58.9", "57.2"]
    assert [f"{weight:.2f}" for weight in steps.weights.tolist()] == ["0.85", "0.15"]
    torch.testing.assert_close(steps.sum, 0.8497 * steps.values[0] + 0.1503 * steps.values[1], rtol=1e-3, atol=1e-3)


def test_without_the_division_the_larger_score_takes_nearly_all() -> None:
    scaled = example()
    steps = explain(DotAttend((3,)), scaled.query, scaled.keys, scaled.values)
    assert (steps.score, steps.divisor) == ("dot", 1.0)
    torch.testing.assert_close(steps.scores, scaled.scores)
    assert [f"{weight:.2f}" for weight in steps.weights.tolist()] == ["0.95", "0.05"]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("positions", "kv_heads"), [("sinusoidal", None), ("relative", 2), ("rotary", 1)])
def test_the_sum_of_the_parts_is_the_model_s_own_output(score: str, positions: str, kv_heads: int | None) -> None:
    model = translator(score=score, positions=positions, kv_heads=kv_heads, temperature=0.8)
    for site in sites(model):
        with torch.no_grad(), catch(model, site) as caught, watch(model, site) as seen:
            model(SOURCE, TARGET)
        for head, row in ((0, 0), (3, 2)):
            steps = caught.steps(head=head, row=row)
            torch.testing.assert_close(steps.sum, caught.context(head=head, row=row), rtol=0, atol=1e-5)
            torch.testing.assert_close(steps.parts.sum(0), steps.sum)
            torch.testing.assert_close(steps.weights, seen[site][0, head, row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("preset", ["bahdanau", "luong"])
def test_where_words_ask_one_by_one_their_steps_are_those_of_one_pass(preset: str) -> None:
    model = build.translator(replace(PRESETS[preset](), width=32), sources=40, targets=40).eval()
    initialize(model, seed=0)
    with torch.no_grad(), catch(model, "decoder.cross") as caught, watch(model) as seen:
        model(SOURCE.flip(1), TARGET)  # another pass, that is forgotten
        seen.pieces.clear()
        model(SOURCE, TARGET)
    assert caught.queries.shape[2] == TARGET.shape[1]
    for row, weights in enumerate(seen["decoder.cross"][0, 0]):
        steps = caught.steps(head=0, row=row)
        torch.testing.assert_close(steps.weights, weights)
        torch.testing.assert_close(steps.sum, caught.context(head=0, row=row), rtol=0, atol=1e-6)


@given(head=st.integers(0, 3), row=st.integers(0, 3), positions=st.sampled_from(["sinusoidal", "alibi"]))
def test_each_step_follows_from_the_one_before(head: int, row: int, positions: str) -> None:
    model = translator(positions=positions, temperature=2.0)
    with torch.no_grad(), catch(model, "decoder.blocks.0.self") as caught:
        model(SOURCE, TARGET)
    steps = caught.steps(head=head, row=row)
    assert steps.divisor == pytest.approx(8**0.5)
    torch.testing.assert_close(steps.scores, steps.keys @ steps.query)
    torch.testing.assert_close(steps.divided, steps.scores / 8**0.5)
    torch.testing.assert_close(steps.logits, (steps.divided + (0 if steps.bias is None else steps.bias)) / 2)
    assert steps.seen.tolist() == [key <= row for key in range(4)]
    torch.testing.assert_close(steps.weights, steps.logits.masked_fill(~steps.seen, -torch.inf).softmax(0))
    torch.testing.assert_close(steps.parts, steps.weights[:, None] * steps.values)


def test_an_unknown_site_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"decoder\.blocks\.9\.self.*there are encoder\.blocks\.0\.self"), \
            catch(translator(), "decoder.blocks.9.self"):
        pass
