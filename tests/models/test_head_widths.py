"""Heads of different widths, as `model.head_widths` gives them, in every kind of model of attention."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.convert.families import FAMILIES, family_of, why_none
from regard.convert.model_spec import ModelSpec
from regard.models.build import text_encoder, translator
from regard.models.classifier import Classifier
from regard.models.decoder import Decoder
from regard.models.electra import Detector
from regard.nn.attend import Attend
from regard.nn.attention import Attention, CrossAttention
from regard.nn.init import initialize
from regard.settings.backbone import refuse_another_shape
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Tower

WIDTHS, VOCABULARY = (2, 5, 9), 30
TOWER = Tower(width=12, depth=2, heads=3, head_widths=WIDTHS, dropout=0.0)
UNEQUAL = "model.head_widths=2,5,9"


def ready(model: nn.Module) -> Any:
    initialize(model, seed=0)
    return model.eval()


def text(rows: int, length: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(length))


def test_every_attention_of_a_translator_has_heads_of_these_widths() -> None:
    model = translator(TOWER, sources=VOCABULARY, targets=VOCABULARY)
    layers = [layer for layer in model.modules() if isinstance(layer, Attention | CrossAttention)]
    assert len(layers) == 2 + 2 * 2
    for layer in layers:
        assert layer.widths == WIDTHS
        assert layer.out.weight.shape == (12, sum(WIDTHS))


@torch.no_grad()
@pytest.mark.parametrize("change", [{}, {"norm_place": "post"}, {"positions": "relative"}, {"positions": "alibi"},
                                    {"window": 3}, {"score": "additive"}, {"score": "bilinear"}])
def test_what_a_language_model_says_step_by_step_is_what_it_says_of_the_whole(change: dict[str, Any]) -> None:
    model, tokens = ready(Decoder(replace(TOWER, **change), vocabulary=VOCABULARY)), text(2, 7)
    whole = model(model.embed(tokens))
    for capacity in (None, 7):
        state = model.begin(2, capacity=capacity)
        steps = torch.cat([model.step(part, state) for part in tokens.split((3, 1, 1, 1, 1), dim=1)], dim=1)
        torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_a_translator_says_step_by_step_is_what_it_says_of_the_whole() -> None:
    model, source, target = ready(translator(TOWER, sources=VOCABULARY, targets=VOCABULARY)), text(2, 5), text(2, 6)
    whole = model(source, target)
    for capacity in (None, 6):
        state = model.begin(2, model.encode(source), capacity=capacity)
        steps = torch.cat([model.step(part, state) for part in target.split(1, dim=1)], dim=1)
        torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_widths_decide_how_each_head_is_scaled() -> None:
    model, tokens = ready(Decoder(TOWER, vocabulary=VOCABULARY)), text(1, 6)
    attention = model.blocks[0].self
    nn.init.normal_(attention.qkv.weight, std=1.0)
    x = model.blocks[0].self_norm(model.embed(tokens))
    kept = list[Tensor]()

    def keep(layer: Attend, given: Any, found: Any) -> None:
        kept.append(found.context)

    attention.attend.register_forward_hook(keep)
    model(model.embed(tokens))
    q, k, v = attention.qkv(x).split(sum(WIDTHS), dim=-1)
    past = torch.ones(6, 6).tril().bool()
    for head, (mine, keys, values) in enumerate(zip(*(part[0].split(WIDTHS, dim=-1) for part in (q, k, v)),
                                                    strict=True)):
        scores = (mine @ keys.T / WIDTHS[head] ** 0.5).masked_fill(~past, float("-inf"))
        torch.testing.assert_close(kept[0][0, head, :, : WIDTHS[head]], scores.softmax(-1) @ values, rtol=1e-4,
                                   atol=1e-5)


@torch.no_grad()
def test_widths_that_are_equal_are_one_width_said_for_each_head() -> None:
    tokens = text(2, 7)
    said = [replace(TOWER, head_widths=(6, 6, 6)), replace(TOWER, head_widths=(), head_width=6)]
    one, other = (ready(Decoder(tower, vocabulary=VOCABULARY)) for tower in said)
    assert torch.equal(one(one.embed(tokens)), other(other.embed(tokens)))


def test_every_weight_of_unequal_heads_learns() -> None:
    for tower in (TOWER, replace(TOWER, window=2, global_projections=True)):
        model = ready(Classifier(text_encoder(tower, vocabulary=VOCABULARY), tower, labels=3))
        own = [p for name, p in model.named_parameters() if "global" not in name]
        model(text(4, 7)).logsumexp(-1).sum().backward()
        assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in own)


def test_a_generator_has_the_first_of_the_heads_of_its_detector() -> None:
    model = Detector(replace(TOWER, positions="none"), vocabulary=VOCABULARY, generator=0.6)
    assert model.generator is not None
    attention = model.generator.encoder.blocks[0].self
    assert (attention.widths, model.generator.encoder.width) == (WIDTHS[:2], sum(WIDTHS[:2]))


@pytest.mark.parametrize(("overrides", "said"), [
    (["model.head_widths=2,5"], r"model\.head_widths=2, 5: .* model\.heads=3; "),
    ([UNEQUAL, "model.head_width=4"], r"model\.head_widths=2, 5, 9: .* remove model\.head_width=4$"),
    ([UNEQUAL, "model.kv_heads=1"], r"model\.kv_heads=1 needs heads of one width"),
    ([UNEQUAL, "model.qk_norm=true"], r"model\.qk_norm=true needs heads of one width"),
    ([UNEQUAL, "model.positions=rotary"], r"model\.positions=rotary needs heads of one width"),
    (["model.head_widths=5,5,5", "model.positions=rotary"], "rotary positions need an even width per head, got 5"),
    (["model.head_widths=2,5,0"], r"model\.head_widths: must be a list of whole numbers of at least 1, got 0"),
    (["model.head_widths=2,x"], r"model\.head_widths: must be a list of whole numbers.*got 'x'"),
    ([UNEQUAL, "model.recurrent.cell=gru"], r"model\.head_widths=2, 5, 9: has no effect on a recurrent model \(gru\)"),
])
def test_widths_that_cannot_be_are_refused_with_a_sentence(overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load(None, ["model.width=12", "model.heads=3", *overrides])


@pytest.mark.parametrize("overrides", [
    [UNEQUAL], [UNEQUAL, "model.kv_heads=3"], ["model.head_widths=4,4,4", "model.kv_heads=1", "model.qk_norm=true"],
    ["model.head_widths=6,6,6", "model.positions=rotary"], [UNEQUAL, "model.head_widths=none"]])
def test_widths_that_can_be_are_taken(overrides: list[str]) -> None:
    tower = load(None, ["model.width=12", "model.heads=3", *overrides]).model
    model = ready(Decoder(tower, vocabulary=VOCABULARY))
    assert model(model.embed(text(1, 5))).isfinite().all()


def test_no_published_family_has_heads_of_different_widths() -> None:
    tower = replace(FAMILIES["gpt2"].keys.base, width=12, heads=3)
    same, other = (ModelSpec(tower=replace(tower, head_widths=widths), vocabulary=9) for widths in ((4, 4, 4), WIDTHS))
    assert family_of(same) is FAMILIES["gpt2"]
    assert family_of(other) is None
    assert "does not have model.head_widths=2, 5, 9" in why_none(other)


def test_a_run_starts_from_a_model_with_the_same_widths_only() -> None:
    plain = replace(TOWER, head_widths=())
    refuse_another_shape(replace(plain, head_widths=(4, 4, 4)), plain, Path("runs/a"))
    refuse_another_shape(TOWER, TOWER, Path("runs/a"))
    for one, other, said in ((TOWER, plain, "2, 5, 9: the model in runs/a has none"),
                             (plain, TOWER, "none: the model in runs/a has 2, 5, 9")):
        with pytest.raises(UserError, match=rf"^model\.head_widths={said}"):
            refuse_another_shape(one, other, Path("runs/a"))
