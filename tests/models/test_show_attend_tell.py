"""Show, Attend and Tell learns from drawn places as from all of them, and says what its attention adds to the loss."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from regard.models import show_attend_tell
from regard.models.build import text_decoder, translator
from regard.models.show_attend_tell import ShowAttendTellDecoder
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Recurrence, Tower

WIDTH, VOCABULARY, PLACES, PAD = 6, 5, 3, 0
SOFT = Recurrence(cell="lstm", gate=True)
HARD = replace(SOFT, attention="hard", expected=0.0)
TOWER = Tower(width=WIDTH, depth=1, score="additive", positions="none", tied="none", dropout=0.0)


def model_of(recurrent: Recurrence) -> ShowAttendTellDecoder:
    model = text_decoder(replace(TOWER, recurrent=recurrent), vocabulary=VOCABULARY, memory_width=WIDTH)
    assert isinstance(model, ShowAttendTellDecoder)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model.double()


def grid(rows: int = 1) -> Memory:
    return Memory(torch.randn(rows, PLACES, WIDTH, dtype=torch.float64))


def forced(monkeypatch: pytest.MonkeyPatch, places: Tensor) -> None:
    """The next draws give these places: one step after the other."""
    steps = iter(places.unbind(1))
    monkeypatch.setattr(show_attend_tell, "draw", lambda probabilities: next(steps))


def gradient(loss: Tensor, model: nn.Module) -> dict[str, Tensor]:
    learned = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(learned.items(), found, strict=True)}


@pytest.mark.parametrize("baseline", [0.0, -2.5])
def test_the_expected_gradient_of_drawn_places_is_the_exact_one(baseline: float,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 10 summed over all places of three words, and eq. 12 in the mean over all that can be drawn."""
    model, memory = model_of(HARD), grid()
    assert model.baseline is not None
    read, write = torch.tensor([[1, 3, 2]]), torch.tensor([[3, 2, 4]])
    exact: dict[str, Tensor] = {}
    mean: dict[str, Tensor] = {}
    for drawn in itertools.product(range(PLACES), repeat=3):
        places = torch.tensor([drawn])
        forced(monkeypatch, places)
        model.baseline.mean.fill_(baseline)
        model.baseline.weight.fill_(1.0)
        states, terms = model.with_terms(model.embed(read), memory, write, ignore=PAD)
        words = model.logits(states).log_softmax(-1).gather(2, write[..., None]).sum()
        forced(monkeypatch, places)
        seen = model.glimpses(model.embed(read), memory)
        chance = seen.weights.gather(2, places[..., None]).log().sum().exp()
        once_more = model.logits(seen.states).log_softmax(-1).gather(2, write[..., None]).sum()
        for name, value in gradient(-chance * once_more, model).items():
            exact[name] = exact.get(name, 0) + value
        for name, value in gradient(terms["reinforce"] - words, model).items():
            mean[name] = mean.get(name, 0) + chance.detach() * value
    assert exact["cross.attend.query_weight"].abs().max() > 1e-4
    for name, value in exact.items():
        torch.testing.assert_close(mean[name], value, msg=name)


def test_the_places_of_a_step_depend_on_its_seed_only() -> None:
    model, memory, read = model_of(HARD).train(), grid(4), torch.randint(1, VOCABULARY, (4, 8))
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(model.glimpses(model.embed(read), memory).places)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_without_training_each_word_has_its_likeliest_place() -> None:
    model, read = model_of(HARD).eval(), torch.randint(1, VOCABULARY, (2, 5))
    seen = model.glimpses(model.embed(read), grid(2))
    assert torch.equal(seen.places, seen.weights.argmax(-1))


def test_a_share_of_the_examples_sees_the_mean_of_all_places() -> None:
    rows, soft = 400, model_of(SOFT)
    memory, read = grid(rows), torch.randint(1, VOCABULARY, (rows, 4))
    hard = model_of(replace(HARD, expected=0.25)).train()
    hard.load_state_dict(soft.state_dict(), strict=False)
    seen = hard.glimpses(hard.embed(read), memory)
    assert 0.15 < 1 - seen.drawn.double().mean() < 0.35
    same = (seen.states == soft(soft.embed(read), memory)).flatten(1).all(1)
    assert torch.equal(same, ~seen.drawn)


def test_the_penalty_is_how_far_the_words_weights_for_each_place_are_from_one() -> None:
    model, memory = model_of(SOFT).eval(), grid(2)
    write = torch.tensor([[2, 3, 4, 1], [3, 1, PAD, PAD]])
    states, terms = model.with_terms(model.embed(write), memory, write, ignore=PAD)
    weights = model.glimpses(model.embed(write), memory).weights
    by_hand = sum((1 - sum(weights[row, word, place] for word in range(words))) ** 2
                  for row, words in enumerate((4, 2)) for place in range(PLACES))
    torch.testing.assert_close(terms["coverage"], by_hand)
    assert torch.equal(states, model(model.embed(write), memory))
    empty = torch.full_like(write, PAD)
    assert model.with_terms(model.embed(write), memory, empty, ignore=PAD)[1]["coverage"] == 0


def test_padding_and_examples_without_a_drawn_place_earn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, memory = model_of(HARD).train(), grid(3)
    read = torch.tensor([[1, 2, 3, 4], [1, 3, PAD, PAD], [1, 4, 2, 3]])
    write = torch.tensor([[2, 3, 4, 4], [3, 4, PAD, PAD], [4, 2, 3, 1]])
    drawn = torch.tensor([True, True, False])
    monkeypatch.setattr(model, "draws", lambda x: drawn[: len(x)])

    def terms(rows: int, length: int) -> dict[str, Tensor]:
        torch.manual_seed(0)
        forced(monkeypatch, torch.zeros(rows, length, dtype=torch.long))
        assert model.baseline is not None
        model.baseline.weight.zero_()
        model.baseline.mean.zero_()
        return model.with_terms(model.embed(read[:rows, :length]), Memory(memory.states[:rows]), write[:rows, :length],
                                ignore=PAD)[1]

    whole, without = terms(3, 4), terms(2, 4)
    torch.testing.assert_close(whole["reinforce"], without["reinforce"])
    torch.testing.assert_close(whole["entropy"], without["entropy"])
    longer = write.clone()
    longer[1, 2:] = 2
    before = whole["reinforce"]
    write = longer
    assert not torch.equal(terms(3, 4)["reinforce"], before)


def test_a_translator_may_look_at_one_word_at_a_time() -> None:
    tower = replace(TOWER, recurrent=replace(HARD, direction="bidirectional"))
    model = translator(tower, sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=0)
    source, target = torch.randint(1, VOCABULARY, (2, 6)), torch.randint(1, VOCABULARY, (2, 4))
    mask = Mask(keys=torch.arange(6) < torch.tensor([[6], [3]]))
    states, terms = model.train().with_terms(source, target, target, ignore=PAD, mask=mask)
    assert set(terms) == {"coverage", "reinforce", "entropy"}
    seen = model.decoder.glimpses(model.decoder.embed(target), model.encode(source, mask))
    assert (seen.weights[1, :, 3:] == 0).all()
    assert (seen.places[1] < 3).all()
    assert states.shape == (2, 4, WIDTH)
