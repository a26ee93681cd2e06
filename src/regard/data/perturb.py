"""Perturbed texts: with typos, in another case, or shorter."""

import re
from collections.abc import Callable, Collection
from difflib import get_close_matches
from random import Random

from regard.settings.errors import UserError

__all__ = ["PERTURBATIONS", "parse_names", "perturb"]

MISTYPED = 0.2  # of the words
MIN_TYPO_LETTERS = 3  # letters of a word that is mistyped: a shorter one could not be recognized


def perturb(text: str, how: str, *, seed: int = 0) -> str:
    """The text, changed in one of the `PERTURBATIONS`. The random choices depend only on the text and the seed.

    >>> perturb("the acting is wonderful and the plot is clever", "typos", seed=3)
    'he atcing is wonderful and te plot is clever'
    """
    return PERTURBATIONS[how](text, Random(f"{how} {seed} {text}").random)


Chance = Callable[[], float]
"""A random number from 0 to 1."""


def typos(text: str, chance: Chance) -> str:
    """One word in five has two letters swapped, one dropped, or one doubled. The number of words stays the same."""
    def mistyped(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < MIN_TYPO_LETTERS or chance() >= MISTYPED:
            return word
        place, kind = int(chance() * (len(word) - 1)), int(chance() * 3)
        before, one, other, after = word[:place], word[place], word[place + 1], word[place + 2 :]
        return before + (other + one, other, one + one + other)[kind] + after

    return re.sub(r"\S+", mistyped, text)


def case(text: str, chance: Chance) -> str:
    """A third of the texts in upper case, a third in lower case, a third with a random case for each letter."""
    kind = int(chance() * 3)
    if kind < 2:
        return (text.upper(), text.lower())[kind]
    return "".join(letter.upper() if chance() < 0.5 else letter.lower() for letter in text)


def length(text: str, chance: Chance) -> str:
    """The first half of its words, at least one."""
    words = re.findall(r"[^ \t\r\n]+", text)  # a no-break space stays in its word
    return " ".join(words[: (len(words) + 1) // 2])


PERTURBATIONS: dict[str, Callable[[str, Chance], str]] = {"typos": typos, "case": case, "length": length}


def parse_names(names: str, there: Collection[str]) -> list[str]:
    """
    >>> parse_names("case, typos", PERTURBATIONS), parse_names("", PERTURBATIONS)
    (['case', 'typos'], [])
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in there:
            near = get_close_matches(name, there, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
            raise UserError(f"--shift {name}: no such shift; {hint}")
    return list(dict.fromkeys(chosen))
