"""Models before the transformer do what their papers say, in numbers: small runs that learn in a second or two."""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.look.alignment import Links, error_rate, links
from regard.look.axes import AxisPair
from regard.look.heatmap import matrix
from regard.look.watch import watch
from regard.models import build
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.load import load
from regard.settings.presets import PRESETS
from regard.tasks.traits import defaults
from regard.training.loop import train
from typed import regard_says

SMALL = ("model.width=16", "model.dropout=0", "train.warmup=5", "train.batch_tokens=256", "train.evaluate_every=1000",
         "device=cpu", "train.precision=float32")


# Elman's network.


def test_an_elman_network_learns_a_language_in_which_the_last_letter_says_too_little(tmp_path: Path) -> None:
    """In aabbaabb… any letter follows any other half of the time: who sees one letter has a perplexity of 2 or more."""
    (tmp_path / "a.txt").write_text("aabb" * 600)
    run = load(None, [*SMALL, "model.preset=elman", "tokens.kind=characters", "data.max_tokens=32", "train.steps=60",
                      "train.learning_rate=0.03", "train.label_smoothing=0", f"data.paths={tmp_path / 'a.txt'}"],
               base=defaults("language", built_in=False))  # fmt: skip
    assert train(run, tmp_path / "run", quiet=True)["val"]["perplexity"] < 1.4


WORDS = ("can", "fish", "walk", "play", "work", "look")  # nouns after "the", verbs after "they"
TAGS = {"the": ("DET", "NOUN"), "they": ("PRON", "VERB")}


def test_an_elman_tagger_beats_the_most_frequent_tag_of_each_word_and_says_how_likely_each_tag_is(
    tmp_path: Path
) -> None:
    sentences = [(p, a, q, b) for (p, q), a, b in product(product(TAGS, repeat=2), WORDS, WORDS)]
    random.Random(0).shuffle(sentences)
    for split, some in (("train", sentences[:100]), ("val", sentences[100:])):
        (tmp_path / f"{split}.conll").write_text("\n".join(
            "".join(f"{word}\t{tag}\n" for first, second in ((p, a), (q, b))
                    for word, tag in zip((first, second), TAGS[first], strict=True)) for p, a, q, b in some))
    run = load(None, [*SMALL, "model.preset=elman", "tokens.kind=words", "train.steps=40", "train.learning_rate=0.02",
                      f"data.paths={tmp_path / 'train.conll'},{tmp_path / 'val.conll'}"],
               base=defaults("tag", built_in=False))  # fmt: skip
    scores = train(run, tmp_path / "run", quiet=True)["val"]
    assert scores["accuracy"] > 0.99
    assert scores["baseline"] < 0.8
    code, said, _ = regard_says("predict", "--run", tmp_path / "run", "--json", "they can", "the can")
    assert code == 0
    for line, tag in zip(said.splitlines(), ("VERB", "NOUN"), strict=True):
        choice = json.loads(line)["choices"][1]
        assert choice["token"] == "can"
        assert choice["probability"] > 0.8
        assert choice["best"][0][0] == tag
        assert math.isclose(sum(chance for _, chance in choice["best"]), 1, rel_tol=1e-4)


# One vector for a source, or a look at all of it.

START, SYMBOLS = 1, 8
LENGTHS = (2, 4, 8, 12)


def copies(length: int, *, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sources of so many symbols, and targets: a start and the same again."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(2, SYMBOLS, (rows, length), generator=generator)
    return source, torch.cat([torch.full((rows, 1), START), source], dim=1)


def swapped(length: int, *, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sources of so many of forty words, and targets in which each two words have changed places."""
    source = torch.randint(2, 40, (rows, length), generator=torch.Generator().manual_seed(seed))
    target = source.unflatten(1, (-1, 2)).flip(2).flatten(1)
    return source, torch.cat([torch.full((rows, 1), START), target], dim=1)


def translator(preset: str, *, symbols: int, width: int) -> EncoderDecoder:
    plain = PRESETS[preset]()
    assert plain.recurrent is not None
    tower = replace(plain, recurrent=replace(plain.recurrent, cell="gru"), width=width, depth=1, dropout=0.0)
    model = build.translator(tower, sources=symbols, targets=symbols)
    initialize(model, seed=0)
    return model


def learned(preset: str, texts: Callable[..., tuple[Tensor, Tensor]] = copies, *, symbols: int = SYMBOLS,
            width: int = 32, lengths: Sequence[int] = (2, 3, 4, 6, 8, 10), steps: int = 150,
            rate: float = 0.01) -> EncoderDecoder:
    """A small translator that has learned for a while; all have the same cell, and learn from the same texts."""
    model = translator(preset, symbols=symbols, width=width)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        source, target = texts(lengths[step % len(lengths)], rows=32, seed=step)
        logits = model.logits(model(source, target[:, :-1]))
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def shares_right(model: EncoderDecoder) -> list[float]:
    """Of the symbols, by the length of the source."""
    found = []
    for length in LENGTHS:
        source, target = copies(length, rows=200, seed=10_000 + length)
        right = model.logits(model(source, target[:, :-1])).argmax(-1) == target[:, 1:]
        found.append(float(right.float().mean()))
    return found


@pytest.fixture(scope="module")
def fixed() -> list[float]:
    return shares_right(learned("sutskever"))


@pytest.fixture(scope="module")
def attending() -> EncoderDecoder:
    return learned("bahdanau")


@pytest.fixture(scope="module")
def crossing() -> EncoderDecoder:
    return learned("bahdanau", swapped, symbols=40, width=24, lengths=(6, 8), steps=300, rate=0.015)


def test_a_translator_with_one_vector_for_its_source_is_worse_the_longer_the_source(fixed: list[float]) -> None:
    """Sutskever et al. 2014, as Bahdanau et al. 2015, figure 2, found it."""
    assert fixed[0] > 0.95
    assert all(longer < shorter - 0.05 for shorter, longer in pairwise(fixed))
    assert fixed[-1] < 0.55


def test_attention_is_better_on_long_sources_than_one_vector(fixed: list[float], attending: EncoderDecoder) -> None:
    """Bahdanau et al. 2015, 5.1."""
    gains = [a - b for a, b in zip(shares_right(attending), fixed, strict=True)]
    assert min(gains[2:]) > 0.08
    assert gains[-1] > gains[0]


@torch.no_grad()
def drawn(model: EncoderDecoder, length: int) -> list[np.ndarray]:
    """The numbers in the picture of each sentence's alignment."""
    source, target = swapped(length, rows=10, seed=10_000)
    with watch(model) as weights:
        model.logits(model(source, target[:, :-1]))
    pictures = [matrix(one[0].numpy(), AxisPair(tuple(map(str, words.tolist())), tuple(map(str, of.tolist()))))
                for one, words, of in zip(weights["decoder.cross"], target[:, 1:], source, strict=True)]
    return [np.asarray(picture.axes[0].images[0].get_array()) for picture in pictures]


@pytest.mark.parametrize("length", [4, 8])
def test_the_alignment_that_is_plotted_crosses_where_words_have_changed_places(length: int, crossing: EncoderDecoder
                                                                              ) -> None:
    """Bahdanau et al. 2015, figure 3. The model was told which sentences belong together, and not which words."""
    truth = [Links((place ^ 1, place) for place in range(length))] * 10
    assert error_rate([links(weights) for weights in drawn(crossing, length)], truth) < 0.2
    beginner = translator("bahdanau", symbols=40, width=24).eval()
    assert error_rate([links(weights) for weights in drawn(beginner, length)], truth) > 0.6
    assert error_rate([links(np.eye(length))], truth[:1]) == 1  # no straight line would do
