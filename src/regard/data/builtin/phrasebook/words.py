"""The lexicon read into words: nouns, adjectives and verbs with all their forms."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from regard.data.builtin.phrasebook import english, french, lexicon
from regard.data.builtin.phrasebook.pieces import MARK

__all__ = ["ADJECTIVES", "COLOURS", "NAMES", "NATIONALITIES", "NOUNS", "PERSONAL", "Adjective", "Noun", "Verb",
           "among", "classes", "nouns", "pairs", "read_verbs", "rows", "verb"]  # fmt: skip

PROPER = ("name", "language")
MASS = ("solid", "ingredient", "drink")
DYED = ("garment", "accessory", "drivable", "vehicle", "furniture", "object", "tableware", "container", "opening")


# Words are compared and hashed by identity, which is fast: tables of phrases are kept by word.
@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    lemma: str
    of: str
    """Its class."""
    is_feminine: bool
    is_mass: bool
    singular: tuple[str, ...] | None
    plural: tuple[str, ...] | None
    english_singular: tuple[str, ...]
    english_plural: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    lemma: str
    masculine: str
    feminine: str
    before_vowel: str
    """The masculine before a vowel: bel, vieil, nouvel."""
    english: str
    comparative: tuple[str, ...] | None
    is_before: bool
    of: tuple[str, ...]
    """The classes of nouns it can stand beside."""

    def form(self, *, is_feminine: bool, is_plural: bool) -> str:
        word = self.feminine if is_feminine else self.masculine
        return french.plural(word) if is_plural else word


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    lemma: str
    present: tuple[str, ...]
    participle: str
    preposition: str | None
    """What stands between it and its object or its infinitive: "parler à", "essayer de"."""
    base: tuple[str, ...]
    third_person: tuple[str, ...]
    past: tuple[str, ...]
    columns: tuple[str, ...]
    """What else its table says of it."""
    has_etre: bool = False
    is_reflexive: bool = False


Word = TypeVar("Word", Noun, Adjective, Verb)


def among(words: Iterable[Word], lemmas: str) -> list[Word]:
    """Those of the words that the list names."""
    return [word for word in words if word.lemma in lemmas.split()]


def rows(table: str) -> Iterator[list[str]]:
    """The lines of a table, cut at the bars."""
    for line in table.strip().splitlines():
        yield [column.strip() for column in line.split("|")]


def pairs(table: str) -> list[tuple[str, str]]:
    """The lines of a table of two columns."""
    return [(source, target) for source, target in rows(table)]


def classes(names: str) -> tuple[str, ...]:
    """The classes meant by a list that may name groups of them."""
    return tuple(of for name in names.split() for of in lexicon.GROUPS.get(name, name).split())


def nouns(table: str, of: str) -> list[Noun]:
    """One noun per line, or two where the line has a masculine and a feminine."""
    made = []
    for source, target in pairs(table):
        targets = target.split(", ")
        for index, part in enumerate(source.split(", ")):
            lemma = _cut(source.split(", ")[0])[0]
            made.append(_noun(lemma, part, targets[min(index, len(targets) - 1)], of))
    return made


def _noun(lemma: str, source: str, target: str, of: str) -> Noun:
    singular, irregular, gender = _cut(source)
    first, *rest = singular.split()
    many = irregular or " ".join((french.plural(first), *rest))
    one, irregular, _ = _cut(target + " -")
    *start, last = one.split()
    part = "PROPN" if of in PROPER else "NOUN"
    return Noun(
        lemma=lemma,
        of=of,
        is_feminine="f" in gender,
        is_mass=of in MASS,
        singular=None if "p" in gender else (first, *rest),
        plural=None if "s" in gender or of in MASS else (first, *rest) if "p" in gender else tuple(many.split()),
        english_singular=_marked((*start, last), part),
        english_plural=_marked((*start, last if "p" in gender else irregular or english.plural(last)), part),
    )


def _marked(words: Iterable[str], part: str) -> tuple[str, ...]:
    """English words with their part of speech."""
    return tuple(f"{word}{MARK}{part}" for word in words)


def _cut(text: str) -> tuple[str, str | None, str]:
    """A word, its irregular plural in parentheses if it has one, and its gender."""
    found = re.fullmatch(r"(.+?)(?: \((.+)\))? (\S+)", text)
    assert found, text
    return found[1], found[2], found[3]


def _adjective(source: str, target: str, *, is_before: bool = False, of: tuple[str, ...] = ()) -> Adjective:
    masculine, *others = source.split(", ")
    word, *comparative = target.split(", ")
    more: tuple[str, ...] | None = _marked(comparative, "ADJ") if comparative else ("more", f"{word}{MARK}ADJ")
    if comparative == ["-"]:
        more = None
    return Adjective(
        lemma=masculine,
        masculine=masculine,
        feminine=others[0] if others else french.feminine(masculine),
        before_vowel=others[1] if others[1:] else masculine,
        english=f"{word}{MARK}ADJ",
        comparative=more,
        is_before=is_before,
        of=of,
    )


def verb(source: str, target: str, *columns: str, has_etre: bool = False, is_reflexive: bool = False) -> Verb:
    infinitive, *preposition = source.split()
    base, *irregular = target.split(", ")
    first, *particles = base.split()
    *present, participle = french.present(infinitive)
    past, *others = irregular[0].split() if irregular else [english.past(first), *particles]
    part = f"{MARK}AUX" if first == "be" else f"{MARK}VERB"
    return Verb(
        lemma=infinitive,
        present=tuple(present),
        participle=participle,
        preposition=preposition[0] if preposition else None,
        base=(first + part, *particles),
        third_person=(english.third_person(first) + part, *particles),
        past=(past + part, *others),
        columns=columns,
        has_etre=has_etre,
        is_reflexive=is_reflexive,
    )


def read_verbs(table: str, *, has_etre: bool = False, is_reflexive: bool = False) -> list[Verb]:
    return [verb(*line, has_etre=has_etre, is_reflexive=is_reflexive) for line in rows(table)]


NOUNS = {of: nouns(table, of) for of, table in lexicon.NOUNS.items()}
NAMES = nouns(lexicon.NAMES, "name")
ADJECTIVES = [
    _adjective(source, target, is_before=place == "before", of=classes(of))
    for source, target, place, of in rows(lexicon.ADJECTIVES)
]
COLOURS = [
    _adjective(source, f"{target}, -", of=(*DYED, *animals)) for source, target, *animals in rows(lexicon.COLOURS)
]
PERSONAL = [
    _adjective(source, target, of=("friend", "person") if beside else ())
    for source, target, *beside in rows(lexicon.PERSONAL)
]
NATIONALITIES = [
    _adjective(source, f"{target}, -", of=("profession", "person")) for source, target in pairs(lexicon.NATIONALITIES)
]
