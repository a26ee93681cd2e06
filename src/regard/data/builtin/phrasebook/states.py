"""Sentences about how someone is: tired, hungry, twenty years old, a student, taller than you."""

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.being import TENSES, be
from regard.data.builtin.phrasebook.clauses import FREQUENCIES, STATEMENT, WHY, Clause, clause
from regard.data.builtin.phrasebook.determiners import BARE, BARE_MANY, UNSAID, determiners
from regard.data.builtin.phrasebook.noun_phrases import PEOPLE, after, decorated, phrase
from regard.data.builtin.phrasebook.pieces import EMPTY, OPEN, YES_NO, Dice, English, Piece, Rule, fixed, row
from regard.data.builtin.phrasebook.places_and_times import TIMES, location
from regard.data.builtin.phrasebook.subjects import ASKING, Subject, anyone, nominal, relation
from regard.data.builtin.phrasebook.verb_groups import ETRE, FUTURE, HOPE, PAST, PRESENT, WANT, WISH, verb_group
from regard.data.builtin.phrasebook.words import (
    NAMES,
    NATIONALITIES,
    NOUNS,
    PERSONAL,
    Adjective,
    Noun,
    among,
    pairs,
    verb,
)

__all__ = ["IDIOMS", "MOODS", "adjective", "age", "compared", "comparison", "feeling", "idiom", "nationality", "need",
           "occupation", "student", "whereabouts"]  # fmt: skip

MOODS = among(PERSONAL, "content heureux triste fatigué malade fâché seul occupé inquiet")
INTENSIFIERS = pairs(lexicon.INTENSIFIERS)


def _agreeing(adjective: Adjective, subject: Subject) -> Piece:
    agreement = subject.agreement
    form = adjective.form(is_feminine=agreement.is_feminine, is_plural=agreement.is_plural)
    met = ((subject.noun.lemma, adjective.lemma),) if subject.noun and subject.noun.of != "name" else ()
    return Piece((form,), ((adjective.english, (0,)),), (), met)


def adjective(dice: Dice, chosen: Adjective, subject: Subject) -> Piece:
    """The adjective in agreement with its subject, maybe very much so."""
    piece = _agreeing(chosen, subject)
    if chosen.comparative and dice.roll(4) == 0:
        return row(fixed(*dice.pick(INTENSIFIERS)), piece)
    return piece


def _trait(dice: Dice, here: Clause, rest: Piece) -> Piece:
    """être with a permanent trait: no "she was French yesterday"."""
    tense = dice.pick(TENSES)
    negation = here.negation(dice, PRESENT if tense == "present" else FUTURE)
    negation = "pas" if negation == "jamais" else negation
    return here.sentence(be("être", tense, here.agreement, here.mood, negation=negation), rest)


def _state(dice: Dice, here: Clause, verb: str, rest: Piece) -> Piece:
    """être or avoir with a temporary state, in some tense, perhaps negated, perhaps with a time."""
    tense, side = dice.pick(TENSES), dice.roll(16)
    negation = here.negation(dice, PRESENT if tense == "present" else FUTURE)
    if side == 0 and tense != "future" and not negation and not here.word:
        often = dice.pick(FREQUENCIES if here.mood == "statement" else FREQUENCIES[:3])
        return here.sentence(be(verb, tense, here.agreement, here.mood, adverb=often), rest)
    group = be(verb, tense, here.agreement, here.mood, negation=negation)
    if side < 3 and negation in (None, "pas") and not here.word:
        return here.sentence(group, rest, dice.pick(TIMES["now" if tense == "present" else tense]))
    return here.sentence(group, rest)


def feeling(dice: Dice) -> Piece:
    """ "elle est très fatiguée", "pourquoi es-tu triste ?" """
    here, chosen = clause(dice, (WHY,)), dice.pick(PERSONAL)
    said = adjective(dice, chosen, here.subject)
    return _state(dice, here, "être", said) if chosen in MOODS else _trait(dice, here, said)


def nationality(dice: Dice) -> Piece:
    """ "Marie est française" """
    here = clause(dice, (WHY,))
    return _trait(dice, here, adjective(dice, dice.pick(NATIONALITIES), here.subject))


IDIOMS = [fixed(*line) for line in pairs(lexicon.IDIOMS)]
IDIOMS += [fixed(f"très {french}", f"very {english}") for french, english in pairs(lexicon.IDIOMS)[:6]]


def idiom(dice: Dice) -> Piece:
    """ "j'ai faim", "avais-tu raison ?" """
    return _state(dice, clause(dice, (WHY,)), "avoir", dice.pick(IDIOMS))


AGES = [Rule(f"{french} ans", f"{english}/{french} years/ans old/ans")()
        for french, english in (*pairs(lexicon.NUMBERS), *pairs(lexicon.AGE_NUMBERS))]  # fmt: skip
HOW_OLD = Rule("quel âge V S ?", "how/quel old/âge V^ S V ?/?", kind=OPEN)


def age(dice: Dice) -> Piece:
    """ "j'ai vingt ans", "quel âge a ta sœur ?" """
    tense, side = dice.pick(("present",) * 3 + ("past", "future")), dice.roll(12)
    if side == 0:
        return HOW_OLD(be("avoir", tense, dice.pick(ASKING).agreement, "inverted"), EMPTY)
    if side == 1:
        subject = nominal(dice, dice.pick(PEOPLE))
        return HOW_OLD(be("avoir", tense, subject.agreement, "asked"), subject.piece)
    here = clause(dice, (WHY,))._replace(word=None)  # why one is so old is not asked
    group = be("avoir", tense, here.agreement, here.mood, negation=here.negation(dice, FUTURE))
    return here.sentence(group, dice.pick(AGES))


BECOME = verb("devenir", "become, became", has_etre=True)
AMBITIONS = [WISH, FUTURE, WANT, WANT, HOPE]
TRADES = [noun for noun in NOUNS["profession"] if not noun.is_feminine]
WOMEN = {noun.lemma: noun for noun in NOUNS["profession"] if noun.is_feminine}


def _trade(noun: Noun, subject: Subject) -> Piece:
    """A profession has no article in French; a word without a feminine is also used for women: "elle est médecin"."""
    noun = WOMEN.get(noun.lemma, noun) if subject.agreement.is_feminine else noun
    return phrase(noun, BARE_MANY if subject.agreement.is_plural else UNSAID)


def occupation(dice: Dice) -> Piece:
    """ "je suis étudiant", "elle est devenue médecin", "veux-tu être pilote ?" """
    here, side = clause(dice, (WHY,), relation), dice.roll(8)
    trade = _trade(dice.pick(TRADES), here.subject)
    if side < 4:
        return _trait(dice, here, trade)
    verb, tenses = (BECOME, [PAST, PAST, *AMBITIONS]) if side < 6 else (ETRE, AMBITIONS)
    tense = dice.pick(tenses)
    group = verb_group(verb, tense, here.agreement, here.mood, negation=here.negation(dice, tense))
    return here.sentence(group, trade)


def student(subject: Subject) -> Piece:
    """ "je suis étudiant": the sentence that the library shows, kept for the test set."""
    return STATEMENT(subject.piece, be("être", "present", subject.agreement), _trade(TRADES[0], subject))


def whereabouts(dice: Dice) -> Piece:
    """ "Marie est à la gare" """
    return _state(dice, clause(dice, (WHY,)), "être", location(dice))


NEED = verb("avoir", "need")
NEEDS = Rule("S V besoin X", "S V^ V/besoin X")
DO_NEED = Rule("V besoin X ?", "V^ V/besoin X ?/?", kind=YES_NO)
NEEDED = [noun for of in ("object", "garment", "accessory", "device", "tableware", "container") for noun in NOUNS[of]]
UNNEEDED = ("de", "des", "quelques", "plusieurs")  # "besoin de beaucoup de", "besoin de des"


def need(dice: Dice) -> Piece:
    """ "j'ai besoin d'un manteau" """
    noun, is_asked = dice.pick(NEEDED), dice.roll(4) == 0
    subject = dice.pick(ASKING) if is_asked else anyone(dice)
    options = determiners(noun, "plain", subject.agreement.owner)
    determiner = dice.pick([option for option in options if option.masculine[-1] not in UNNEEDED])
    thing = after("de", "", decorated(dice, noun, determiner))
    thing = thing._replace(combinations=(("besoin", noun.lemma), *thing.combinations))
    if is_asked:
        return DO_NEED(verb_group(NEED, PRESENT, subject.agreement, "inverted"), thing)
    return NEEDS(subject.piece, verb_group(NEED, PRESENT, subject.agreement), thing)


THAN, LESS = Rule("C que P", "C than/que P"), Rule("moins C que P", "less/moins C than/que P")
AS = Rule("aussi C que P", "as_ADV/aussi C as/que P")
COMPARED = [a for a in PERSONAL if a.comparative]
STRONG = dict(pairs(lexicon.STRONG_PRONOUNS))
# Whom each subject can be compared with: another person than itself.
OTHERS = {
    owner: [fixed(pronoun, STRONG[pronoun]) for pronoun in pronouns.split()]
    for owner, pronouns in pairs("""
        je | toi lui elle vous eux
        tu | moi lui elle eux
        il | moi toi elle nous eux
        elle | moi toi lui vous eux
        nous | toi lui elle vous eux
        vous | moi lui elle nous eux
        ils | moi toi lui elle nous vous
    """)
}


def compared(dice: Dice, chosen: Adjective, subject: Subject, other: Piece) -> Piece:
    """ "plus grand que toi", "moins intéressant que ce livre" """
    piece, side = _agreeing(chosen, subject), dice.roll(4)
    if side > 1:
        return (LESS if side == 2 else AS)(piece, other)
    assert chosen.comparative
    english: English = ((chosen.comparative[0], (0, 1)),)
    if chosen.comparative[1:]:
        english = (("more", (0,)), (chosen.english, (1,)))
    return THAN(piece._replace(french=("plus", *piece.french), english=english), other)


def comparison(dice: Dice) -> Piece:
    """ "Paul est plus grand que moi" """
    subject, chosen = anyone(dice), dice.pick(COMPARED)
    is_name = dice.roll(3) == 0 and not subject.noun
    other = phrase(dice.pick(NAMES), BARE) if is_name else dice.pick(OTHERS[subject.agreement.owner])
    group = be("être", "present", subject.agreement, negation="pas" if dice.roll(5) == 0 else None)
    return STATEMENT(subject.piece, group, compared(dice, chosen, subject, other))
