"""What a model got wrong, the worst first, and where it looked meanwhile."""

from dataclasses import dataclass

import numpy as np
import torch

from regard.data.text import Pair
from regard.look.gallery import Mistake
from regard.models.encoder_decoder import EncoderDecoder
from regard.settings.errors import UserError
from regard.tasks.translate import PairBatch, Translate

__all__ = ["Mistakes", "mistakes"]


@dataclass(frozen=True)
class Mistakes:
    """The worst of them, and of how many."""

    sentences: int
    wrong: int
    worst: list[Mistake]


def mistakes(task: Translate, model: EncoderDecoder, split: str, *, limit: int | None = None,
             worst: int = 50) -> Mistakes:
    """The answers to the (first `limit`) examples of a split that are not their references: the worst of them."""
    if split not in task.pairs:
        raise UserError(f"{split}: no such split; there are {', '.join(task.pairs)}")
    pairs = task.pairs[split][:limit]
    answers = [answer.text for answer in task.predict(model, [pair.source for pair in pairs])]
    wrong = [(_loss(task, model, pair), pair, answer) for pair, answer in zip(pairs, answers, strict=True)
             if answer != pair.target]
    wrong.sort(key=lambda one: -one[0])
    return Mistakes(len(pairs), len(wrong), [_mistake(task, model, *one) for one in wrong[:worst]])


@torch.no_grad()
def _loss(task: Translate, model: EncoderDecoder, pair: Pair) -> float:
    """−log of the reference's probability, per token."""
    longest, tokens = task.run.data.longest - 1, task.target_tokens
    source = [*task.source_tokens.encode([pair.source])[0][:longest], task.source_tokens.end]
    target = [tokens.start, *tokens.encode([pair.target])[0][:longest], tokens.end]
    rows = [torch.tensor([row]) for row in (source, target[:-1], target[1:])]
    batch = PairBatch({}, *rows).to(next(model.parameters()).device)
    [nll] = [term.total for term in task.loss(model, batch) if term.name == "nll"]
    return float(nll) / (len(target) - 1)


def _mistake(task: Translate, model: EncoderDecoder, loss: float, pair: Pair, answer: str) -> Mistake:
    [record] = task.look(model, [pair.source], [answer], only="*.cross")
    labels = next(iter(record.labels.values()))
    weights = np.mean([each.mean(0) for each in record.values()], axis=0)
    return Mistake(pair.source, pair.target, answer, loss, len(labels.sources), labels, weights)
