"""Passages of some lines each, out of the phrase-book's English: the built-in text for an encoder to learn from."""

from collections.abc import Iterable
from itertools import chain

from regard.data.builtin.phrasebook import phrases
from regard.data.corpus import Corpus, Text

__all__ = ["corpus"]

LINES = 8  # of a passage
TESTED = 1_000  # sentences in the validation set and in the test set, at the most


def corpus(count: int) -> Corpus:
    """So many sentences to train on, and others that are not among them."""
    sentences = {"train": _english("train", count)}
    for split in ("val", "test"):
        # Two French sentences may have one English: what is tested is not known already.
        known = set(chain.from_iterable(sentences.values()))
        sentences[split] = [one for one in _english(split, min(TESTED, count)) if one not in known]
    return Corpus({split: _text(passages(some)) for split, some in sentences.items()}, ())


def passages(sentences: Iterable[str]) -> list[str]:
    r"""The sentences of a passage share their longest word, so that they belong together, and what follows can be told.

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
