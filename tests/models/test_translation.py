"""A translator learns a language of a few words in seconds; its attention and its steps can be watched."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.generate.beam import Beam, beam
from regard.look.watch import watch
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.schema import Tower

WORDS, FIRST, START, END = 10, 3, 1, 2
TOWER = Tower(width=32, depth=1, heads=2, ffn_width=64, dropout=0.0)


def sentences(count: int, length: int, seed: int, *, held_out: bool = False) -> Tensor:
    """A fifth of all sentences is held out: those whose words' numbers sum to a multiple of 5."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(8 * count, WORDS, generator=generator).argsort(1)[:, :length]
    return FIRST + drawn[(drawn.sum(1) % 5 == 0) == held_out][:count]


def translated(source: Tensor) -> Tensor:
    """Each word has a word of its own in the other language, whose sentences run the other way."""
    return FIRST + (source.flip(1) - FIRST + 4) % WORDS


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    model = translator(TOWER, sources=FIRST + WORDS, targets=FIRST + WORDS)
    initialize(model, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(260):
        source = sentences(32, 3 + step % 3, seed=step)
        target = F.pad(translated(source), (1, 0), value=START)
        answer = F.pad(target[:, 1:], (0, 1), value=END)
        loss = F.cross_entropy(model.logits(model(source, target)).flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


@torch.no_grad()
def answers(model: EncoderDecoder, source: Tensor) -> list[list[int]]:
    found = beam(model, torch.full((len(source), 1), START), memory=model.encode(source),
                 how=Beam(end=END, longest=9, size=2))
    return [hypotheses[0].tokens for hypotheses in found]


@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_translator_learns_to_translate_sentences_that_it_has_never_seen(model: EncoderDecoder, length: int) -> None:
    source = sentences(40, length, seed=10_000, held_out=True)
    assert len(source) == 40
    expected = translated(source).tolist()
    assert sum(ours == theirs for ours, theirs in zip(answers(model, source), expected, strict=True)) >= 36


@torch.no_grad()
def test_its_cross_attention_shows_the_alignment(model: EncoderDecoder) -> None:
    """Word i of the target is the translation of word length − 1 − i of the source: there it looks the most."""
    source = sentences(40, 5, seed=10_000, held_out=True)
    with watch(model, only="*cross") as seen:
        model(source, F.pad(translated(source)[:, :-1], (1, 0), value=START))
    [weights] = seen.values()
    there = torch.arange(4, -1, -1)
    assert weights.mean((0, 1)).argmax(-1).equal(there)
    assert (weights.mean(1).argmax(-1) == there).float().mean() > 0.9
