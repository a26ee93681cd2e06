"""Split a text into words, and marks of punctuation around them."""

import re
from collections.abc import Iterator, Sequence

from regard.settings.errors import UserError

__all__ = ["Words", "plain_words", "words_for_tags"]

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


def words_for_tags(text: str, tags: Sequence[str]) -> list[str]:
    """The words that these tags are for: those of the text as it stands, or where their number differs as it is read.

    >>> words_for_tags("at 9 a.m .", ["ADP", "NUM", "NOUN", "PUNCT"]), words_for_tags("at 9.", ["ADP", "NUM", "PUNCT"])
    (['at', '9', 'a.m', '.'], ['at', '9', '.'])
    """
    standing = text.split(" ")
    words = standing if len(standing) == len(tags) else plain_words(text)
    if len(words) != len(tags):
        raise UserError(f"{len(tags):,} tags, where there are {len(words):,} words: {' '.join(words)}")
    return words
