"""Noun phrases: a determiner, a noun and its adjectives in agreement, and the prepositions before them."""

from functools import cache

from regard.data.builtin.phrasebook.determiners import (
    BARE,
    KIND,
    KIND_MANY,
    OWNERS,
    Determiner,
    determiners,
)
from regard.data.builtin.phrasebook.english import article, possessive
from regard.data.builtin.phrasebook.french import contract, starts_with_vowel
from regard.data.builtin.phrasebook.pieces import MARK, Dice, English, Piece, Rule
from regard.data.builtin.phrasebook.words import (
    ADJECTIVES,
    COLOURS,
    NAMES,
    NATIONALITIES,
    NOUNS,
    PERSONAL,
    Adjective,
    Noun,
)

__all__ = ["HOUSEHOLD", "PEOPLE", "after", "attributes", "decorated", "noun_phrase", "owned", "phrase", "possessor",
           "relative"]  # fmt: skip

BEFORE = [adjective for adjective in ADJECTIVES if adjective.is_before]
AFTER = [*(a for a in ADJECTIVES if not a.is_before), *COLOURS, *PERSONAL, *NATIONALITIES]
SECOND = [*COLOURS, *NATIONALITIES]


@cache
def attributes(noun: Noun) -> tuple[list[Adjective], list[Adjective], list[Adjective]]:
    """The adjectives that go before it, those that go after, and those that go after beside one before.

    With two, the second is a colour or a nationality: "a small red car", but no "good boring book".
    """
    before, after, second = ([a for a in table if noun.of in a.of] for table in (BEFORE, AFTER, SECOND))
    return before, after, second


def noun_phrase(dice: Dice, noun: Noun, context: str, owner: str | None) -> Piece:
    return decorated(dice, noun, dice.pick(determiners(noun, context, owner)))


def decorated(dice: Dice, noun: Noun, determiner: Determiner) -> Piece:
    """The noun with an adjective on either side, on both, or mostly on none."""
    before, after, second = attributes(noun)
    side = dice.roll(16)
    if side == 0 and before and second:
        return phrase(noun, determiner, dice.pick(before), dice.pick(second))
    if side < 4 and before:
        return phrase(noun, determiner, dice.pick(before))
    if side < 8 and after:
        return phrase(noun, determiner, None, dice.pick(after))
    return phrase(noun, determiner)


@cache
def phrase(
    noun: Noun, determiner: Determiner, before: Adjective | None = None, after: Adjective | None = None
) -> Piece:
    """Determiner, adjective, noun, adjective; in English both adjectives go before the noun.

    An English article without a French one is linked to the noun, and so is a French one without an English one.
    """
    opening, adjective, head, tail = _french(noun, determiner, before, after)
    start = len(opening) + len(adjective)
    heads = tuple(range(start, start + len(head)))
    said = noun.english_plural if determiner.is_plural else noun.english_singular
    english: English = tuple((word, heads) for word in said)
    if after:
        english = ((after.english, (start + len(head),)), *english)
    if before:
        english = ((before.english, (len(opening),)), *english)
    words = (article(english[0][0]),) if determiner.english == ("a",) else determiner.english
    links = tuple(range(len(opening)))
    if words:
        english = (*((word, links or heads) for word in words), *english)
    elif opening:
        english = (*english[:-1], (said[-1], (*links, *heads)))
    chosen = tuple((noun.lemma, a.lemma) for a in (before, after) if a)
    return Piece((*opening, *adjective, *head, *tail), english, (), chosen)


def _french(
    noun: Noun, determiner: Determiner, before: Adjective | None, after: Adjective | None
) -> tuple[tuple[str, ...], ...]:
    """The words of the determiner, of the adjective, of the noun and of the other adjective."""
    is_feminine, is_plural = noun.is_feminine, determiner.is_plural
    head = noun.plural if is_plural else noun.singular
    assert head, noun.lemma
    adjective: tuple[str, ...] = ()
    if before:
        is_bent = starts_with_vowel(head[0]) and not is_feminine and not is_plural
        adjective = (before.before_vowel if is_bent else before.form(is_feminine=is_feminine, is_plural=is_plural),)
    tail = (after.form(is_feminine=is_feminine, is_plural=is_plural),) if after else ()
    opening = determiner.before((*adjective, *head)[0], is_feminine=is_feminine)
    if opening == ("des",) and before:
        opening = ("de",)  # "de petites pommes"
    return opening, adjective, head, tail


def after(preposition: str, target: str, followed: Piece) -> Piece:
    """A preposition and its noun phrase: "à | at" with "le marché" is "au marché | at the market".

    Where English has no preposition, the French one is linked to the first word that it has.
    """
    *start, last = preposition.split()
    french = contract(last, followed.french) if last in ("à", "de") else (last, *followed.french)
    shift = len(start) + len(french) - len(followed.french)  # à + le became one word, au: then there is no shift
    links = tuple(range(len(start) + 1))
    english = tuple([(word, tuple([source + shift for source in sources])) for word, sources in followed.english])
    if target:
        english = (*((word, links) for word in target.split()), *english)
    else:
        english = ((english[0][0], (*links, *english[0][1])), *english[1:])
    return Piece((*start, *french), english, (), followed.combinations)


# Whom a sentence can be about: a third of them family, as in any phrase-book.
PEOPLE = (
    *(noun for noun in NAMES for _ in range(3)),
    *(noun for noun in NOUNS["kin"] for _ in range(3)),
    *(noun for noun in NOUNS["friend"] for _ in range(2)),
    *(noun for noun in NOUNS["person"] for _ in range(3)),
    *NOUNS["profession"],
)
HOUSEHOLD = (*NAMES, *(noun for noun in NOUNS["kin"] if noun.singular))
OWNED = Rule("T O", "O T")


def relative(dice: Dice) -> Piece:
    """A name, or one of the family: whoever has a home and things of their own. English says it with 's."""
    return possessor(dice.pick(HOUSEHOLD), dice.pick(("je", "nous", "ils")))


@cache
def possessor(noun: Noun, owner: str) -> Piece:
    piece = phrase(noun, BARE if noun.of == "name" else OWNERS[owner][0])
    *rest, (last, links) = piece.english
    word, _, part = last.partition(MARK)
    return piece._replace(english=(*rest, (f"{possessive(word)}{MARK}{part}", links)))


def owned(dice: Dice, noun: Noun) -> Piece:
    """ "la voiture de Marie" is "Marie's car": the English leaves the article out."""
    return OWNED(phrase(noun, KIND if noun.singular else KIND_MANY), after("de", "", relative(dice)))
