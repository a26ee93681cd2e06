"""Where and when: the phrases that can end a sentence."""

from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.noun_phrases import NUMBERS, after, decorated, determiners, phrase, relative
from regard.data.builtin.phrasebook.pieces import Dice, Piece, fixed
from regard.data.builtin.phrasebook.words import NOUNS, Noun, pairs

__all__ = ["SEASONS", "TIMES", "TRANSPORT", "destination", "hours", "location", "spot"]

TOWNS = NOUNS["building"] + NOUNS["venue"]
ROOMS = NOUNS["inside"] + NOUNS["area"]
BESIDE = (("devant", "in front of"), ("derrière", "behind"), ("près de", "near"), ("à côté de", "next to"))
ON = (("sur", "on"), ("sous", "under"), *BESIDE)
TRANSPORT = [fixed(*line) for line in pairs(lexicon.TRANSPORT)]
SEASONS = [fixed(*line) for line in pairs(lexicon.SEASONS)]


@cache
def _cities(preposition: str) -> list[Piece]:
    return [fixed(f"à {french}", f"{preposition} {english}") for french, english in pairs(lexicon.CITIES)]


@cache
def _countries(preposition: str) -> list[Piece]:
    return [fixed(french, f"{preposition} {english}") for french, english in pairs(lexicon.COUNTRIES)]


def _place(dice: Dice, noun: Noun) -> Piece:
    determiner = dice.pick(determiners(noun, "place", None))
    return decorated(dice, noun, determiner) if dice.roll(4) == 0 else phrase(noun, determiner)


def destination(dice: Dice) -> Piece:
    """Where one goes: à is "to"."""
    side = dice.roll(10)
    if side < 5:
        return after("à", "to", _place(dice, dice.pick(TOWNS)))
    if side < 7:
        return dice.pick(_cities("to"))
    if side < 9:
        return dice.pick(_countries("to"))
    return after("chez", "to", relative(dice))


HOME = fixed("à la maison", "at/à/la home/maison")


def location(dice: Dice) -> Piece:
    """Where one is: à is "at" a place and "in" a city."""
    side = dice.roll(16)
    if side < 5:
        return after("à", "at", _place(dice, dice.pick(TOWNS)))
    if side < 9:
        return after("dans", "in", _place(dice, dice.pick(ROOMS)))
    if side < 11:
        return dice.pick(_cities("in"))
    if side < 13:
        return dice.pick(_countries("in"))
    if side < 14:
        return after(*dice.pick(BESIDE), _place(dice, dice.pick(NOUNS["building"])))
    return after("chez", "at", relative(dice)) if side < 15 else HOME


def spot(dice: Dice) -> Piece:
    """Where a thing or an animal is."""
    side = dice.roll(8)
    if side < 4:
        return after(*dice.pick(ON), _place(dice, dice.pick(NOUNS["furniture"])))
    if side < 6:
        return after("dans", "in", _place(dice, dice.pick(ROOMS)))
    if side < 7:
        return after("dans", "in", _place(dice, dice.pick(NOUNS["container"])))
    return after(*dice.pick(BESIDE), _place(dice, dice.pick(NOUNS["landscape"])))


CLOCK = {"une": "one", **{source: NUMBERS[source] for source in list(NUMBERS)[:11]}}


@cache
def hours(preposition: str, target: str) -> list[Piece]:
    """The hours of the clock: "à huit heures", "at eight o'clock"."""
    times = []
    for source, number in CLOCK.items():
        heures = "heure" if source == "une" else "heures"
        times.append(fixed(f"{preposition} {source} {heures}", f"{target} {number} o'clock"))
    return times


def _times() -> dict[str, list[Piece]]:
    """By tense. Two in five are days or hours, so that each of these is seen often enough."""
    times = {tense: [fixed(*line) for line in pairs(table)] for tense, table in lexicon.TIMES.items()}
    for day, english in pairs(lexicon.DAYS):
        times["habit"].append(fixed(f"le {day}", f"on/le {english}s/{day}"))
        times["past"].append(fixed(f"{day} dernier", f"last/dernier {english}/{day}"))
        times["future"].append(fixed(f"{day} prochain", f"next/prochain {english}/{day}"))
    clock = hours("à", "at")
    return {
        "habit": times["habit"] + SEASONS + clock,
        "past": 2 * times["past"] + clock,
        "future": 2 * times["future"] + clock,
        "now": times["now"],
    }


TIMES = _times()
