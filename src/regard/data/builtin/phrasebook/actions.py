"""Sentences in which someone does something by themselves: sleeps, goes, gets up, plays; and commands."""

from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.clauses import PLAIN, WHEN, WHERE, WHY, Clause, clause
from regard.data.builtin.phrasebook.determiners import BARE, KIND, KIND_MANY, THE
from regard.data.builtin.phrasebook.noun_phrases import after, phrase
from regard.data.builtin.phrasebook.objects import TRANSITIVES, thing
from regard.data.builtin.phrasebook.pieces import COMMAND, EMPTY, Dice, Piece, fixed, row
from regard.data.builtin.phrasebook.places_and_times import (
    HOUSE_PETS,
    TRANSPORT,
    abroad,
    destination,
    location,
    outdoors,
    residence,
    spot,
    water,
)
from regard.data.builtin.phrasebook.subjects import couple, nominal
from regard.data.builtin.phrasebook.verb_groups import FUTURE, PAST, PRESENT, SKILLS, Adverb, Tense, verb_group
from regard.data.builtin.phrasebook.words import NOUNS, Noun, Verb, among, nouns, pairs, read_verbs, rows, verb

__all__ = ["INTRANSITIVES", "PLEASE", "ability", "animal", "command", "intransitive", "living", "motion", "pair",
           "reflexive", "skill"]  # fmt: skip

INTRANSITIVES, MOTIONS = read_verbs(lexicon.INTRANSITIVES), read_verbs(lexicon.MOTIONS, has_etre=True)
REFLEXIVES = read_verbs(lexicon.REFLEXIVES, is_reflexive=True)
ANIMALS = NOUNS["pet"] + NOUNS["wild"]
ANIMAL_VERBS = among(INTRANSITIVES, "dormir courir manger boire jouer")
LEARNED = among(INTRANSITIVES + TRANSITIVES, "nager danser chanter cuisiner conduire écrire dessiner")
WILLED = among(MOTIONS, "aller venir retourner rester partir sortir rentrer")
PLACED = among(MOTIONS, "aller retourner arriver rester tomber")  # "d'où viens-tu ?" is another question
TRAVELLING = among(MOTIONS, "partir rentrer arriver")
UNWILLED = among(TRANSITIVES, "perdre casser recevoir oublier entendre voir rencontrer trouver")
ORDERS = [verb for verb in TRANSITIVES if verb not in UNWILLED]
SHORT_ORDERS = REFLEXIVES + among(INTRANSITIVES + MOTIONS, "dormir travailler courir danser venir rester partir")
LIVE = verb("habiter", "live")
TOGETHER = fixed("ensemble", "together")
PLEASE = {1: fixed("s'il te plaît", "please"), 4: fixed("s'il vous plaît", "please")}
PLACES = {"": location, "outdoors": outdoors, "water": water, "abroad": abroad}
# Each manner as part of the verb, as a phrase after it, and which of the two it is beside a participle.
MANNERS = [
    (Adverb(source, tuple(target.split()), is_last=True), fixed(source, target), place)
    for source, target, place in rows(lexicon.MANNERS)
]
UNPACED = [manner for manner in MANNERS if manner[2] != "pace"]
PACED = among(INTRANSITIVES, "travailler courir nager danser marcher manger boire lire")


def _act(dice: Dice, here: Clause, verb: Verb, tenses: list[Tense], rest: Piece) -> Piece:
    """The verb and what goes with it, in some tense, maybe denied, maybe often or at some time.

    A bare verb mostly has a time, or there would be too few different sentences for its forms to be seen in.
    """
    tense = dice.pick(tenses)
    negation = here.negation(dice, tense)
    adverb, time = here.adjunct(dice, tense, negation, sides=16 if rest.french else 7)
    group = verb_group(verb, tense, here.agreement, here.mood, negation=negation, adverb=adverb)
    return here.sentence(group, rest, time)


def intransitive(dice: Dice) -> Piece:
    """ "elle a bien dormi", "les enfants jouent dans le jardin" """
    here, verb, side = clause(dice), dice.pick(INTRANSITIVES), dice.roll(8)
    if side < 3 and not here.word:
        tense = dice.pick((PRESENT, PRESENT, PAST))
        adverb, manner, position = dice.pick(MANNERS if verb in PACED else UNPACED)
        negation, is_part = here.negation(dice, tense), position == "inner" or tense is PRESENT
        group = verb_group(
            verb, tense, here.agreement, here.mood, negation=negation, adverb=adverb if is_part else None
        )
        return here.sentence(group, EMPTY if is_part else manner)
    place = PLACES[verb.columns[0] if verb.columns else ""]
    return _act(dice, here, verb, here.tenses(), place(dice) if side < 6 and here.word is not WHERE else EMPTY)


def pair(dice: Dice) -> Piece:
    """ "Paul et Marie travaillent ensemble" """
    return _act(dice, Clause(couple(dice)), dice.pick(INTRANSITIVES), PLAIN, dice.pick((EMPTY, TOGETHER)))


def animal(dice: Dice) -> Piece:
    """ "le chat dort sous la table" """
    noun = dice.pick(ANIMALS)
    where = EMPTY if dice.roll(4) == 0 else spot(dice) if noun in HOUSE_PETS else outdoors(dice)
    return _act(dice, Clause(nominal(dice, noun)), dice.pick(ANIMAL_VERBS), [PRESENT, PAST, FUTURE], where)


def motion(dice: Dice) -> Piece:
    """ "nous allons à la gare", "elle est partie hier" """
    verb, side = dice.pick(MOTIONS), dice.roll(8)
    here = clause(dice, (WHERE, WHEN, WHY) if verb in PLACED else (WHEN, WHY))
    preposition, rest = verb.columns[0], EMPTY
    if preposition != "-" and here.word is not WHERE:
        rest = dice.pick(TRANSPORT) if preposition == "to" and side == 0 else destination(dice, preposition)
    elif verb in TRAVELLING and side < 2:
        rest = dice.pick(TRANSPORT)
    return _act(dice, here, verb, here.tenses() if verb in WILLED else PLAIN, rest)


def living(dice: Dice) -> Piece:
    """ "j'habite à Paris", "où habites-tu ?" """
    here, tense = clause(dice, (WHERE, WHERE, WHY)), dice.pick(PLAIN)
    negation = here.negation(dice, tense)
    if tense is PRESENT and negation == "jamais":
        negation = "pas"
    group = verb_group(LIVE, tense, here.agreement, here.mood, negation=negation)
    return here.sentence(group, EMPTY if here.word is WHERE else residence(dice))


def reflexive(dice: Dice) -> Piece:
    """ "je me lève à sept heures" """
    here = clause(dice, (WHEN, WHY))
    return _act(dice, here, dice.pick(REFLEXIVES), here.tenses(), EMPTY)


def _arts() -> list[list[tuple[Verb, Piece]]]:
    """Verbs of abilities, in equal shares."""
    play, study = verb("jouer", "play"), verb("étudier", "study")
    speak, learn = verb("parler", "speak, spoke"), verb("apprendre", "learn")
    languages = nouns("\n".join(f"{french} m | {english}" for french, english in pairs(lexicon.LANGUAGES)), "language")

    def kind(noun: Noun) -> Piece:
        return phrase(noun, KIND if noun.singular else KIND_MANY)

    return [
        [(play, after("de", "", phrase(noun, THE))) for noun in nouns(lexicon.INSTRUMENTS, "instrument")],
        [(play, after("à", "", kind(noun))) for noun in nouns(lexicon.GAMES, "game")],
        [(speak, phrase(noun, BARE)) for noun in languages],
        [(learn, kind(noun)) for noun in languages],
        [(study, kind(noun)) for noun in nouns(lexicon.STUDIES, "study")],
    ]


ARTS = _arts()


def skill(dice: Dice) -> Piece:
    """ "je joue du piano", "elle sait parler anglais", "nous étudions la chimie" """
    here = clause(dice, (WHEN, WHY))
    verb, rest = dice.pick(dice.pick(ARTS))
    is_learnt = verb.lemma in ("jouer", "parler") and dice.roll(4) == 0
    return _act(dice, here, verb, SKILLS if is_learnt else here.tenses(), rest)


def ability(dice: Dice) -> Piece:
    """ "elle sait nager" """
    return _act(dice, clause(dice, (WHY,)), dice.pick(LEARNED), SKILLS, EMPTY)


def command(dice: Dice) -> Piece:
    """ "ferme la porte s'il te plaît", "ne mangez pas cette pomme" """
    person, negation = dice.pick((1, 1, 3, 4, 4)), "pas" if dice.roll(3) == 0 else None
    please = PLEASE[person] if person != 3 and dice.roll(3) == 0 else EMPTY
    if dice.roll(4) == 0:
        return row(_imperative(dice.pick(SHORT_ORDERS), person, negation), please)._replace(kind=COMMAND)
    verb, owner = dice.pick(ORDERS), {1: "tu", 3: "nous", 4: "vous"}[person]
    found = thing(dice, verb, "negated" if negation else "plain", owner)
    return row(_imperative(verb, person, negation), found, please)._replace(kind=COMMAND)


@cache
def _imperative(verb: Verb, person: int, negation: str | None) -> Piece:
    """The imperative of tu (1), nous (3) or vous (4): "mange", "let us eat", "ne mangez pas", "lève-toi"."""
    form = verb.present[person]
    form = form[:-1] if person == 1 and form.endswith(("es", "as")) else form
    pronoun = {1: "te", 3: "nous", 4: "vous"}[person] if verb.is_reflexive else None
    french: tuple[str, ...] = (f"{form}-{'toi' if person == 1 else pronoun}" if pronoun else form,)
    if negation:
        french = ("ne", pronoun, form, negation) if pronoun else ("ne", form, negation)
    own = tuple(range(1, len(french) - 1)) or (0,)
    start = [("let", own), ("us", own)] if person == 3 else [("do", own)] if negation else []
    no = [("not", (0, len(french) - 1))] if negation else []
    return Piece(french, (*start, *no, *((word, own) for word in verb.base)))
