"""Object pronouns: me, te, le, la, les and the others, and which of them a verb and its subject allow."""

from regard.data.builtin.phrasebook.french import starts_with_vowel
from regard.data.builtin.phrasebook.pieces import Dice
from regard.data.builtin.phrasebook.subjects import Agreement
from regard.data.builtin.phrasebook.verb_groups import PAST, Clitic, Tense
from regard.data.builtin.phrasebook.words import Verb

__all__ = ["ADDRESSED", "INDIRECT", "TO_THEM", "pronoun"]

HIM, HER = Clitic("le", "him"), Clitic("la", "her", is_feminine=True)
IT = [Clitic("le", "it"), Clitic("la", "it", is_feminine=True)]
THEM = [Clitic("les", "them", is_plural=True), Clitic("les", "them", is_feminine=True, is_plural=True)]
TO_THEM = Clitic("leur", "them", is_direct=False)
# me, te, nous and vous by person; each twice, for only a participle shows the gender.
DIRECT = {
    person: [Clitic(french, english, is_feminine, is_plural) for is_feminine in (False, True)]
    for person, french, english, is_plural in (
        (0, "me", "me", False), (1, "te", "you", False), (3, "nous", "us", True), (4, "vous", "you", True),
    )
}  # fmt: skip
INDIRECT = {person: Clitic(pair[0].french, pair[0].english, is_direct=False) for person, pair in DIRECT.items()}
# No "je me vois" and no "vous te voyez": the one is reflexive, the other speaks to two people at once.
ADDRESSED = {0: (1, 4), 1: (0, 3), 2: (0, 1, 3, 4), 3: (1, 4), 4: (0, 3), 5: (0, 1, 3, 4)}


def pronoun(dice: Dice, verb: Verb, tense: Tense, agreement: Agreement) -> Clitic:
    """A pronoun for the verb's object. Only the verb tells whether le is him or it.

    Before a vowel both le and la become l'; then only a participle tells him from her, so without one neither is used.
    """
    if verb.columns[1] == "thing":
        return dice.pick((*IT, THEM[0]))
    host = verb.lemma if tense.head else verb.present[agreement.person]
    third = [HIM, HER] * 2 if tense is PAST or not starts_with_vowel(host) else []
    return dice.pick([*third, *THEM, *(one for person in ADDRESSED[agreement.person] for one in DIRECT[person])])
