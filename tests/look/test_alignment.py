"""Alignments are read off the attention word by word, and their error is Och and Ney's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.builtin.phrasebook import phrases
from regard.data.tokenizer import train as train_tokenizer
from regard.data.tokenizer_training import TOKENIZER_KINDS
from regard.look.alignment import MEAN, Links, best, by_word, error_rate, error_rates, links, mutual
from regard.look.axes import AxisPair
from regard.look.record import Record
from regard.look.wordpieces import readable, words

LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_pieces_of_any_tokenizer_make_the_words_between_blanks(kind: str) -> None:
    texts = [phrase.source for phrase in phrases("test", 60)]
    tokens = train_tokenizer(texts, kind=kind, vocabulary=400)
    for text, ids in zip(texts, tokens.encode(texts), strict=True):
        pieces = tokens.pieces([*ids, tokens.end])
        found = words(pieces)
        assert len(found) == len(text.split()), pieces
        assert len(readable(pieces)) == len(pieces)
        if kind != "words":
            assert ["".join(pieces[i] for i in word).strip() for word in found if len(word) == 1] == [
                whole for whole, word in zip(text.split(), found, strict=True) if len(word) == 1]


def test_source_pieces_are_summed_and_target_pieces_averaged() -> None:
    weights = np.array([[[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.0, 0.5]]])
    labels = AxisPair((" a", "b", "</s>"), (" x", "y", " z", "</s>"))
    np.testing.assert_allclose(by_word(weights, labels), [[[0.625, 0.25]]])


@given(st.integers(0, 99), st.integers(0, 5), st.integers(1, 5))
def test_mutual_links_are_links_and_no_word_has_two(seed: int, targets: int, sources: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(sources), targets).reshape(targets, sources)
    assert len(links(weights)) == targets
    both = mutual(weights)
    assert both <= links(weights)
    assert len({source for source, _ in both}) == len({target for _, target in both}) == len(both)


@given(st.lists(LINKS, min_size=1, max_size=4))
def test_only_the_truth_has_no_error(gold: list[Links]) -> None:
    assert error_rate(gold, gold) == 0
    assert error_rate([frozenset() for _ in gold], gold) == (1 if any(gold) else 0)


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    found, gold = [Links({(0, 0), (1, 1)}), Links({(0, 0)})], [Links({(0, 0), (1, 2), (2, 1)}), Links({(0, 0)})]
    assert error_rate(found, gold) == pytest.approx(1 - 2 * 2 / (3 + 4))


def test_attention_that_is_the_alignment_has_no_error_and_the_mean_counts_as_a_head() -> None:
    site = "decoder.blocks.0.cross"
    right, wrong = np.eye(4)[[1, 0, 2, 3]], np.eye(4)[[0, 0, 0, 0]]
    labels = AxisPair((" a", " b", " c", "</s>"), (" x", " y", " z", "</s>"))
    record = Record({site: np.stack([wrong, right]).astype(np.float32),
                     "decoder.blocks.0.self": np.eye(4, dtype=np.float32)[None]},
                    {site: labels, "decoder.blocks.0.self": labels}, {site: (0, 1), "decoder.blocks.0.self": (0,)})
    rates = error_rates([record], [Links({(1, 0), (0, 1), (2, 2)})])
    assert set(rates) == {(site, 0), (site, 1), (site, MEAN)}
    assert rates[site, 1] == 0
    assert rates[site, 0] == pytest.approx(2 / 3)
    assert best(rates) == ((site, 1), (site, MEAN))
