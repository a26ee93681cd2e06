"""Few-shot classification: a language model predicts the label of a text after some labelled examples in its prompt.

Nothing is trained. The answer is the label with the highest probability after the examples (Brown et al. 2020, 2.1):
the probability of all its tokens up to the end of its line, not divided by their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Float

from regard.data.text.parallel_files import Pair

__all__ = ["Compare", "Shots", "labels", "prompt", "with_shots"]

Compare = Callable[[Sequence[str], Sequence[str]], Float[np.ndarray, "prompts endings"]]
"""The log-probability of each ending after each prompt."""

SHOT = "Text: {text}\nLabel: {label}\n\n"
ASKED = "Text: {text}\nLabel:"
ENDING = " {label}\n"  # with the line end: else a label that is a prefix of another would always be more likely
MAX_QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True)
class Shots:
    """The number of right answers with this many examples in the prompt."""

    shots: int
    right: int
    questions: int

    @property
    def accuracy(self) -> float:
        return self.right / self.questions

    @property
    def error(self) -> float:
        """The standard error of the accuracy, with the questions as a sample."""
        return float(np.sqrt(self.accuracy * (1 - self.accuracy) / self.questions))


def labels(pairs: Sequence[Pair]) -> list[str]:
    """All labels, sorted."""
    return sorted({pair.target for pair in pairs})


def prompt(text: str, examples: Sequence[Pair]) -> str:
    """
    >>> print(prompt("what a film", [Pair("a bore", "bad")]))
    Text: a bore
    Label: bad
    <BLANKLINE>
    Text: what a film
    Label:
    """
    shown = [SHOT.format(text=pair.source, label=pair.target) for pair in examples]
    return "".join([*shown, ASKED.format(text=text)])


def with_shots(compare: Compare, questions: Sequence[Pair], pool: Sequence[Pair], *, shots: int,
               names: Sequence[str], seed: int = 0) -> Shots:
    """Ask each question after `shots` examples, drawn for it from the pool; fewer shots use the first of them.

    A question in the pool is never its own example.
    """
    right = 0
    for first in range(0, len(questions), MAX_QUESTIONS_AT_ONCE):
        some = questions[first : first + MAX_QUESTIONS_AT_ONCE]
        prompts = [prompt(question.source, _examples(question, pool, shots, (seed, first + number)))
                   for number, question in enumerate(some)]
        found = compare(prompts, [ENDING.format(label=name) for name in names])
        right += sum(names[best] == question.target for best, question in zip(found.argmax(1), some, strict=True))
    return Shots(shots, right, len(questions))


def _examples(question: Pair, pool: Sequence[Pair], shots: int, seed: tuple[int, ...]) -> list[Pair]:
    order = np.random.default_rng(seed).permutation(len(pool)).tolist()
    return list(islice((pool[place] for place in order if pool[place] is not question), shots))
