"""Sentences of two clauses: because, that, and, but, who."""

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.actions import INTRANSITIVES
from regard.data.builtin.phrasebook.being import be
from regard.data.builtin.phrasebook.clauses import STATEMENT
from regard.data.builtin.phrasebook.descriptions import PREDICATES
from regard.data.builtin.phrasebook.determiners import THE, THE_MANY
from regard.data.builtin.phrasebook.noun_phrases import phrase
from regard.data.builtin.phrasebook.objects import OBJECTS, THINGS, combined
from regard.data.builtin.phrasebook.pieces import EMPTY, TWO_CLAUSES, Dice, Piece, Rule
from regard.data.builtin.phrasebook.states import IDIOMS, MOODS, adjective
from regard.data.builtin.phrasebook.subjects import PRONOUNS, THIRD, Subject, anyone
from regard.data.builtin.phrasebook.verb_groups import PAST, PRESENT, Tense, verb_group
from regard.data.builtin.phrasebook.words import NOUNS, PERSONAL, Noun, among, read_verbs

__all__ = ["cause", "contrast", "opinion", "person_clause", "thing_clause"]

BECAUSE = Rule("A parce que B", "A because/parce/que B", kind=TWO_CLAUSES)
AND = Rule("A et B", "A and/et B", kind=TWO_CLAUSES)
BUT = Rule("A mais B", "A but/mais B", kind=TWO_CLAUSES)
THAT = Rule("S V que B", "S V^ V that_SCONJ/que B", kind=TWO_CLAUSES)
WHO_IS = Rule("N qui V W P", "N who/qui V^ V W^ W P", kind=TWO_CLAUSES)
WHICH_IS = Rule("N que S V W P", "N that/que S V^ V W^ W P", kind=TWO_CLAUSES)
OPINIONS = read_verbs(lexicon.OPINIONS)
TRAITS = [a for a in PERSONAL if a not in MOODS]
HOPES = among(PERSONAL, "content heureux prêt riche célèbre")
NEEDS = [idiom for idiom in IDIOMS if idiom.french[-1] not in ("raison", "tort")]
BY_AGREEMENT = {subject.agreement: subject for subject in PRONOUNS}


def _condition(dice: Dice, subject: Subject, tense: str, negation: str | None) -> Piece:
    """How someone is: "elle est fatiguée", "j'ai faim" """
    if dice.roll(3) == 0:
        return STATEMENT(subject.piece, be("avoir", tense, subject.agreement, negation=negation), dice.pick(NEEDS))
    group = be("être", tense, subject.agreement, negation=negation)
    return STATEMENT(subject.piece, group, adjective(dice, dice.pick(MOODS), subject))


def _deed(dice: Dice, subject: Subject, tense: Tense) -> Piece:
    """A short thing to do: "elle chante" """
    negation = "pas" if dice.roll(5) == 0 else None
    group = verb_group(dice.pick(INTRANSITIVES), tense, subject.agreement, negation=negation)
    return STATEMENT(subject.piece, group, EMPTY)


def cause(dice: Dice) -> Piece:
    """ "Marie dort parce qu'elle est fatiguée" """
    subject, is_past = anyone(dice), dice.roll(3) == 0
    deed = _deed(dice, subject, PAST if is_past else PRESENT)
    negation = "pas" if dice.roll(6) == 0 else None
    again = BY_AGREEMENT[subject.agreement]
    return BECAUSE(deed, _condition(dice, again, "past" if is_past else "present", negation))


def opinion(dice: Dice) -> Piece:
    """ "je pense que Paul est malade" """
    subject, verb, other = anyone(dice), dice.pick(OPINIONS), anyone(dice)
    group = verb_group(verb, PRESENT, subject.agreement)
    if verb.lemma == "espérer":
        hoped = adjective(dice, dice.pick(HOPES), other)
        return THAT(subject.piece, group, STATEMENT(other.piece, be("être", "future", other.agreement), hoped))
    negation = "pas" if dice.roll(6) == 0 else None
    return THAT(subject.piece, group, _condition(dice, other, dice.pick(("present", "present", "past")), negation))


def contrast(dice: Dice) -> Piece:
    """ "je chante et elle danse", "il est riche mais il n'est pas heureux" """
    subject = anyone(dice)
    if dice.roll(2):
        trait = adjective(dice, dice.pick(TRAITS), subject)
        sentence = STATEMENT(subject.piece, be("être", "present", subject.agreement), trait)
        return BUT(sentence, _condition(dice, BY_AGREEMENT[subject.agreement], "present", "pas"))
    other = dice.pick([pronoun for pronoun in PRONOUNS if pronoun.agreement.english != subject.agreement.english])
    tense = dice.pick((PRESENT, PRESENT, PAST))
    return dice.pick((AND, BUT))(_deed(dice, subject, tense), _deed(dice, other, tense))


def _the(dice: Dice, noun: Noun) -> Subject:
    determiner = THE_MANY if noun.plural and (not noun.singular or dice.roll(2)) else THE
    return Subject(phrase(noun, determiner), THIRD[noun.is_feminine, determiner.is_plural], noun)


def person_clause(dice: Dice) -> Piece:
    """ "la femme qui chante est célèbre" """
    subject = _the(dice, dice.pick(NOUNS["person"]))
    group = verb_group(dice.pick(INTRANSITIVES), PRESENT, subject.agreement)
    said = adjective(dice, dice.pick(PERSONAL), subject)
    return WHO_IS(subject.piece, group, be("être", "present", subject.agreement), said)


def thing_clause(dice: Dice) -> Piece:
    """ "le livre que tu lis est intéressant" """
    verb, reader = dice.pick(THINGS), anyone(dice)
    noun = dice.pick(OBJECTS[verb])
    subject = _the(dice, noun)
    said = adjective(dice, dice.pick(PREDICATES[noun]), subject)
    group = verb_group(verb, PRESENT, reader.agreement)
    piece = combined(verb, noun, subject.piece)
    return WHICH_IS(piece, reader.piece, group, be("être", "present", subject.agreement), said)
