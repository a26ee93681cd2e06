"""être, and avoir in "j'ai faim": "be" in English, in the three tenses that tell of a state."""

from functools import cache

from regard.data.builtin.phrasebook.french import inverted
from regard.data.builtin.phrasebook.pieces import DENIED, English, Piece
from regard.data.builtin.phrasebook.subjects import Agreement
from regard.data.builtin.phrasebook.verb_groups import AVOIR, BE, ETRE, NEGATIONS, Adverb

__all__ = ["TENSES", "be"]

TENSES = ("present",) * 5 + ("past",) * 2 + ("future",)
FORMS = {
    ("être", "present"): ETRE.present,
    ("être", "past"): ("étais", "étais", "était", "étions", "étiez", "étaient"),
    ("être", "future"): ("serai", "seras", "sera", "serons", "serez", "seront"),
    ("avoir", "present"): AVOIR.present,
    ("avoir", "past"): ("avais", "avais", "avait", "avions", "aviez", "avaient"),
    ("avoir", "future"): ("aurai", "auras", "aura", "aurons", "aurez", "auront"),
}
OPERATORS = {"present": BE, "past": ("was", "were", "was", "were", "were", "were"), "future": ("will",) * 6}


@cache
def be(
    verb: str,
    tense: str,
    agreement: Agreement,
    mood: str = "statement",
    *,
    negation: str | None = None,
    adverb: Adverb | None = None,
) -> Piece:
    """The verb group of a state, as `verb_group` is that of an action."""
    finite = FORMS[verb, tense][agreement.person]
    french = [inverted(finite, agreement.pronoun) if mood == "inverted" else finite]
    place = 0
    words: list[tuple[str, tuple[int, ...]]] = []
    if negation:
        french = ["ne", *french, negation]
        place = 1
        words += [(word, (0, 2)) for word in NEGATIONS[negation]]
    if adverb:
        words += [(word, (len(french),)) for word in adverb.english]
        french.append(adverb.french)
    if tense == "future":
        words.append(("be", (place,)))
    operator: English = ((OPERATORS[tense][agreement.person], (place,)),)
    if mood == "inverted":
        operator = (*operator, (agreement.english, (place,)))
    return Piece(tuple(french), tuple(words), operator, kind=DENIED if negation else None)
