"""Pain, weather, the clock and greetings: what a phrase-book has a page for each."""

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.being import be
from regard.data.builtin.phrasebook.clauses import STATEMENT
from regard.data.builtin.phrasebook.determiners import BARE, KIND, KIND_MANY, OWNERS
from regard.data.builtin.phrasebook.noun_phrases import HOUSEHOLD, after, phrase, possessor
from regard.data.builtin.phrasebook.pieces import DENIED, EMPTY, GREETING, YES_NO, Dice, Piece, Rule, fixed, row
from regard.data.builtin.phrasebook.places_and_times import HOURS, TIMES, city_or_country
from regard.data.builtin.phrasebook.subjects import PRONOUNS, THIRD, Agreement, nominal
from regard.data.builtin.phrasebook.verb_groups import PAST, PRESENT, verb_group
from regard.data.builtin.phrasebook.words import NAMES, NOUNS, among, nouns, pairs, rows, verb

__all__ = ["clock", "greeting", "pain", "timetable", "weather"]

BODY = nouns(lexicon.BODY_PARTS, "body")
PATIENTS = [subject for subject in PRONOUNS if subject.agreement.person in (0, 1, 2, 4)]
ASKED = [subject for subject in PATIENTS if subject.agreement.person != 0]
HURTS, HURTS_NOT = Rule("S V mal P", "S P V/mal"), Rule("S V mal P", "S P V hurt/mal")
DOES_HURT = Rule("V mal P ?", "V P hurt/mal ?/?", kind=YES_NO)


def pain(dice: Dice) -> Piece:
    """ "j'ai mal au dos" is "my back hurts": the subject becomes the owner, and what hurts the subject."""
    part, side, tense = dice.pick(BODY), dice.roll(4), dice.pick(("present", "present", "past"))
    where = after("à", "", phrase(part, KIND if part.singular else KIND_MANY))
    does = "did" if tense == "past" else "does" if part.singular else "do"
    if side == 0:
        agreement = dice.pick(ASKED).agreement
        group = be("avoir", tense, agreement, "inverted")
        return DOES_HURT(group._replace(english=((does, (0,)), (_owner(agreement), (0,)))), where)
    whose, agreement = _patient(dice)
    if side == 1:
        group = be("avoir", tense, agreement, negation="pas")
        return HURTS_NOT(whose, group._replace(english=((does, (1,)), ("not", (0, 2)))), where)
    hurts = "hurts" if does == "does" else "hurt"
    return HURTS(whose, be("avoir", tense, agreement)._replace(english=((hurts, (0,)),)), where)


def _patient(dice: Dice) -> tuple[Piece, Agreement]:
    """Who is in pain: the subject in French, the owner in English."""
    if dice.roll(2):
        noun = dice.pick(HOUSEHOLD)
        return possessor(noun, dice.pick(("je", "tu", "nous", "vous", "ils"))), THIRD[noun.is_feminine, False]
    subject = dice.pick(PATIENTS)
    return subject.piece._replace(english=((_owner(subject.agreement), (0,)),)), subject.agreement


def _owner(agreement: Agreement) -> str:
    return OWNERS[agreement.owner][0].english[0]


WEATHER = [(fixed(french, english)._replace(kind=DENIED if denied else None), times)
           for french, english, times, *denied in rows(lexicon.WEATHER)]


def weather(dice: Dice) -> Piece:
    """ "il a plu à Paris hier" """
    sky, times = dice.pick(WEATHER)
    where = city_or_country(dice) if dice.roll(4) else EMPTY
    return row(sky, where, dice.pick(TIMES[times]) if dice.roll(4) else EMPTY)


ON_THE_HOUR = Rule("il V X", "it/il V^ X")
QUARTERS = (
    Rule("il V X et demie", "it/il V^ half/demie past/et X"),
    Rule("il V X et quart", "it/il V^ a/quart quarter/quart past/et X"),
    Rule("il V X moins le quart", "it/il V^ a/le quarter/quart to/moins X"),
)


def clock(dice: Dice) -> Piece:
    """ "il est huit heures", "il était trois heures et demie" """
    hour, group = dice.pick(HOURS), be("être", dice.pick(("present", "past")), THIRD[False, False])
    if dice.roll(4) == 0:
        return ON_THE_HOUR(group, hour)
    return dice.pick(QUARTERS)(group, hour._replace(english=((hour.english[0][0], (0, 1)),)))  # without "o'clock"


TRAINS = among(NOUNS["vehicle"], "train avion bateau")
DEPARTURES = [verb("partir", "leave, left", has_etre=True), verb("arriver", "arrive", has_etre=True)]


def timetable(dice: Dice) -> Piece:
    """ "le train part à huit heures" """
    subject, tense = nominal(dice, dice.pick(TRAINS)), dice.pick((PRESENT, PAST))
    time = dice.pick(TIMES["habit" if tense is PRESENT else "past"])
    return STATEMENT(subject.piece, verb_group(dice.pick(DEPARTURES), tense, subject.agreement), time)


GREETINGS = [fixed(*line) for line in pairs(lexicon.GREETINGS)]


def greeting(dice: Dice) -> Piece:
    """ "bonjour Marie" """
    return row(dice.pick(GREETINGS), phrase(dice.pick(NAMES), BARE))._replace(kind=GREETING)
