"""Two language models that never meet: each knows its own side of a token, and a task mixes what they know."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.models.build import text_decoder, text_encoder
from regard.models.classifier import Tagger
from regard.models.elmo import ElmoDecoder, ElmoEncoder, Mix
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower

VOCABULARY, LENGTH = 40, 9
TOWER = replace(PRESETS["elmo"](), width=16)


def ready(model: nn.Module) -> nn.Module:
    initialize(model, seed=0)
    return model.eval()


def writer(tower: Tower = TOWER) -> ElmoDecoder:
    model = ready(text_decoder(tower, vocabulary=VOCABULARY))
    assert isinstance(model, ElmoDecoder)
    return model


def reader(tower: Tower = TOWER) -> ElmoEncoder:
    model = ready(text_encoder(tower, vocabulary=VOCABULARY))
    assert isinstance(model, ElmoEncoder)
    return model


def text(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(1, VOCABULARY, (rows, length))


def by_hand(model: ElmoDecoder | ElmoEncoder, tokens: Tensor, way: str) -> list[Tensor]:
    """What enters the first layer, and the states of each, of one text: an LSTM's equations, token by token.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000, in torch's order of the gates.
    """
    order = list(range(len(tokens))) if way == "forth" else list(reversed(range(len(tokens))))
    table = next(weight for name, weight in model.named_parameters() if name.endswith("tokens.table.weight"))
    layers = [table[tokens]]
    for block in model.blocks:
        cell = getattr(block, way)
        h, c = torch.zeros(2, cell.hidden_size)
        states = torch.empty(len(tokens), cell.hidden_size)
        for place in order:
            gates = (cell.weight_ih_l0 @ layers[-1][place] + cell.bias_ih_l0 + cell.weight_hh_l0 @ h + cell.bias_hh_l0)
            into, forget, new, out = gates.chunk(4)
            c = forget.sigmoid() * c + into.sigmoid() * new.tanh()
            h = out.sigmoid() * c.tanh()
            states[place] = h
        layers.append(states)
    return layers


@torch.no_grad()
def test_the_states_of_each_way_are_those_of_its_own_cells_run_by_hand() -> None:
    model, tokens = writer(), text()
    for row, forth, back in zip(tokens, model(model.embed(tokens)), model.hindsight(tokens), strict=True):
        torch.testing.assert_close(forth, by_hand(model, row, "forth")[-1])
        torch.testing.assert_close(back, by_hand(model, row, "back")[-1])


@torch.no_grad()
def test_a_task_reads_its_own_vectors_beside_the_mixed_layers_of_both_ways() -> None:
    model, tokens = reader(), text()
    model.over.mix.scores.copy_(torch.tensor([0.3, -1.0, 2.0]))
    model.over.mix.scale.fill_(1.7)
    e = torch.tensor([0.3, -1.0, 2.0]).exp()
    wanted = []
    for row in tokens:
        layers = zip(e / e.sum(), by_hand(model, row, "forth"), by_hand(model, row, "back"), strict=True)
        wanted.append(1.7 * sum(s * torch.cat([forth, back], dim=-1) for s, forth, back in layers))
    read = torch.cat([model.over.own.table.weight[tokens], torch.stack(wanted)], dim=-1)
    torch.testing.assert_close(model(model.embed(tokens)), model.over.reader(read))


@torch.no_grad()
def test_at_first_all_layers_count_alike() -> None:
    mix, layers = Mix(3), list(torch.randn(3, 2, 5, 8))
    initialize(nn.ModuleDict({"mix": mix}), seed=0)
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(0))


@settings(max_examples=20)
@given(st.integers(1, LENGTH - 1))
def test_the_way_forth_never_sees_what_comes_nor_the_way_back_what_came(place: int) -> None:
    model, tokens = writer(), text()
    later, earlier = tokens.clone(), tokens.clone()
    later[:, place:] = text(2, LENGTH - place)
    earlier[:, :place] = text(2, place)
    with torch.no_grad():
        assert torch.equal(model(model.embed(tokens))[:, :place], model(model.embed(later))[:, :place])
        assert torch.equal(model.hindsight(tokens)[:, place:], model.hindsight(earlier)[:, place:])


@settings(max_examples=20)
@given(st.integers(1, LENGTH - 1))
def test_in_an_encoder_too_the_ways_do_not_meet_below_the_mix(place: int) -> None:
    model, tokens = reader(), text()
    later = tokens.clone()
    later[:, place:] = text(2, LENGTH - place)
    with torch.no_grad():
        before, after = model.embed(tokens)[..., :32], model.embed(later)[..., :32]
        for block in model.blocks:
            before, after = block(before), block(after)
            assert torch.equal(before[:, :place, :16], after[:, :place, :16])
            assert not torch.equal(before[:, :place, 16:], after[:, :place, 16:])


def test_both_ways_learn_from_one_loss_and_share_tokens_and_output() -> None:
    model, tokens = writer().train(), text()
    logits = model.logits(model(model.embed(tokens))).sum() + model.logits(model.hindsight(tokens)).pow(2).sum()
    logits.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.output.weight is model.tokens.table.weight


@torch.no_grad()
def test_padding_is_seen_by_neither_way() -> None:
    model, tokens = ready(Tagger(text_encoder(TOWER, vocabulary=VOCABULARY), TOWER, labels=3)), text()
    padded = torch.cat([tokens, text(2, 4)], dim=1)
    mask = Mask(keys=torch.arange(LENGTH + 4).expand(2, -1) < LENGTH)
    torch.testing.assert_close(model(padded, mask=mask)[:, :LENGTH], model(tokens))


def test_an_encoder_has_the_language_models_tensors_and_its_own_above_them() -> None:
    below = {name.removeprefix("inputs.") for name in reader().state_dict() if not name.startswith("over.")}
    assert below == writer().state_dict().keys() - {"output.weight"}


def test_narrower_tokens_are_widened_for_both_ways() -> None:
    tower = replace(TOWER, embedding=replace(TOWER.embedding, width=6))
    assert writer(tower).hindsight(text()).shape == (2, LENGTH, 6)
    model = reader(tower)
    assert model(model.embed(text())).shape == (2, LENGTH, 16)


@pytest.mark.parametrize(("override", "says"), [
    ("model.recurrent.bptt=8", "model.recurrent.bptt=8: only a forward language model uses this"),
    ("model.width=15", "model.width: must be even"),
])
def test_what_a_bilm_cannot_have_is_refused(override: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load(overrides=["model.preset=elmo", override])
