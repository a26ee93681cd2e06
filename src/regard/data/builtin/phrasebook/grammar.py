"""The whole language: its templates with their shares, and how many sentences it has at least."""

from collections import Counter

from regard.data.builtin.phrasebook import (
    actions,
    compounds,
    descriptions,
    objects,
    occasions,
    servings,
    states,
)
from regard.data.builtin.phrasebook.clauses import Clause
from regard.data.builtin.phrasebook.determiners import determiners
from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, attributes
from regard.data.builtin.phrasebook.pieces import Dice, Piece
from regard.data.builtin.phrasebook.subjects import PRONOUNS
from regard.data.builtin.phrasebook.words import Noun

__all__ = ["TEMPLATES", "derive", "plain_statements"]

# A template's share follows how many forms of words are learnt from it, not how many sentences it has: each
# form of each verb is then seen dozens of times in a hundred thousand sentences.
TEMPLATES = {
    objects.transitive: 54,
    objects.pronominal: 18,
    objects.stative: 12,
    objects.object_question: 6,
    objects.subject_question: 4,
    objects.amount_question: 4,
    objects.ditransitive: 9,
    objects.communication: 12,
    objects.listing: 2,
    actions.intransitive: 12,
    actions.pair: 2,
    actions.animal: 4,
    actions.motion: 18,
    actions.living: 3,
    actions.reflexive: 16,
    actions.skill: 10,
    actions.ability: 2,
    actions.command: 8,
    servings.serving: 3,
    servings.wish: 3,
    states.feeling: 14,
    states.nationality: 2,
    states.idiom: 4,
    states.age: 3,
    states.occupation: 7,
    states.whereabouts: 4,
    states.need: 2,
    states.comparison: 5,
    descriptions.description: 12,
    descriptions.thing_comparison: 5,
    descriptions.placement: 4,
    descriptions.where_is: 3,
    descriptions.existence: 6,
    descriptions.identity: 3,
    descriptions.presentation: 1,
    descriptions.price: 2,
    occasions.pain: 5,
    occasions.timetable: 1,
    occasions.weather: 2,
    occasions.clock: 1,
    occasions.greeting: 1,
    compounds.cause: 3,
    compounds.opinion: 4,
    compounds.contrast: 3,
    compounds.person_clause: 1,
    compounds.thing_clause: 3,
}
SHARES = list(Counter(TEMPLATES).elements())


def derive(number: int) -> Piece:
    """The sentence of this number, which should be large: every choice is a digit of it."""
    dice = Dice(number)
    return dice.pick(SHARES)(dice)


def plain_statements() -> int:
    """How many sentences there are of a subject, a verb in one of its tenses and an object, and no more.

    All are different: no noun phrase contains a verb, so such a sentence falls into its three parts in one way;
    and the parts differ, because their determiners, adjectives, nouns and verbs do.
    """
    subjects = Counter({pronoun.agreement.owner: 1 for pronoun in PRONOUNS})
    subjects["ils"] += 1  # elles
    for noun in dict.fromkeys(PEOPLE):
        for determiner in dict.fromkeys(determiners(noun, "definite", None)):
            owner = "ils" if determiner.is_plural else "elle" if noun.is_feminine else "il"
            subjects[owner] += _decorations(noun)
    here = Clause(PRONOUNS[0])
    return sum(
        count * len(set(objects.tenses(verb, here))) * len(set(determiners(noun, "plain", owner))) * _decorations(noun)
        for owner, count in subjects.items()
        for verb in objects.TRANSITIVES
        for noun in dict.fromkeys(objects.OBJECTS[verb])
    )


def _decorations(noun: Noun) -> int:
    """In how many ways the noun has no adjective, one, or two."""
    before, after, second = attributes(noun)
    return 1 + len(before) + len(after) + len(before) * len(second)
