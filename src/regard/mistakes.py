"""The mistakes of a model, the worst first, with its attention, if it has any."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from regard.look.gallery import AnswerWeights, Mistake
from regard.look.watch import sites
from regard.tasks.base import Example, Task, loss_per_token

__all__ = ["Mistakes", "mistakes"]


@dataclass(frozen=True)
class Mistakes:
    """The worst of them, and of how many."""

    examples: int
    wrong: int
    worst: list[Mistake]


def mistakes(task: Task[Any, Any], model: nn.Module, split: str, *, limit: int | None = None,
             worst: int = 50) -> Mistakes:
    """The answers to the (first `limit`) examples of a split that are not what was wanted: the worst of them."""
    examples = task.data.examples(split, limit)
    answers = task.greedy_answers(model, examples)
    wrong = [(loss_per_token(task, model, task.batches([example.input], [example.wanted])), example, answer)
             for example, answer in zip(examples, answers, strict=True) if answer != example.wanted]
    wrong.sort(key=lambda one: -one[0])
    return Mistakes(len(examples), len(wrong), [_mistake(task, model, *one) for one in wrong[:worst]])


def _mistake(task: Task[Any, Any], model: nn.Module, loss: float, example: Example[Any], answer: str) -> Mistake:
    source, picture = task.inputs.show(example.input), task.inputs.picture(example.input)
    if not sites(model):
        words = len(source.split()) if isinstance(example.input, str) else None
        return Mistake(source, example.wanted, answer, loss, words, None, picture)
    [record] = task.look(model, [example.input], [answer], only=task.focus)
    [batch] = task.batches([example.input], [answer])
    axes = max(record.axes.values(), key=lambda each: len(each.targets))
    said = list(task.output_rows(batch, len(axes.targets)))
    weights = np.zeros((len(axes.targets), len(axes.sources)), np.float32)
    for each in record.values():
        weights[: each.shape[1]] += each.mean(0)  # a global token's own attention has only the first rows
    weights /= sum(each.shape[1] == len(weights) for each in record.values())
    return Mistake(source, example.wanted, answer, loss, len(axes.sources), AnswerWeights.of_rows(said, axes, weights),
                   picture)

