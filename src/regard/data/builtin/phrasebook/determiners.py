"""Determiners: articles, possessives, numbers and amounts, and which of them can stand before a noun."""

from dataclasses import dataclass
from functools import cache

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.french import starts_with_vowel
from regard.data.builtin.phrasebook.words import Noun, pairs, rows

__all__ = ["BARE", "BARE_MANY", "COUNTED", "KIND", "KIND_MANY", "NUMBERS", "OWNERS", "THE", "THESE", "THE_MANY",
           "THIS", "UNPOSSESSED", "UNSAID", "WHICH", "WHICH_MANY", "A", "Determiner", "determiners"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    masculine: tuple[str, ...]
    feminine: tuple[str, ...]
    masculine_before_vowel: tuple[str, ...]
    """Beyond elision: cet homme."""
    feminine_before_vowel: tuple[str, ...]
    """Beyond elision: mon amie."""
    english: tuple[str, ...]
    is_plural: bool

    def before(self, word: str, *, is_feminine: bool) -> tuple[str, ...]:
        """As it stands before this word; du is "de le" where nothing is elided."""
        if starts_with_vowel(word):
            return self.feminine_before_vowel if is_feminine else self.masculine_before_vowel
        form = self.feminine if is_feminine else self.masculine
        return ("du",) if form == ("de", "le") else form


def determiner(source: str, target: str) -> Determiner:
    """From "masculine, feminine, and each before a vowel"; a star at the end makes it a plural."""
    masculine, *others = source.removesuffix("*").split(", ")
    feminine = others[0] if others else masculine
    masculine_before_vowel, feminine_before_vowel = others[1:] or (masculine, feminine)
    return Determiner(
        masculine=tuple(masculine.split()),
        feminine=tuple(feminine.split()),
        masculine_before_vowel=tuple(masculine_before_vowel.split()),
        feminine_before_vowel=tuple(feminine_before_vowel.split()),
        english=tuple(target.split()),
        is_plural=source.endswith("*"),
    )


BARE, BARE_MANY = determiner("", ""), determiner("*", "")
UNSAID = determiner("", "a")  # "je suis médecin": "I am a doctor"
THE, THE_MANY = determiner("le, la", "the"), determiner("les*", "the")
KIND, KIND_MANY = determiner("le, la", ""), determiner("les*", "")  # "j'aime les pommes": "I like apples"
A, SOME, ANY = determiner("un, une", "a"), determiner("des*", "some"), determiner("des*", "any")
THIS, THESE = determiner("ce, cette, cet, cette", "this"), determiner("ces*", "these")
WHICH, WHICH_MANY = determiner("quel, quelle", "which"), determiner("quels, quelles*", "which")
PART, PART_ANY = determiner("de le, de la", "some"), determiner("de le, de la", "any")
NOT_A, NOT_ANY, NOT_PART = determiner("de", "a"), determiner("de*", "any"), determiner("de", "any")
NO, NO_MANY = determiner("pas de", "no"), determiner("pas de*", "no")  # after "il n'y a"
NUMBERS = pairs(lexicon.NUMBERS)
COUNTED = [determiner(f"{source}*", target) for source, target in NUMBERS]
AMOUNTS = [determiner(f"{source}*", target) for source, target in pairs(lexicon.AMOUNTS)]
MASS_AMOUNTS = [determiner(source, target) for source, target in pairs(lexicon.MASS_AMOUNTS)]
OWNERS = {
    owner: (determiner(one, target), determiner(f"{many}*", target))
    for owner, one, many, target in rows(lexicon.OWNERS)
}

# Determiners of countable nouns and of mass nouns; a possessive is added if one fits.
CONTEXTS = {
    "plain": ([THE, THE_MANY, A, A, SOME, SOME, THIS, THESE], [THE, PART, PART, PART]),
    "negated": ([THE, THE_MANY, NOT_A, NOT_ANY, THIS, THESE], [THE, NOT_PART, NOT_PART]),
    "asked": ([THE, THE_MANY, A, A, ANY, THIS, THESE], [THE, PART_ANY, PART_ANY]),
    "definite": ([THE, THE, THE_MANY, THIS, THESE], [THE, THE, THE, THE]),
    "generic": ([KIND_MANY, KIND_MANY, KIND_MANY, THIS, THESE], [KIND, KIND, KIND]),
    "own": ([THIS, THESE], []),
    "place": ([THE, THE, THE, THIS], [THE]),
    "existing": ([A, SOME, *COUNTED[:11], *AMOUNTS], [PART, PART, *MASS_AMOUNTS]),
    "absent": ([NO, NO_MANY], [NO]),
    "existing asked": ([A, ANY], [PART_ANY]),
}
UNPOSSESSED = frozenset(("person", "profession", "wild", "building", "venue", "area", "landscape", "opening",
                         "ingredient", "speech", "show", "sound"))  # fmt: skip
UNOWNED_CONTEXTS = frozenset(("place", "existing", "absent", "existing asked"))


@cache
def determiners(noun: Noun, context: str, owner: str | None) -> tuple[Determiner, ...]:
    """The possible determiners of the noun, the more likely ones more than once.

    The owner is the subject's: only the owner decides between his and her, so without an owner there is no "son".
    """
    mine = [option for name in _owners(owner) for option in OWNERS[name]]
    if noun.of == "name":
        return (BARE,)
    if noun.of == "kin":
        options = mine
    else:
        options = 4 * CONTEXTS[context][noun.is_mass]
        if context == "plain":
            options = options + (MASS_AMOUNTS if noun.is_mass else COUNTED[:7] + AMOUNTS)
        if noun.of not in UNPOSSESSED and context not in UNOWNED_CONTEXTS:
            options = options + mine
    if not noun.singular:  # nor is a pair of glasses counted
        return tuple(option for option in options if option.is_plural and option not in COUNTED)
    return tuple(option for option in options if noun.plural or not option.is_plural)


def _owners(subject: str | None) -> list[str]:
    """Who a possessive can point to beside this subject; no "tu aimes votre chat", which speaks to two people."""
    clashing = {"tu": "vous", "vous": "tu"}.get(subject or "")
    others = [owner for owner in ("je", "tu", "nous", "vous", "ils") if owner != clashing]
    return others + [subject] * 4 if subject else others
