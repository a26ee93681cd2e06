"""Passages of a few lines each from the phrase book's English sentences: the built-in text for encoders."""

from collections.abc import Iterable
from itertools import chain

from regard.data.builtin.phrasebook import phrases
from regard.data.corpus import Corpus, Text

__all__ = ["corpus"]

LINES = 8  # of a passage
TESTED = 1_000  # at most this many sentences in the validation set and in the test set


def corpus(count: int) -> Corpus:
    """`count` training sentences, and other sentences for validation and test."""
    sentences = {"train": _english("train", count)}
    for split in ("val", "test"):
        # Two French sentences may have the same English one: the test must not contain it.
        known = set(chain.from_iterable(sentences.values()))
        sentences[split] = [one for one in _english(split, min(TESTED, count)) if one not in known]
    return Corpus({split: _text(passages(some)) for split, some in sentences.items()}, ())


def passages(sentences: Iterable[str]) -> list[str]:
    r"""The sentences of a passage share their longest word, so that one helps to predict the next.

    >>> passages(["where is the garden?", "the garden is small", "they sleep"])
    ['where is the garden?\nthe garden is small\n', 'they sleep\n']
    """
    about: dict[str, list[str]] = {}
    for sentence in sentences:
        about.setdefault(max(sentence.rstrip("?").split(), key=len), []).append(sentence)
    return ["".join(f"{line}\n" for line in lines[first : first + LINES])
            for lines in about.values() for first in range(0, len(lines), LINES)]


def _english(split: str, count: int) -> list[str]:
    return list(dict.fromkeys(phrase.target for phrase in phrases(split, count)))


def _text(documents: list[str]) -> Text:
    return Text(lambda: (iter((document,)) for document in documents), sum(map(len, documents)))
