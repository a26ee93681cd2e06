"""Who does it: pronouns, names and noun phrases, with all that a verb must know to agree."""

from dataclasses import dataclass

from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, decorated, determiners, phrase
from regard.data.builtin.phrasebook.pieces import Dice, Piece
from regard.data.builtin.phrasebook.words import NAMES, Noun

__all__ = ["AGREEMENTS", "ASKING", "PRONOUNS", "Agreement", "Subject", "anyone", "couple", "nominal", "pronoun"]


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """What a verb and an adjective take from their subject. There are few, and each exists once."""

    pronoun: str
    person: int
    """Index into a table of six: je, tu, il, nous, vous, ils."""
    english: str
    owner: str
    """Whose son and leur are, a key of `OWNERS`."""
    is_feminine: bool
    is_plural: bool


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    piece: Piece
    agreement: Agreement


def _agreements() -> list[Agreement]:
    return [
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


AGREEMENTS = _agreements()
THIRD = {(a.is_feminine, a.is_plural): a for a in AGREEMENTS if a.person in (2, 5)}
PRONOUNS = [Subject(Piece((a.pronoun,), ((a.english, (0,)),)), a) for a in AGREEMENTS]
# je, tu and nous count once for each gender, vous four times: the others get the same share.
BALANCED = [subject for subject in PRONOUNS for _ in range({2: 4, 5: 4, 4: 1}.get(subject.agreement.person, 2))]
ASKING = [subject for subject in BALANCED if subject.agreement.person != 0]  # "mangé-je" is not said


def pronoun(dice: Dice) -> Subject:
    return dice.pick(BALANCED)


def anyone(dice: Dice) -> Subject:
    """A person: mostly a pronoun, else someone by name or by noun."""
    if dice.roll(8) < 5:
        return dice.pick(BALANCED)
    return nominal(dice, dice.pick(PEOPLE))


def nominal(dice: Dice, noun: Noun) -> Subject:
    """This noun as a subject. It is never "son …": there would be no one yet to point to."""
    determiner = dice.pick(determiners(noun, "definite", None))
    piece = decorated(dice, noun, determiner) if dice.roll(4) == 0 else phrase(noun, determiner)
    return Subject(piece, THIRD[noun.is_feminine, determiner.is_plural])


def couple(dice: Dice) -> Subject:
    """Two people by name: "Paul et Marie"."""
    first = dice.pick(NAMES)
    second = dice.pick([name for name in NAMES if name is not first])
    piece = Piece(
        (first.lemma, "et", second.lemma), ((first.lemma, (0,)), ("and", (1,)), (second.lemma, (2,)))
    )
    return Subject(piece, THIRD[first.is_feminine and second.is_feminine, True])
