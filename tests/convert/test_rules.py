"""The tables of names are bijections, and the maps of settings lead there and back."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from towers import VOCABULARY, WRITERS, language, shaken, towers

from regard.checkpoint import named_tensors
from regard.convert.families import FAMILIES, family_of, why_none
from regard.convert.keys import canonical
from regard.convert.rules import Rule, TensorTable
from regard.models.decoder import Decoder
from regard.settings.errors import UserError
from regard.settings.schema import Tower
from regard.settings.setting import replaced

families = pytest.mark.parametrize("name", WRITERS)


@families
@settings(max_examples=25)
@given(data=st.data())
def test_there_and_back_every_bit_is_the_same(name: str, data: st.DataObject) -> None:
    tower = data.draw(towers(name))
    table = FAMILIES[name].table(language(tower))
    ours = named_tensors(shaken(Decoder(tower, vocabulary=VOCABULARY)))
    theirs = table.theirs(ours)
    assert theirs.keys() == table.their_shapes.keys()
    assert sum(tensor.numel() for tensor in theirs.values()) == sum(tensor.numel() for tensor in ours.values())
    back = table.ours(theirs, origin="here")
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[key], ours[key]) for key in ours)


@families
@settings(max_examples=60)
@given(data=st.data())
def test_a_config_leads_back_to_its_tower(name: str, data: st.DataObject) -> None:
    tower, family = data.draw(towers(name)), FAMILIES[name]
    assert family_of(language(tower)) is family
    back = family.tower(family.config(language(tower)), origin="config.json")
    assert canonical(back) == canonical(tower)
    assert back.attention_dropout == tower.attention_dropout


@pytest.mark.parametrize("change", [
    {"qk_norm": True, "bias": True}, {"window": 5}, {"norm_place": "post"}, {"embedding.scaled": True},
    {"temperature": 2.0}, {"position_width": 2}, {"positions": "alibi"}, {"score": "additive"},
])
@families
@settings(max_examples=3)
@given(data=st.data())
def test_a_tower_with_more_than_a_family_has_is_of_none(name: str, change: dict[str, object],
                                                        data: st.DataObject) -> None:
    tower = replaced(data.draw(towers(name)), change)
    assert family_of(language(tower)) is None
    assert any(f"model.{setting}=" in why_none(language(tower)) for setting in change)


def test_a_width_that_the_heads_do_not_divide_is_of_no_family() -> None:
    tower = replace(FAMILIES["llama"].keys.base, activation="swiglu", width=12, heads=5, head_width=4)
    assert family_of(language(tower)) is None


SMALL = Tower(width=4, depth=1, heads=2, positions="none", norm="rms", bias=False)
NAMES = ["tokens.table.weight", "blocks.0.self.out.weight", "blocks.0.self.qkv.weight", "blocks.0.self_norm.weight",
         "blocks.0.feed_forward.up.weight", "blocks.0.feed_forward.down.weight", "blocks.0.feed_forward_norm.weight",
         "norm.weight"]  # fmt: skip
RULES = [Rule(name, (f"their.{name}",)) for name in NAMES]


@pytest.mark.parametrize("rules", [
    pytest.param(RULES[1:], id="ours missing"),
    pytest.param([*RULES, Rule("output.weight", ("their.output.weight",))], id="ours too many"),
    pytest.param([*RULES, RULES[0]], id="ours twice"),
    pytest.param([*RULES[1:], Rule("tokens.table.weight", ("their.norm.weight",))], id="theirs twice"),
])
def test_rules_that_are_no_bijection_make_no_table(rules: list[Rule]) -> None:
    TensorTable(RULES, Decoder(SMALL, vocabulary=10))
    with pytest.raises(AssertionError):
        TensorTable(rules, Decoder(SMALL, vocabulary=10))


def test_rows_that_do_not_add_up_make_no_table() -> None:
    split = Rule("blocks.0.self.qkv.weight", ("q", "k"), (4, 4))
    with pytest.raises(RuntimeError):
        TensorTable([rule for rule in RULES if rule.ours != split.ours] + [split], Decoder(SMALL, vocabulary=10))


def test_tensors_that_do_not_fit_are_named() -> None:
    table = TensorTable(RULES, Decoder(SMALL, vocabulary=10))
    theirs = dict(table.theirs(named_tensors(Decoder(SMALL, vocabulary=10))))
    theirs["their.norm.wieght"] = theirs.pop("their.norm.weight")
    theirs["their.blocks.0.self.out.weight"] = torch.zeros(3, 3)
    with pytest.raises(UserError) as caught:
        table.ours(theirs, origin="model.safetensors")
    for part in ("their.norm.weight: missing", "their.norm.wieght: unknown", "(3, 3) instead of (4, 4)"):
        assert part in str(caught.value)
