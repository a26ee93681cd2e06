"""Pieces of a sentence in both languages at once, and the rules that put them together.

This is a synchronous grammar: a rule is a pair of patterns, and every word of the English one knows the French
words it comes from. The word alignment of a sentence is therefore gold by construction.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from regard.data.builtin.phrasebook.french import ELISIONS, starts_with_vowel

__all__ = ["EMPTY", "Dice", "English", "Piece", "Rule", "fixed", "row", "surface"]

English = tuple[tuple[str, tuple[int, ...]], ...]  # each word, and which French words of the piece it renders
T = TypeVar("T")


class Piece(NamedTuple):
    """A stretch of French before elision, and its English."""

    french: tuple[str, ...]
    english: English
    operator: English = ()
    """Of a verb: what a question puts before the subject ("do" in "do you eat")."""
    combinations: tuple[tuple[str, str], ...] = ()
    """The pairs of lemmas that were chosen together: verb and object, noun and adjective."""


EMPTY = Piece((), ())


class Dice:
    """A large number, spent one choice at a time.

    >>> dice = Dice(1234)
    >>> dice.pick("abcdefghij"), dice.pick("abcdefghij"), dice.roll(10)
    ('e', 'd', 2)
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def pick(self, options: Sequence[T]) -> T:
        self.number, index = divmod(self.number, len(options))
        return options[index]

    def roll(self, sides: int) -> int:
        self.number, side = divmod(self.number, sides)
        return side


class Rule:
    """A French and an English pattern with the same slots, which are capital letters.

    In the English one `there/il/y` is a word that renders "il" and "y"; a word without a mark renders the French
    word at its own place among the words. `V^` is the operator of the verb in slot V.

    >>> there = Rule("il y a X", "there/il/y is/a X")
    >>> surface(there(fixed("de le pain", "some/de/le bread/pain")))
    ('il y a de le pain', 'there is some bread', ((0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3)))
    """

    def __init__(self, french: str, english: str) -> None:
        words = french.split()
        self.slots = [word for word in words if _is_slot(word)]
        self.french = [(word, self.slots.index(word) if _is_slot(word) else None) for word in words]
        literals = [word for word in words if not _is_slot(word)]
        self.english: list[tuple[str, int | None, bool, tuple[int, ...]]] = []
        own_place = 0
        for item in english.split():
            word, *sources = item.split("/")
            links = tuple(literals.index(source) for source in sources)
            if _is_slot(word[0]) and word[1:] in ("", "^"):
                self.english.append((word, self.slots.index(word[0]), word.endswith("^"), links))
            else:
                self.english.append((word, None, False, links or (own_place,)))
                own_place += 1

    def __call__(self, *pieces: Piece) -> Piece:
        french: list[str] = []
        starts = [0] * len(pieces)
        literals: list[int] = []  # where each word of the pattern itself has come to stand
        for word, slot in self.french:
            if slot is None:
                literals.append(len(french))
                french.append(word)
            else:
                starts[slot] = len(french)
                french += pieces[slot].french
        english: list[tuple[str, tuple[int, ...]]] = []
        for word, slot, is_operator, links in self.english:
            more = tuple([literals[link] for link in links]) if links else ()
            if slot is None:
                english.append((word, more))
                continue
            start = starts[slot]
            for inner, inner_links in pieces[slot].operator if is_operator else pieces[slot].english:
                english.append((inner, (*[link + start for link in inner_links], *more)))
        combinations = tuple([pair for piece in pieces for pair in piece.combinations])
        return Piece(tuple(french), tuple(english), (), combinations)


def _is_slot(word: str) -> bool:
    return len(word) == 1 and word.isupper() and word != "I"


def fixed(french: str, english: str) -> Piece:
    """A phrase without slots; unmarked words are linked one by one, or all with all where the numbers differ.

    >>> fixed("la semaine prochaine", "next/prochaine week/la/semaine").english
    (('next', (2,)), ('week', (0, 1)))
    """
    words = french.split()
    targets = english.split()
    if "/" in english or len(words) == len(targets):
        return Rule(french, english)()
    everything = tuple(range(len(words)))
    return Piece(tuple(words), tuple((target, everything) for target in targets))


def row(*pieces: Piece) -> Piece:
    """The pieces one after the other, in both languages."""
    french: list[str] = []
    english: list[tuple[str, tuple[int, ...]]] = []
    for piece in pieces:
        start = len(french)
        french += piece.french
        english += [(word, tuple([link + start for link in links])) for word, links in piece.english]
    combinations = tuple([pair for piece in pieces for pair in piece.combinations])
    return Piece(tuple(french), tuple(english), (), combinations)


def surface(piece: Piece) -> tuple[str, str, tuple[tuple[int, int], ...]]:
    """French with its elisions, English with its question mark, and the alignment of their written words."""
    written: list[str] = []
    places: list[int] = []
    last = ""
    for word in piece.french:
        if last in ELISIONS and starts_with_vowel(word):
            written[-1] = ELISIONS[last] + word
        else:
            written.append(word)
        places.append(len(written) - 1)
        last = word
    target: list[str] = []
    links: list[tuple[int, int]] = []
    for word, sources in piece.english:
        if word == "?":
            target[-1] += "?"
        else:
            target.append(word)
        place = len(target) - 1
        links += [(places[source], place) for source in sources]
    return " ".join(written), " ".join(target), tuple(sorted(set(links)))
