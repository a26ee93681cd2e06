"""A French phrase-book with its English: the translator's built-in data.

It is a grammar, not a list: some five hundred words and four dozen kinds of sentence make more than 10¹¹
sentences. French decides the English: each French sentence has exactly one translation, so a perfect
translator exists. If French leaves a choice, the book always takes the same side:

- il and elle are people; le, la and les are people or things by their verb ("je le connais", "I know him";
  "je le mange", "I eat it"); before a vowel, where l' hides who it is, only things and participles ("je l'ai vue").
- son, sa and ses belong to the subject: "elle aime son chien", "she loves her dog".
- The present is the simple present, the passé composé the simple past; tu and vous are both you.
- After aimer, préférer and détester the article of a thing is general: "j'aime les pommes", "I like apples".

Sentences have no capitals (but for I, names, days and languages) and no full stop; French has a space before
its question mark, English has none.

The alignment links the words between blanks, French index first. Every word of both languages is linked. An
elided word is part of the next ("j'ai" renders both "I" and what "ai" does). The English auxiliary is linked to
the finite verb, "not" to both ne and pas, "to" to the preposition or else to the infinitive, "est-ce que" to
the auxiliary it stands for, an article that one language lacks to the noun, and idioms as wholes.

The rules that a sentence is made by know its kind: a statement, a negation (of a whole statement), a question that yes
or no answers, an open one, a command, a greeting, or a sentence of two clauses, whatever each of those is.

A sentence is a function of a seed and an index, through BLAKE2: the same bytes on every machine, for ever.
"""

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, count, islice

from regard.data.builtin.phrasebook.grammar import derive, plain_statements
from regard.data.builtin.phrasebook.pieces import STATED, Piece, written
from regard.data.builtin.phrasebook.states import student
from regard.data.builtin.phrasebook.subjects import PRONOUNS
from regard.data.builtin.phrasebook.tags import parts_of_speech
from regard.settings.errors import UserError

__all__ = ["SPLITS", "Phrase", "Tagging", "phrases", "sentences", "taggings"]

SPLITS = ("train", "val", "test", "test_combinations")
TEST_SHARE, VAL_SHARE = 4, 2  # of a hundred sentences
HELD_OUT = 16  # one pair of words in 16 is kept from training


@dataclass(frozen=True, slots=True)
class Phrase:
    """A French sentence, its English, which words of the two belong together, and what kind of sentence it is."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Tagging:
    """An English sentence in words, and the part of speech of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def phrases(split: str, count: int, *, seed: int = 0) -> list[Phrase]:
    """The first phrases of a split, all different; a longer list begins with the shorter one.

    The split of a sentence does not depend on the seed: `test` and `val` are sentences that `train` never has;
    `test_combinations` has those with a verb and its object, or a noun and its adjective, that never meet in the
    other three, though each word is common there.

    >>> phrases("test", 1)
    [Phrase(source='je suis étudiant', target='I am a student', alignment=((0, 0), (1, 1), (2, 2), (2, 3)),
            kind='statement')]
    """
    _check(split)
    with _garbage_left_alone():
        return list(islice(_stream(split, seed), count))


def taggings(split: str, count: int, *, seed: int = 0) -> list[Tagging]:
    """The first English sentences of a split with their parts of speech, as `phrases` gives them with their French.

    Here the English decides the split: "you eat" is one sentence, whether it was tu or vous. Every other sentence that
    is no question ends in a full stop, which is a word as the question mark is.

    >>> taggings("test", 1)
    [Tagging(words=('I', 'am', 'a', 'student', '.'), tags=('PRON', 'AUX', 'DET', 'NOUN', 'PUNCT'))]
    """
    _check(split)
    with _garbage_left_alone():
        return list(islice(_tagged(split, seed), count))


def sentences() -> int:
    """A lower bound for the number of sentences: those without negation, question, pronoun, place or time.

    >>> sentences() > 10**11
    True
    """
    return plain_statements()


def _check(split: str) -> None:
    if split not in SPLITS:
        raise UserError(f"{split}: no such split of the phrase-book; there are {', '.join(SPLITS)}")


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """Phrases hold no cycles, yet the collector walks their growing list again and again: a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _stream(split: str, seed: int) -> Iterator[Phrase]:
    seen: set[str] = set()
    for piece in _drawn(split, seed):
        source, target, alignment = written(piece)
        if source not in seen and _split(source, piece.combinations) == split:
            seen.add(source)
            yield Phrase(source, target, alignment, piece.kind or STATED)


def _tagged(split: str, seed: int) -> Iterator[Tagging]:
    seen: set[str] = set()
    for piece in _drawn(split, seed):
        words, tags = parts_of_speech(piece.english)
        text = " ".join(words)
        if text not in seen and _split(text, piece.combinations) == split:
            seen.add(text)
            has_stop = words[-1] != "?" and _number(f"{text} .") % 2 == 0
            yield Tagging((*words, "."), (*tags, "PUNCT")) if has_stop else Tagging(words, tags)


def _drawn(split: str, seed: int) -> Iterator[Piece]:
    """The sentences of all splits as they come, after what this one begins with."""
    return chain(_reserved() if split == "test" else (), (derive(_number(f"{seed} {index}")) for index in count()))


@cache
def _reserved() -> tuple[Piece, ...]:
    """ "je suis étudiant" and "je suis étudiante": the library's own example opens the test set."""
    return tuple(student(subject) for subject in PRONOUNS if subject.agreement.pronoun == "je")


@cache
def _reserved_sentences() -> frozenset[str]:
    return frozenset(text for piece in _reserved() for text in written(piece)[:2])


def _split(sentence: str, combinations: tuple[tuple[str, str], ...]) -> str:
    for combination in combinations:
        if _is_held_out(combination):
            return "test_combinations"
    share = _number(sentence) % 100
    if share < TEST_SHARE or sentence in _reserved_sentences():
        return "test"
    return "val" if share < TEST_SHARE + VAL_SHARE else "train"


@cache
def _is_held_out(combination: tuple[str, str]) -> bool:
    return _number(" + ".join(combination)) % HELD_OUT == 0


def _number(text: str) -> int:
    """A number that looks random and is the same everywhere, with more digits than any sentence has choices."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=32).digest(), "little")
