"""An encoder of images and any decoder tell what they see; Show and Tell reads the image as its first word."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from regard.check.consistency import checks
from regard.check.probe import of_encoder_decoder
from regard.look.watch import watch
from regard.models.build import captioner, image_encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.schema import Image, Recurrence, Tower

VOCABULARY, START, END = 40, 1, 2
PLAIN = Tower(width=16, depth=1, heads=2, image=Image(size=12, patch=4, class_token=False), positions="learned",
              dropout=0.0)
RECURRENT = {
    "show and tell": Recurrence(cell="lstm", context="fixed"), "soft": Recurrence(cell="lstm", gate=True),
    "hard": Recurrence(cell="lstm", attention="hard"), "bahdanau": Recurrence(cell="gru"),
    "luong": Recurrence(cell="lstm", context="output", input_feeding=True)}
TOWERS = {"transformer": PLAIN, **{name: replace(PLAIN, recurrent=how) for name, how in RECURRENT.items()},
          "class token": replace(PLAIN, image=Image(size=12, patch=4))}


def model_of(tower: Tower) -> EncoderDecoder:
    model = captioner(tower, targets=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def pixels(rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, 12, 12)


@pytest.mark.parametrize("name", TOWERS)
def test_every_check_of_a_captioner_holds(name: str) -> None:
    rows = [[START, *range(3, 3 + length)] for length in (2, 5, 9)]
    asked = of_encoder_decoder(model_of(TOWERS[name]), list(pixels(3)), rows, pad=None, token_pad=0, end=END,
                               decode=lambda ids: " ".join(map(str, ids)))
    found = list(checks(asked))
    assert [check.name for check in found if not check.holds] == []
    assert len(found) >= 7


@pytest.mark.parametrize("name", TOWERS)
def test_an_answer_depends_on_the_image_and_every_weight_learns(name: str) -> None:
    model, read = model_of(TOWERS[name]), torch.tensor([[START, 5, 6], [START, 5, 6]])
    states, terms = model.train().with_terms(pixels(), read, read, ignore=0)
    assert not torch.allclose(states[0], states[1])
    sum([model.logits(states).logsumexp(-1).sum(), *terms.values()]).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", [name for name in TOWERS if name != "show and tell"])
def test_each_word_looks_at_the_places_of_the_image(name: str) -> None:
    model, read = model_of(TOWERS[name]), torch.randint(3, VOCABULARY, (2, 5))
    with torch.no_grad(), watch(model, "*.cross") as seen:
        model(pixels(), read)
    for weights in seen.values():
        assert weights.shape[2:] == (5, model.encoder.inputs.layout.places)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
def test_show_and_tell_reads_the_mean_of_the_grid_as_its_first_word(cell: str) -> None:
    """Vinyals et al. 2015, eq. 10 to 12, with torch's own layers."""
    model = model_of(replace(PLAIN, depth=2, recurrent=Recurrence(cell=cell, context="fixed")))
    decoder, read, images = model.decoder, torch.randint(3, VOCABULARY, (2, 4)), pixels()
    memory = model.encode(images)
    first = decoder.shown(memory.states.mean(1))
    x = torch.cat([first[:, None], decoder.tokens.table.weight[read] * 16**0.5], dim=1)
    layers = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}[cell](16, 16, num_layers=2, batch_first=True)
    layers.load_state_dict({name.replace("_l0", f"_l{number}"): tensor for number, block in enumerate(decoder.blocks)
                            for name, tensor in block.forth.state_dict().items()})
    torch.testing.assert_close(model(images, read), layers(x)[0][:, 1:])


@pytest.mark.parametrize("name", ["soft", "hard", "luong", "bahdanau", "show and tell"])
def test_the_features_of_an_image_may_be_wider_than_the_decoder(name: str) -> None:
    wide = Image(size=16, stem="resnet", patch=1, stages=(1, 1), width=24, class_token=False)
    model = model_of(replace(TOWERS[name], image=wide))
    state = model.begin(4, model.encode(torch.randn(2, 3, 16, 16)))
    read = torch.randint(3, VOCABULARY, (4, 3))
    first = torch.cat([model.step(read[:, :1], state), model.step(read[:, 1:], state)], dim=1)
    assert first.shape == (4, 3, 16)
    assert model.encoder.width == 24


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_are_added_to_the_last_grid_of_a_residual_network(positions: str) -> None:
    image = Image(size=16, stem="resnet", patch=1, stages=(1, 1), class_token=False)
    plain, placed = (image_encoder(replace(PLAIN, image=image, positions=kind)).eval() for kind in ("none", positions))
    initialize(placed, seed=0)
    plain.load_state_dict(placed.state_dict(), strict=False)
    x = torch.randn(2, 3, 16, 16)
    added = placed.inputs.positions.embed(torch.zeros(2, 64, 16), torch.arange(64)[None])
    torch.testing.assert_close(placed(placed.embed(x)) - plain(plain.embed(x)), added)
    assert len(added[0].unique(dim=0)) == 64
