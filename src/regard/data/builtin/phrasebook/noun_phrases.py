"""Noun phrases: a determiner, a noun and its adjectives, in agreement."""

from dataclasses import dataclass
from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.english import article, possessive
from regard.data.builtin.phrasebook.french import contract, starts_with_vowel
from regard.data.builtin.phrasebook.pieces import Dice, English, Piece, Rule
from regard.data.builtin.phrasebook.words import (
    ADJECTIVES,
    COLOURS,
    NAMES,
    NATIONALITIES,
    NOUNS,
    PERSONAL,
    Adjective,
    Noun,
    pairs,
    rows,
)

__all__ = ["BARE", "CONTEXTS", "NUMBERS", "OWNERS", "PEOPLE", "THE", "Determiner", "after", "attributes",
           "decorated", "determiners", "noun_phrase", "owned", "phrase", "portion", "relative"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    masculine: tuple[str, ...]
    feminine: tuple[str, ...]
    before_vowel: tuple[str, ...] | None
    """What both become before a vowel, beyond elision: mon amie, cet homme."""
    english: tuple[str, ...]
    is_plural: bool


def _determiner(source: str, target: str) -> Determiner:
    """From "masculine, feminine, before a vowel", or from a plural, which ends in a star."""
    masculine, *others = source.removesuffix("*").split(", ")
    return Determiner(
        masculine=tuple(masculine.split()),
        feminine=tuple((others[0] if others else masculine).split()),
        before_vowel=tuple(others[1].split()) if others[1:] else None,
        english=tuple(target.split()),
        is_plural=source.endswith("*"),
    )


BARE = _determiner("", "")  # before a name
THE, THE_MANY = _determiner("le, la", "the"), _determiner("les*", "the")
A, SOME, ANY = _determiner("un, une", "a"), _determiner("des*", "some"), _determiner("des*", "any")
THIS, THESE = _determiner("ce, cette, cet", "this"), _determiner("ces*", "these")
PART, PART_ANY = _determiner("de le, de la", "some"), _determiner("de le, de la", "any")
NOT_A, NOT_ANY, NOT_PART = _determiner("de", "a"), _determiner("de*", "any"), _determiner("de", "any")
NO, NO_MANY = _determiner("de", "no"), _determiner("de*", "no")
KIND, KIND_MANY = _determiner("le, la", ""), _determiner("les*", "")  # "j'aime les pommes": "I like apples"
NUMBERS = dict(pairs(lexicon.NUMBERS))
COUNTED = [_determiner(f"{source}*", target) for source, target in NUMBERS.items()]
AMOUNTS = [
    _determiner(f"{source}*", target)
    for source, target in pairs("""
        quelques | a few
        plusieurs | several
        beaucoup de | a lot of
        trop de | too many
        assez de | enough
    """)
]
MASSES = [
    _determiner(source, target)
    for source, target in pairs("""
        beaucoup de | a lot of
        trop de | too much
        assez de | enough
        un peu de | a little
    """)
]
OWNERS = {
    owner: (_determiner(one, target), _determiner(f"{many}*", target))
    for owner, one, many, target in rows("""
        je | mon, ma, mon | mes | my
        tu | ton, ta, ton | tes | your
        il | son, sa, son | ses | his
        elle | son, sa, son | ses | her
        nous | notre | nos | our
        vous | votre | vos | your
        ils | leur | leurs | their
    """)
}

# What stands before a countable noun and before a mass noun; a possessive is added where one fits.
CONTEXTS = {
    "plain": ([THE, THE_MANY, A, A, SOME, SOME, THIS, THESE], [THE, PART, PART, PART]),
    "negated": ([THE, THE_MANY, NOT_A, NOT_ANY, THIS, THESE], [THE, NOT_PART, NOT_PART]),
    "asked": ([THE, THE_MANY, A, A, ANY, THIS, THESE], [THE, PART_ANY, PART_ANY]),
    "definite": ([THE, THE, THE_MANY, THIS, THESE], [THE, THE, THE, THE]),
    "generic": ([KIND_MANY, KIND_MANY, KIND_MANY, THIS, THESE], [KIND, KIND, KIND]),
    "place": ([THE, THE, THE, THIS], [THE]),
    "existing": ([A, SOME, *COUNTED[:11], *AMOUNTS], [PART, PART, *MASSES]),
    "absent": ([NO, NO_MANY], [NO]),
    "existing asked": ([A, ANY], [PART_ANY]),
}
UNPOSSESSED = frozenset(("person", "profession", "wild", "building", "venue", "area", "landscape", "opening",
                         "ingredient", "speech", "show", "sound"))  # fmt: skip
UNOWNED_CONTEXTS = frozenset(("place", "existing", "absent", "existing asked"))


@cache
def determiners(noun: Noun, context: str, owner: str | None) -> tuple[Determiner, ...]:
    """What can stand before the noun, the likelier ones more than once."""
    mine = [determiner for name in _owners(owner) for determiner in OWNERS[name]]
    if noun.of == "name":
        return (BARE,)
    if noun.of == "kin":
        options = mine
    else:
        options = 4 * CONTEXTS[context][noun.is_mass]
        if context == "plain":
            options = options + (MASSES if noun.is_mass else COUNTED[:7] + AMOUNTS)
        if noun.of not in UNPOSSESSED and context not in UNOWNED_CONTEXTS:
            options = options + (mine[::2] if noun.is_mass else mine)
    return tuple(option for option in options if option.is_plural or noun.singular)


def _owners(subject: str | None) -> list[str]:
    """Who a possessive can point to beside this subject. "son" is his or her by its subject alone."""
    clashing = {"tu": "vous", "vous": "tu"}.get(subject or "")
    others = [owner for owner in ("je", "tu", "nous", "vous", "ils") if owner != clashing]
    return others + [subject] * 4 if subject else others


@cache
def attributes(noun: Noun) -> tuple[list[Adjective], list[Adjective]]:
    """The adjectives that go before it, and those that go after."""
    fitting = [a for a in (*ADJECTIVES, *COLOURS, *PERSONAL, *NATIONALITIES) if noun.of in a.of]
    return [a for a in fitting if a.is_before], [a for a in fitting if not a.is_before]


def noun_phrase(dice: Dice, noun: Noun, context: str, owner: str | None) -> Piece:
    return decorated(dice, noun, dice.pick(determiners(noun, context, owner)))


def decorated(dice: Dice, noun: Noun, determiner: Determiner) -> Piece:
    """The noun with an adjective on either side, on both, or mostly on none."""
    before, after = attributes(noun)
    side = dice.roll(16)
    return phrase(
        noun,
        determiner,
        dice.pick(before) if before and side < 4 else None,
        dice.pick(after) if after and 3 <= side < 8 else None,
    )


@cache
def phrase(noun: Noun, determiner: Determiner, before: Adjective | None = None, after: Adjective | None = None) -> Piece:
    """Determiner, adjective, noun, adjective; in English both adjectives go before the noun."""
    is_feminine, is_plural = noun.is_feminine, determiner.is_plural
    head = noun.singular if noun.singular and not is_plural else noun.plural
    adjective: tuple[str, ...] = ()
    if before:
        is_bent = starts_with_vowel(head[0]) and not is_feminine and not is_plural
        adjective = (before.before_vowel if is_bent else before.form(is_feminine=is_feminine, is_plural=is_plural),)
    tail = (after.form(is_feminine=is_feminine, is_plural=is_plural),) if after else ()
    opening = determiner.feminine if is_feminine else determiner.masculine
    opening = _fit(opening, determiner.before_vowel, (*adjective, *head), is_before=bool(before))

    start = len(opening) + len(adjective)
    english: English = tuple(
        (word, tuple(range(start, start + len(head))))
        for word in (noun.english_plural if is_plural else noun.english_singular)
    )
    if after:
        english = ((after.english, (start + len(head),)), *english)
    if before:
        english = ((before.english, (len(opening),)), *english)
    links = tuple(range(len(opening)))
    said = (article(english[0][0]),) if determiner.english == ("a",) else determiner.english
    if said:
        english = (*((word, links) for word in said), *english)
    else:
        *rest, (last, sources) = english
        english = (*rest, (last, (*links, *sources)))
    chosen = tuple((noun.lemma, a.lemma) for a in (before, after) if a)
    return Piece((*opening, *adjective, *head, *tail), english, (), chosen)


def _fit(
    opening: tuple[str, ...], before_vowel: tuple[str, ...] | None, followed: tuple[str, ...], *, is_before: bool
) -> tuple[str, ...]:
    """A determiner bent to what follows it: mon amie, cet homme, du pain, de petites pommes."""
    if before_vowel and starts_with_vowel(followed[0]):
        return before_vowel
    if opening == ("des",) and is_before:
        return ("de",)
    if opening == ("de", "le"):
        return contract("de", ("le", followed[0]))[:-1]
    return opening


def after(preposition: str, target: str, followed: Piece) -> Piece:
    """A preposition and its noun phrase: "à | at" with "le marché" is "au marché | at the market"."""
    *start, last = preposition.split()
    french = contract(last, followed.french) if last in ("à", "de") else (last, *followed.french)
    shift = len(start) + len(french) - len(followed.french)  # à + le became one word, au: then there is no shift
    links = tuple(range(len(start) + 1))
    english = (
        *((word, links) for word in target.split()),
        *((word, tuple(source + shift for source in sources)) for word, sources in followed.english),
    )
    return Piece((*start, *french), english, (), followed.combinations)


PEOPLE = (
    *(noun for noun in NAMES for _ in range(3)),
    *(noun for noun in NOUNS["kin"] for _ in range(3)),
    *(noun for noun in NOUNS["friend"] for _ in range(2)),
    *(noun for noun in NOUNS["person"] for _ in range(3)),
    *NOUNS["profession"],
)
HOUSEHOLD = (*NAMES, *(noun for noun in NOUNS["kin"] if noun.singular))
OWNED = Rule("T O", "O T")


@cache
def household(someone: Noun, owner: str) -> Piece:
    """A name, or one of the family: whoever has a home and things of their own. English says it with 's."""
    piece = phrase(someone, BARE if someone.of == "name" else OWNERS[owner][0])
    *rest, (last, links) = piece.english
    return piece._replace(english=(*rest, (possessive(last), links)))


def relative(dice: Dice) -> Piece:
    return household(dice.pick(HOUSEHOLD), dice.pick(("je", "tu", "nous", "vous", "ils")))


def owned(dice: Dice, noun: Noun) -> Piece:
    """ "la voiture de Marie" is "Marie's car": the English leaves the article out."""
    source = after("de", "", relative(dice))
    *rest, (last, links) = source.english
    return OWNED(phrase(noun, KIND if noun.singular else KIND_MANY), source._replace(english=(*rest, (last, (0, *links)))))


@cache
def portion(vessel: Noun, content: Noun) -> Piece:
    """ "une tasse de café", "a cup of coffee"."""
    return Rule("V C", "V C")(phrase(vessel, A), after("de", "of", phrase(content, BARE)))
