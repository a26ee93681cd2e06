"""Pieces of a sentence in both languages at once, and the rules that put them together.

This is a synchronous grammar: a rule is a pair of patterns, and every English word knows the French words it
comes from. The word alignment of a sentence is therefore gold by construction.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from regard.data.builtin.phrasebook.french import ELISIONS, starts_with_vowel

__all__ = ["COMMAND", "DENIED", "EMPTY", "GREETING", "MARK", "OPEN", "STATED", "TWO_CLAUSES", "YES_NO", "Dice",
           "English", "Piece", "Rule", "Written", "fixed", "row", "written"]  # fmt: skip

English = tuple[tuple[str, tuple[int, ...]], ...]  # each word, and which French words of the piece it renders
T = TypeVar("T")
MARK = "_"  # between an English word and its part of speech, where it is not the word's usual one


class Piece(NamedTuple):
    """A stretch of French before elision, and its English."""

    french: tuple[str, ...]
    english: English
    operator: English = ()
    """Of a verb: what a question puts before the subject ("do" in "do you eat")."""
    combinations: tuple[tuple[str, str], ...] = ()
    """The pairs of lemmas that were chosen together: verb and object, noun and adjective."""
    kind: str | None = None
    """What it makes of a sentence, such as a question; absent: a plain statement."""


EMPTY = Piece((), ())
# The kinds of sentences.
STATED, DENIED, TWO_CLAUSES = "statement", "negation", "two clauses"
YES_NO, OPEN, COMMAND, GREETING = "yes-no question", "open question", "command", "greeting"


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
    word at its own place among the words. `V^` is the operator of the verb in slot V. `kind` is the kind of sentence
    that the rule makes; without one, the kind comes from a piece in one of its slots.

    >>> there = Rule("il y a X", "there/il/y is/a X")
    >>> written(there(fixed("du pain", "some bread")))
    Written(source='il y a du pain', target='there is some bread', alignment=((0, 0), (1, 0), (2, 1), (3, 2), (4, 3)))
    """

    def __init__(self, french: str, english: str, *, kind: str | None = None) -> None:
        self.kind = kind
        words = french.split()
        slots = [word for word in words if _is_slot(word)]
        literals = [word for word in words if not _is_slot(word)]
        self.french = [(word, slots.index(word) if _is_slot(word) else None) for word in words]
        self.english: list[tuple[str, int | None, bool, tuple[int, ...]]] = []
        own_place = 0
        for item in english.split():
            word, *sources = item.split("/")
            links = tuple(literals.index(source) for source in sources)
            if _is_slot(word.removesuffix("^")):
                self.english.append((word, slots.index(word[0]), word.endswith("^"), links))
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
            if slot is None:
                english.append((word, tuple([literals[link] for link in links])))
            elif links:
                inner = pieces[slot].operator if is_operator else pieces[slot].english
                english += _shifted(inner, starts[slot], [literals[link] for link in links])
            else:
                english += _shifted(pieces[slot].operator if is_operator else pieces[slot].english, starts[slot])
        return Piece(tuple(french), tuple(english), (), _combinations(pieces), self.kind or _kind(pieces))


def _is_slot(word: str) -> bool:
    return len(word) == 1 and word.isupper()


def _shifted(english: English, start: int, more: Sequence[int] = ()) -> Sequence[tuple[str, tuple[int, ...]]]:
    if more:
        return [(word, (*[link + start for link in links], *more)) for word, links in english]
    return [(word, tuple([link + start for link in links])) for word, links in english] if start else english


def _combinations(pieces: tuple[Piece, ...]) -> tuple[tuple[str, str], ...]:
    found: tuple[tuple[str, str], ...] = ()
    for piece in pieces:
        if piece.combinations:
            found += piece.combinations
    return found


def _kind(pieces: tuple[Piece, ...]) -> str | None:
    for piece in pieces:
        if piece.kind:
            return piece.kind
    return None


def fixed(french: str, english: str) -> Piece:
    """A phrase without slots; unmarked words are linked one by one, or all with all where the numbers differ.

    >>> fixed("la semaine prochaine", "next/prochaine week/la/semaine").english
    (('next', (2,)), ('week', (0, 1)))
    """
    words, targets = french.split(), english.split()
    if "/" in english or len(words) == len(targets):
        return Rule(french, english)()
    everything = tuple(range(len(words)))
    return Piece(tuple(words), tuple((target, everything) for target in targets))


def row(*pieces: Piece) -> Piece:
    """The pieces one after the other, in both languages."""
    french: tuple[str, ...] = ()
    english: list[tuple[str, tuple[int, ...]]] = []
    for piece in pieces:
        english += _shifted(piece.english, len(french))
        french += piece.french
    return Piece(french, tuple(english), (), _combinations(pieces), _kind(pieces))


class Written(NamedTuple):
    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


LONGEST = 32
# Each link exists once: a hundred thousand sentences would otherwise hold a million equal pairs.
LINKS = [[(source, target) for target in range(LONGEST)] for source in range(LONGEST)]


def written(piece: Piece) -> Written:
    """French with its elisions, English with its question mark, and the alignment of their written words.

    >>> written(fixed("elle aime la eau", "she likes water/la/eau"))
    Written(source="elle aime l'eau", target='she likes water', alignment=((0, 0), (1, 1), (2, 2)))
    """
    source: list[str] = []
    places: list[int] = []
    last = ""
    for word in piece.french:
        if last in ELISIONS and starts_with_vowel(word):
            source[-1] = ELISIONS[last] + word
        else:
            source.append(word)
        places.append(len(source) - 1)
        last = word
    target: list[str] = []
    links: list[tuple[int, int]] = []
    for word, sources in piece.english:
        if word == "?":
            target[-1] += "?"
        else:
            target.append(word.partition(MARK)[0])
        place = len(target) - 1
        for index in sources:
            links.append(LINKS[places[index]][place])
    return Written(" ".join(source), " ".join(target), tuple(sorted(dict.fromkeys(links))))
