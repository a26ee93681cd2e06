"""Who does it: pronouns, names and noun phrases, with all that a verb must know to agree."""

from dataclasses import dataclass

from regard.data.builtin.phrasebook.determiners import determiners
from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, decorated, phrase
from regard.data.builtin.phrasebook.pieces import Dice, Piece, row
from regard.data.builtin.phrasebook.words import NAMES, Noun

__all__ = ["AND", "ASKING", "PRONOUNS", "THIRD", "Agreement", "Subject", "anyone", "couple", "nominal", "plain",
           "relation"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The agreement of a verb and an adjective with their subject. There are few, and each exists once."""

    pronoun: str
    person: int
    """Index into a table of six: je, tu, il, nous, vous, ils."""
    english: str
    owner: str
    """Whose "son" and "leur" are: a key of `OWNERS`."""
    is_feminine: bool
    is_plural: bool


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    piece: Piece
    agreement: Agreement
    noun: Noun | None = None


AGREEMENTS = [
    Agreement(pronoun, person, english, owner, is_feminine, is_plural)
    for pronoun, person, english, owner, genders, numbers in (
        ("je", 0, "I", "je", (False, True), (False,)),
        ("tu", 1, "you", "tu", (False, True), (False,)),
        ("il", 2, "he", "il", (False,), (False,)),
        ("elle", 2, "she", "elle", (True,), (False,)),
        ("nous", 3, "we", "nous", (False, True), (True,)),
        ("vous", 4, "you", "vous", (False, True), (False, True)),
        ("ils", 5, "they", "ils", (False,), (True,)),
        ("elles", 5, "they", "ils", (True,), (True,)),
    )
    for is_feminine in genders
    for is_plural in numbers
]
THIRD = {(a.is_feminine, a.is_plural): a for a in AGREEMENTS if a.person in (2, 5)}
PRONOUNS = [Subject(Piece((a.pronoun,), ((a.english, (0,)),)), a) for a in AGREEMENTS]
# je, tu and nous stand here once for each gender, vous four times. Nouns are third persons too: those count half.
BALANCED = [subject for subject in PRONOUNS for _ in range(1 if subject.agreement.person == 4 else 2)]
ASKING = [subject for subject in BALANCED if subject.agreement.person != 0]  # "mangé-je ?" is not said
RELATIONS = [noun for noun in PEOPLE if noun.of in ("name", "kin", "friend")]
AND = Piece(("et",), (("and", (0,)),))


def anyone(dice: Dice) -> Subject:
    """A person: mostly a pronoun, else someone by name or by noun."""
    return dice.pick(BALANCED) if dice.roll(3) else nominal(dice, dice.pick(PEOPLE))


def relation(dice: Dice) -> Subject:
    """A person whose profession is open: no "the doctor is a teacher"."""
    return dice.pick(BALANCED) if dice.roll(3) else nominal(dice, dice.pick(RELATIONS))


def nominal(dice: Dice, noun: Noun) -> Subject:
    """This noun as a subject, now and then with an adjective."""
    determiner = dice.pick(determiners(noun, "definite", None))
    piece = decorated(dice, noun, determiner) if dice.roll(4) == 0 else phrase(noun, determiner)
    return Subject(piece, THIRD[noun.is_feminine, determiner.is_plural], noun)


def plain(dice: Dice, noun: Noun) -> Subject:
    """This noun as a subject, without an adjective: one is to follow."""
    determiner = dice.pick(determiners(noun, "definite", None))
    return Subject(phrase(noun, determiner), THIRD[noun.is_feminine, determiner.is_plural], noun)


def couple(dice: Dice) -> Subject:
    """Two people by name: "Paul et Marie"."""
    first = dice.pick(NAMES)
    second = dice.pick([name for name in NAMES if name is not first])
    names = [phrase(name, determiners(name, "definite", None)[0]) for name in (first, second)]
    return Subject(row(names[0], AND, names[1]), THIRD[first.is_feminine and second.is_feminine, True])
