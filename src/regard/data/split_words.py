"""Sentences as words: which words a text has, and how a sentence that is too long to be read at once is read."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from regard.settings.errors import UserError

__all__ = ["Piece", "Words", "pieces", "plain_words", "told_words"]

OPENING, CLOSING = "([{«“\"¿¡", ".,;:!?…)]}»”\"。、！？"
AROUND = re.compile(rf"([{re.escape(OPENING)}]*)(.*?)([{re.escape(CLOSING)}]*)", re.DOTALL)
ALIKE = re.compile(r"(.)\1*", re.DOTALL)

Words = Sequence[str]


def plain_words(text: str) -> list[str]:
    """The words between the blanks of a text, and the marks of punctuation around them as words of their own.

    Marks inside a word stay in it, and so does the last full stop of a word with others; a word of marks stays whole.

    >>> plain_words('"Well," said Mr Fox (at 9 a.m.), "who\\'s there?!" ...')
    ['"', 'Well', ',', '"', 'said', 'Mr', 'Fox', '(', 'at', '9', 'a.m.', ')', ',', '"', "who's", 'there', '?', '!', \
'"', '...']
    """
    return [part for word in text.split() for part in _parts(word)]


def _parts(word: str) -> Iterator[str]:
    around = AROUND.fullmatch(word)
    assert around is not None
    before, inside, after = around.groups()
    if not inside:
        yield word
        return
    if "." in inside and after.startswith("."):
        inside, after = f"{inside}.", after[1:]
    yield from before
    yield inside
    yield from (same[0] for same in ALIKE.finditer(after))


def told_words(text: str, tags: Sequence[str]) -> list[str]:
    """The words that these tags are for: those of the text as it stands, or where their number differs as it is read.

    >>> told_words("at 9 a.m .", ["ADP", "NUM", "NOUN", "PUNCT"]), told_words("at 9.", ["ADP", "NUM", "PUNCT"])
    (['at', '9', 'a.m', '.'], ['at', '9', '.'])
    """
    standing = text.split(" ")
    words = standing if len(standing) == len(tags) else plain_words(text)
    if len(words) != len(tags):
        raise UserError(f"{len(tags):,} tags, where there are {len(words):,} words: {' '.join(words)}")
    return words


class Piece(NamedTuple):
    """A part of a sentence: the words to read, and those of them to tag."""

    read: range
    told: range


def pieces(sizes: Sequence[int], room: int) -> list[Piece]:
    """Stretches of words of these sizes with at most `room` in each. The next begins in the middle of the one before.

    Of the words that two parts share, the first part tags the first half, so that all words but those at the ends of
    the sentence are tagged with context on both sides. No word may be longer than the room.

    >>> [(list(read), list(told)) for read, told in pieces([1, 1, 1, 1, 1, 1], 4)]
    [([0, 1, 2, 3], [0, 1, 2]), ([2, 3, 4, 5], [3, 4, 5])]
    """
    reads, first = list[range](), 0
    while not reads or reads[-1].stop < len(sizes):
        last, used = first, 0
        while last < len(sizes) and used + sizes[last] <= room:
            last, used = last + 1, used + sizes[last]
        reads.append(range(first, last))
        first = max(first + 1, (first + last + 1) // 2)
    cuts = [0, *((one.stop + other.start + 1) // 2 for one, other in pairwise(reads)), len(sizes)]
    return [Piece(read, range(start, stop)) for read, (start, stop) in zip(reads, pairwise(cuts), strict=True)]
