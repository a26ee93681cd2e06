"""What is hidden of a text, and how words are told from their tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers

from regard.data.batch import IGNORED
from regard.data.masking import NOISE, MaskingPolicy
from regard.data.published import Specials
from regard.data.tokenizer import TOKENIZER_KINDS, Tokenizer, train
from regard.data.whole_words import WordBoundaries
from regard.settings.schema import Masking

TEXT = ("the unbelievable dog sat on the mat, and 1984 dogs barked loudly; \"why?\" asked the cat. "
        "an unreadable book lay there\n")


def word_pieces() -> Tokenizer:
    """A tokenizer of BERT's kind."""
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "un", "##believ", "##able", "##s", "the", "dog", "sat", "on",
             "mat", ",", "and", "."]
    library = Library(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    return Tokenizer(library, Specials(pad=0, start=1, end=2, mask=3))


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    return train([TEXT] * 3, kind="bpe", vocabulary=290, mask=True)


def drawn(tokens: Tokenizer, rows: int, length: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a text over and over, each from another place on, and their noise."""
    random = np.random.default_rng(seed)
    ids = tokens.encode([TEXT * 9])[0]
    whole = np.full((rows, length), tokens.pad)
    for row in whole:
        first, count = random.integers(len(ids) // 2), random.integers(1, length - 1)
        row[: count + 2] = [tokens.start, *np.resize(ids[first:], count), tokens.end]
    return whole, random.random((rows, NOISE, length))


def test_the_shares_are_those_that_the_settings_say(tokens: Tokenizer) -> None:
    rows, noise = drawn(tokens, 3_000, 66)
    hidden = MaskingPolicy.of(Masking(), tokens).hide(rows, noise)
    asked = hidden.targets != IGNORED
    real = ~np.isin(rows, [tokens.pad, tokens.start, tokens.end])
    assert asked.sum() / real.sum() == pytest.approx(0.15, abs=0.01)
    put = np.take_along_axis(hidden.tokens, hidden.places, 1)[asked]
    stood = hidden.targets[asked]
    assert (put == tokens.mask).mean() == pytest.approx(0.8, abs=0.01)
    assert ((put != tokens.mask) & (put != stood)).mean() == pytest.approx(0.1, abs=0.01)
    assert (put == stood).mean() == pytest.approx(0.1, abs=0.01)


@given(st.integers(8, 70), st.floats(0.01, 0.9), st.booleans(), st.integers(0, 99))
def test_of_each_row_the_share_is_asked_for_and_nothing_else_is_touched(
        tokens: Tokenizer, length: int, share: float, whole_words: bool, seed: int) -> None:
    rows, noise = drawn(tokens, 5, length, seed=seed)
    hidden = MaskingPolicy.of(Masking(rate=share, whole_words=whole_words), tokens).hide(rows, noise)
    for row, changed, places, targets in zip(rows, *hidden, strict=True):
        real = int((~np.isin(row, [tokens.pad, tokens.start, tokens.end])).sum())
        chosen = places[targets != IGNORED]
        assert len(set(chosen.tolist())) == len(chosen)
        assert 1 <= len(chosen) <= max(1, round(share * real))
        assert whole_words or len(chosen) == max(1, round(share * real))
        assert row[chosen].tolist() == targets[targets != IGNORED].tolist()
        others = np.setdiff1d(np.arange(length), chosen)
        assert (changed[others] == row[others]).all()
        assert not np.isin(row[chosen], [tokens.pad, tokens.start, tokens.end]).any()


def test_a_token_that_is_put_for_another_is_never_special(tokens: Tokenizer) -> None:
    rows, noise = drawn(tokens, 500, 40)
    hidden = MaskingPolicy.of(Masking(mask_share=0.0, random_share=1.0, rate=0.5), tokens).hide(rows, noise)
    put = np.take_along_axis(hidden.tokens, hidden.places, 1)[hidden.targets != IGNORED]
    assert not np.isin(put, [id for id in tokens.specials if id is not None]).any()
    assert len(np.unique(put)) > len(tokens) / 2


@pytest.mark.parametrize("kind", [*TOKENIZER_KINDS, "wordpiece"])
def test_whole_words_are_hidden_whole(kind: str) -> None:
    tokens = word_pieces() if kind == "wordpiece" else train([TEXT] * 3, kind=kind, vocabulary=300, mask=True)
    rows, noise = drawn(tokens, 50, 120)
    hider = MaskingPolicy.of(Masking(whole_words=True), tokens)
    hidden, starts = hider.hide(rows, noise), WordBoundaries(tokens).starts(rows)
    for row, places in enumerate(hidden.places):
        chosen = set(places[hidden.targets[row] != IGNORED].tolist())
        for word in np.split(np.arange(rows.shape[1]), np.flatnonzero(starts[row])[1:]):
            assert len(chosen & set(word.tolist())) in (0, len(word)) or len(word) > len(chosen)


def test_words_of_every_kind_of_token_are_the_words_of_the_text() -> None:
    for tokens in (word_pieces(), *(train([TEXT] * 3, kind=kind, vocabulary=290, mask=True)
                                    for kind in ("bpe", "unigram", "characters", "bytes"))):
        [row] = tokens.encode(["the unbelievable dogs, and the mat."])
        words, starts = WordBoundaries(tokens), np.flatnonzero(WordBoundaries(tokens).starts(np.array([row]))[0])
        found = ["".join(words.written[id] for id in part) for part in np.split(np.array(row), starts[1:])]
        assert [word.strip() for word in found] == ["the", "unbelievable", "dogs", ",", "and", "the", "mat", "."]


def test_parts_between_blanks_are_read_as_within_the_text() -> None:
    for kind in ("bpe", "unigram", "words"):
        tokens = train([TEXT] * 3, kind=kind, vocabulary=300, mask=True)
        [whole] = tokens.encode(["the dog sat on the mat, and"])
        parts = tokens.between(["the dog", " sat on ", "", " mat, and"])
        assert [*parts[0], *parts[1]] == whole[: len(parts[0]) + len(parts[1])]
        assert parts[2] == []
        assert parts[3] == whole[-len(parts[3]) :]
    tokens = train([TEXT] * 3, kind="characters", vocabulary=300, mask=True)
    assert tokens.decode(tokens.between(["the ", " sat"])) == ["the ", " sat"]
