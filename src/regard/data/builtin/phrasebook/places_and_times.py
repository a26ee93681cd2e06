"""Where and when: the phrases that can end a sentence."""

from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.determiners import NUMBERS, determiners
from regard.data.builtin.phrasebook.noun_phrases import after, decorated, phrase, relative
from regard.data.builtin.phrasebook.pieces import Dice, Piece, fixed
from regard.data.builtin.phrasebook.words import NOUNS, Noun, among, pairs

__all__ = ["HOURS", "HOUSE_PETS", "TIMES", "TRANSPORT", "abroad", "city_or_country", "destination", "location",
           "outdoors", "residence", "spot", "water"]  # fmt: skip

TOWN = NOUNS["building"] + NOUNS["venue"]
ROOMS = NOUNS["inside"] + NOUNS["area"]
TABLES = [noun for noun in NOUNS["furniture"] if noun.lemma != "miroir"]
BOXES = [noun for noun in NOUNS["container"] if noun.lemma != "bouteille"]
HOMES = among(ROOMS, "maison appartement rue village ville")
WILDERNESS = among(ROOMS, "forêt parc champ")
POOLS = among(TOWN, "piscine plage")
LAKES = among(NOUNS["landscape"], "lac rivière")
TREES = among(NOUNS["landscape"], "arbre")
HOUSE_PETS = among(NOUNS["pet"], "chat chien lapin")
BESIDE = (("devant", "in front of"), ("derrière", "behind"), ("près de", "near"), ("à côté de", "next_ADV to"))
ON = (("sur", "on"), ("sous", "under"), *BESIDE)
HOME = fixed("à la maison", "at/à/la home_NOUN/maison")
TRANSPORT = [fixed(*line) for line in pairs(lexicon.TRANSPORT)]


@cache
def _cities(preposition: str) -> list[Piece]:
    return [fixed(f"à {french}", f"{preposition} {english}") for french, english in pairs(lexicon.CITIES)]


@cache
def _countries(preposition: str) -> list[Piece]:
    return [fixed(french, f"{preposition} {english}") for french, english in pairs(lexicon.COUNTRIES)]


def _place(dice: Dice, nouns: list[Noun]) -> Piece:
    noun = dice.pick(nouns)
    determiner = dice.pick(determiners(noun, "place", None))
    return decorated(dice, noun, determiner) if dice.roll(4) == 0 else phrase(noun, determiner)


def city_or_country(dice: Dice, preposition: str = "in") -> Piece:
    return dice.pick(_cities(preposition) if dice.roll(2) else _countries(preposition))


def destination(dice: Dice, preposition: str) -> Piece:
    """Where one goes "to" or arrives "at"; but one arrives "in" a city."""
    side = dice.roll(10)
    if side < 5:
        return after("à", preposition, _place(dice, TOWN))
    if side < 9:
        return city_or_country(dice, "in" if preposition == "at" else preposition)
    return after("chez", preposition, relative(dice))


def location(dice: Dice) -> Piece:
    """Where one is: à is "at" a place and "in" a city."""
    side = dice.roll(16)
    if side < 5:
        return after("à", "at", _place(dice, TOWN))
    if side < 9:
        return after("dans", "in", _place(dice, ROOMS))
    if side < 13:
        return city_or_country(dice)
    if side < 14:
        return after(*dice.pick(BESIDE), _place(dice, NOUNS["building"]))
    return after("chez", "at", relative(dice)) if side < 15 else HOME


def residence(dice: Dice) -> Piece:
    """Where one lives."""
    side = dice.roll(8)
    if side < 5:
        return city_or_country(dice)
    return after("dans", "in", _place(dice, HOMES)) if side < 7 else after("près de", "near", _place(dice, TOWN))


def spot(dice: Dice) -> Piece:
    """Where a thing is, or an animal of the house."""
    side = dice.roll(8)
    if side < 4:
        return after(*dice.pick(ON), _place(dice, TABLES))
    if side < 6:
        return after("dans", "in", _place(dice, ROOMS))
    return after("dans", "in", _place(dice, BOXES)) if side < 7 else after(*dice.pick(BESIDE), _place(dice, TREES))


def outdoors(dice: Dice) -> Piece:
    """Where a wild animal is, or where one walks."""
    if dice.roll(2):
        return after("dans", "in", _place(dice, WILDERNESS))
    return after(*dice.pick(BESIDE), _place(dice, NOUNS["landscape"]))


def water(dice: Dice) -> Piece:
    """Where one swims."""
    return after("à", "at", _place(dice, POOLS)) if dice.roll(2) else after("dans", "in", _place(dice, LAKES))


def abroad(dice: Dice) -> Piece:
    """Where one travels."""
    return dice.pick(_countries("in"))


HOURS = [fixed("une heure", "one o'clock")]
HOURS += [fixed(f"{french} heures", f"{english} o'clock") for french, english in NUMBERS[:11]]


def _times() -> dict[str, list[Piece]]:
    """By tense; the hours are many, so the other phrases of the past and the future count twice."""
    times = {tense: [fixed(*line) for line in pairs(table)] for tense, table in lexicon.TIMES.items()}
    for day, english in pairs(lexicon.DAYS):
        times["habit"].append(fixed(f"le {day}", f"on/le {english}s/{day}"))
        times["past"].append(fixed(f"{day} dernier", f"last/dernier {english}/{day}"))
        times["future"].append(fixed(f"{day} prochain", f"next/prochain {english}/{day}"))
    clock = [after("à", "at", hour) for hour in HOURS]
    return {
        "habit": times["habit"] + clock,
        "past": 2 * times["past"] + clock,
        "future": 2 * times["future"] + clock,
        "now": times["now"],
    }


TIMES = _times()
