"""Questions about a scene, each with one right answer, and the things that must be looked at to know it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool

from regard.data.builtin.scenes.hashed_dice import mixed
from regard.data.builtin.scenes.lexicon import NUMBERS, RELATIONS
from regard.data.builtin.scenes.scene import Scene, Word, boxes, cells, described, text
from regard.data.dataset import Regions

__all__ = ["KINDS", "Question", "chosen", "questions", "several"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and its answer word by word, each with the things that it depends on."""

    kind: str
    text: str
    words: tuple[Word, ...]
    scene: Scene

    @property
    def answer(self) -> str:
        return text(self.words)

    @property
    def boxes(self) -> Regions:
        """The parts of the image that the words of the answer depend on, by the number of the word."""
        return boxes(self.scene, self.words)

    def regions(self, grid: tuple[int, int]) -> Bool[np.ndarray, "words cells"]:
        """Which cells of a grid, given by its rows and columns, hold a part of the things that each word depends on."""
        return cells(self.scene, self.words, grid)


def colours(scene: Scene) -> Iterator[Question]:
    for number, thing in enumerate(scene.things):
        if _is_only(scene, shape=thing.shape):
            yield _one_word(scene, "colour", f"what colour is the {thing.shape}?", thing.colour, number)


def shapes(scene: Scene) -> Iterator[Question]:
    for number, thing in enumerate(scene.things):
        if _is_only(scene, colour=thing.colour):
            yield _one_word(scene, "shape", f"what shape is the {thing.colour} thing?", thing.shape, number)


def sizes(scene: Scene) -> Iterator[Question]:
    for number in range(len(scene.things)):
        is_small = scene.things[number].is_small
        yield _one_word(scene, "size", f"is {_named(scene, number)} small?", "yes" if is_small else "no", number)


def counts(scene: Scene) -> Iterator[Question]:
    count = len(scene.things)
    yield _one_word(scene, "count", "how many shapes are there?", NUMBERS[count - 1], *range(count))


def relations(scene: Scene) -> Iterator[Question]:
    """Whether a relation holds: for each pair that has a plain one, the relation it has and those that it has not."""
    for one, other, relation in _pairs(scene):
        for asked in RELATIONS:
            yield _one_word(scene, "relation", f"is {_named(scene, one)} {asked} {_named(scene, other)}?",
                            "yes" if asked == relation else "no", one, other)


def neighbours(scene: Scene) -> Iterator[Question]:
    """The only thing that stands so to another; it is plain of every other thing whether it does."""
    pairs = list(_pairs(scene))
    for one, other, relation in pairs:
        standing = [relation for _, to, relation in pairs if to == other]
        if len(standing) == len(scene.things) - 1 and standing.count(relation) == 1:
            words = tuple(Word(word.text, word.things and (one, other)) for word in described(scene, one))
            yield Question("neighbour", f"what is {relation} {_named(scene, other)}?", words, scene)


KINDS: dict[str, Callable[[Scene], Iterator[Question]]] = {
    "colour": colours, "shape": shapes, "size": sizes, "count": counts, "relation": relations,
    "neighbour": neighbours}


def questions(scene: Scene) -> list[Question]:
    """All that can be asked about a scene."""
    return [question for kind in KINDS.values() for question in kind(scene)]


def chosen(scene: Scene, number: int) -> Question:
    """One question about a scene: of each kind that the scene allows equally often, and with each answer.

    >>> from regard.data.builtin.scenes.scene import Thing
    >>> lonely = Scene((Thing("star", "blue", True, 20, 30),), key=0)
    >>> [chosen(lonely, number).text for number in range(4)]
    ['what colour is the star?', 'what shape is the blue thing?', 'is the star small?', 'how many shapes are there?']
    """
    kinds = [possible for kind in KINDS.values() if (possible := list(kind(scene)))]
    number, possible = _picked(number, kinds)
    # Of the four relations of a pair, three do not hold: without this, "no" would be the answer to three of four.
    number, answer = _picked(number, list(dict.fromkeys(question.answer for question in possible)))
    return _picked(number, [question for question in possible if question.answer == answer])[1]


def several(scene: Scene, number: int, count: int) -> list[Question]:
    """Different questions about a scene, up to this many."""
    found: dict[str, Question] = {}
    for attempt in range(2 * count):
        question = chosen(scene, int(mixed(np.array([number + attempt], np.uint64))[0]))
        found.setdefault(question.text, question)
    return list(found.values())[:count]


def _picked(number: int, options: Sequence[T]) -> tuple[int, T]:
    number, index = divmod(number, len(options))
    return number, options[index]


def _one_word(scene: Scene, kind: str, question: str, answer: str, *things: int) -> Question:
    return Question(kind, question, (Word(answer, things),), scene)


def _pairs(scene: Scene) -> Iterator[tuple[int, int, str]]:
    """Each thing with each other one to which it stands plainly, and how."""
    for one, thing in enumerate(scene.things):
        for other, another in enumerate(scene.things):
            if one != other and (relation := thing.relation(another)) is not None:
                yield one, other, relation


def _named(scene: Scene, number: int) -> str:
    """The shape, with the colour where the shape is not enough: no two things share both."""
    thing = scene.things[number]
    return f"the {thing.shape}" if _is_only(scene, shape=thing.shape) else f"the {thing.colour} {thing.shape}"


def _is_only(scene: Scene, *, shape: str | None = None, colour: str | None = None) -> bool:
    return sum(shape in (None, thing.shape) and colour in (None, thing.colour) for thing in scene.things) == 1
