"""Clauses before their verb: who they are about, and whether they state, ask yes or no, or ask where or why."""

from collections.abc import Callable
from typing import NamedTuple

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.pieces import EMPTY, OPEN, YES_NO, Dice, Piece, Rule, fixed
from regard.data.builtin.phrasebook.places_and_times import TIMES
from regard.data.builtin.phrasebook.subjects import ASKING, Agreement, Subject, anyone
from regard.data.builtin.phrasebook.verb_groups import (
    CAN,
    CATENATIVES,
    FUTURE,
    JUST,
    MUST,
    PAST,
    PRESENT,
    WANT,
    WISH,
    Adverb,
    Tense,
)
from regard.data.builtin.phrasebook.words import pairs

__all__ = ["FREQUENCIES", "HOW", "PLAIN", "STATEMENT", "TENSES", "WHEN", "WHERE", "WHY", "Clause", "clause"]

STATEMENT = Rule("S V X", "S V^ V X")
TIMED = Rule("S V X T", "S V^ V X T")
ASKED = Rule("est-ce que S V X T ?", "V^/est-ce/que S V X T ?/?", kind=YES_NO)
INVERTED = Rule("V X T ?", "V^ V X T ?/?", kind=YES_NO)
OPEN_ASKED = Rule("W est-ce que S V X ?", "W V^/est-ce/que S V X ?/?", kind=OPEN)
OPEN_INVERTED = Rule("W V X ?", "W V^ V X ?/?", kind=OPEN)
WHERE, WHEN, WHY, HOW = (
    fixed(*pair) for pair in (("où", "where"), ("quand", "when"), ("pourquoi", "why"), ("comment", "how"))
)

# The present has the most forms, and so the largest share.
PLAIN = [PRESENT] * 11 + [PAST] * 6 + [FUTURE] * 3
TENSES = PLAIN * 3 + [JUST] * 3 + [CAN] * 3 + [MUST] * 3 + [WISH] * 3 + [WANT] * 2 + CATENATIVES
ASKABLE = [tense for tense in TENSES if tense is not JUST]
OPEN_TENSES = PLAIN + [CAN] * 2 + [MUST]
PLANNED = frozenset((FUTURE, CAN, MUST, WISH, WANT))
FREQUENCIES = [Adverb(french, (english,), is_last=False) for french, english in pairs(lexicon.FREQUENCIES)]


class Clause(NamedTuple):
    subject: Subject
    mood: str = "statement"
    word: Piece | None = None
    """The question word of an open question."""

    @property
    def agreement(self) -> Agreement:
        return self.subject.agreement

    def sentence(self, group: Piece, rest: Piece, time: Piece = EMPTY) -> Piece:
        """The clause with its verb, what follows the verb, and maybe when; an open question has no time."""
        if self.mood == "statement":
            return TIMED(self.subject.piece, group, rest, time)
        if self.mood == "inverted":
            return OPEN_INVERTED(self.word, group, rest) if self.word else INVERTED(group, rest, time)
        if self.word:
            return OPEN_ASKED(self.word, self.subject.piece, group, rest)
        return ASKED(self.subject.piece, group, rest, time)

    def tenses(self) -> list[Tense]:
        return TENSES if self.mood == "statement" else OPEN_TENSES if self.word else ASKABLE

    def negation(self, dice: Dice, tense: Tense) -> str | None:
        """Statements are denied now and then, questions never."""
        side = dice.roll(16)
        if side > 4 or self.mood != "statement" or tense is JUST:
            return None
        if side == 0 and tense in (PRESENT, PAST):
            return "jamais"
        return "plus" if side == 1 and tense is PRESENT else "pas"

    def context(self, negation: str | None) -> str:
        """Which determiners fit: "any" after not and in questions, nothing new where the question is why."""
        if self.mood != "statement":
            return "definite" if self.word else "asked"
        return "plain" if negation is None else "negated" if negation == "pas" else "definite"

    def adjunct(
        self, dice: Dice, tense: Tense, negation: str | None, *, sides: int = 16
    ) -> tuple[Adverb | None, Piece]:
        """An adverb of frequency or of time, or mostly neither."""
        side = dice.roll(sides)
        if side > 4 or self.word or negation in ("jamais", "plus"):
            return None, EMPTY
        if side > 1:
            return None, dice.pick(_times(tense))
        if negation or tense not in (PRESENT, PAST):
            return None, EMPTY
        # "Does she rarely sleep?" is not asked.
        return dice.pick(FREQUENCIES if self.mood == "statement" else FREQUENCIES[:3]), EMPTY


def _times(tense: Tense) -> list[Piece]:
    if tense is PRESENT:
        return TIMES["habit"]
    return TIMES["past"] if tense is PAST else TIMES["future"] if tense in PLANNED else [EMPTY]


def clause(
    dice: Dice,
    words: tuple[Piece, ...] = (WHERE, WHEN, WHY, HOW),
    who: Callable[[Dice], Subject] = anyone,
) -> Clause:
    """Mostly a statement; one question in four begins with one of the words."""
    side = dice.roll(12)
    if side < 8:
        return Clause(who(dice))
    word = dice.pick(words) if side == 8 else None
    return Clause(dice.pick(ASKING), "inverted", word) if dice.roll(2) else Clause(who(dice), "asked", word)
