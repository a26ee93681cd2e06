"""Cups, bottles and kilos, and asking for them politely."""

from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.actions import PLEASE
from regard.data.builtin.phrasebook.clauses import WHEN, WHY, clause
from regard.data.builtin.phrasebook.determiners import BARE, BARE_MANY, COUNTED, THIS, A
from regard.data.builtin.phrasebook.french import inverted
from regard.data.builtin.phrasebook.noun_phrases import after, phrase
from regard.data.builtin.phrasebook.objects import STATIVES, TRANSITIVES, combined
from regard.data.builtin.phrasebook.pieces import EMPTY, Dice, Piece, row
from regard.data.builtin.phrasebook.subjects import Agreement
from regard.data.builtin.phrasebook.verb_groups import WOULD, verb_group
from regard.data.builtin.phrasebook.words import NOUNS, Noun, among, nouns, rows

__all__ = ["serving", "wish"]

CONTENTS = {**NOUNS, **{noun.lemma: [noun] for noun in NOUNS["drink"]}}
PORTIONS = [
    (
        nouns(f"{source} | {target}", "portion")[0],
        [noun for name in contents.split() for noun in CONTENTS[name]],
        among(TRANSITIVES, verbs),
    )
    for source, target, contents, verbs in rows(lexicon.PORTIONS)
]
WANTED = among(STATIVES, "vouloir")[0]
WISHED = [noun for of in ("fruit", "dish", "object", "tableware") for noun in NOUNS[of]]


def _portion(dice: Dice, vessel: Noun, content: Noun) -> Piece:
    """ "deux tasses de café", "two cups of coffee" """
    inside = phrase(content, BARE if content.is_mass else BARE_MANY)
    return row(phrase(vessel, dice.pick((A, A, *COUNTED[:5]))), after("de", "of", inside))


def serving(dice: Dice) -> Piece:
    """ "il boit un verre d'eau" """
    here = clause(dice, (WHEN, WHY))
    vessel, contents, verbs = dice.pick(PORTIONS)
    verb, content = dice.pick(verbs), dice.pick(contents)
    group = verb_group(verb, dice.pick(here.tenses()), here.agreement, here.mood)
    return here.sentence(group, combined(verb, content, _portion(dice, vessel, content)))


def wish(dice: Dice) -> Piece:
    """ "je voudrais un kilo de sucre s'il vous plaît" """
    here = clause(dice, (WHEN, WHY))
    if dice.roll(2):
        vessel, contents, _ = dice.pick(PORTIONS)
        noun = dice.pick(contents)
        wished = _portion(dice, vessel, noun)
    else:
        noun = dice.pick(WISHED)
        wished = phrase(noun, dice.pick((A, THIS, *COUNTED[:3])))
    is_own = here.mood == "statement" and here.agreement.person in (0, 3)
    please = PLEASE[4] if is_own and dice.roll(2) else EMPTY
    sentence = here.sentence(_would_like(here.agreement, here.mood), combined(WANTED, noun, wished))
    return row(sentence, please)


@cache
def _would_like(agreement: Agreement, mood: str) -> Piece:
    finite = WOULD[agreement.person]
    if mood == "inverted":
        french = inverted(finite, agreement.pronoun)
        return Piece((french,), (("like", (0,)),), (("would", (0,)), (agreement.english, (0,))))
    return Piece((finite,), (("like", (0,)),), (("would", (0,)),))
