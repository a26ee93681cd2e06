"""Classify: labels for inputs of any kind: the loss, the answers and the scores."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.check.probe import Probe
from regard.data.batch import IGNORED, Batch
from regard.data.labelled import some
from regard.look.choices import Choice, Output
from regard.look.confusion import Confusion
from regard.look.metrics import ClassificationMetrics
from regard.look.record import Record
from regard.models.classifier import Classifier
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task, Term
from regard.tasks.classify.images import Images
from regard.tasks.classify.labelled import LabelledInputs, Read, Rows, Wanted, joined
from regard.tasks.classify.texts import Texts

__all__ = ["Classify"]

Input = TypeVar("Input")
B = TypeVar("B", bound=Batch)


class Chances(NamedTuple):
    """Log-probabilities that each input has each label, and that it does not have it."""

    yes: Float[np.ndarray, "inputs labels"]
    no: Float[np.ndarray, "inputs labels"]


class Classify(Task[Input, B]):
    """Input to label. Its `data` knows the kind of input."""

    counted = "labels"
    data: LabelledInputs[Input, B]

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data = _data(run)
        self.inputs = self.data.reader

    # Batches -> loss

    def build(self, sizes: Sizes) -> Classifier:
        tower = self.run.model
        return Classifier(self.data.encoder(tower, sizes), tower, labels=sizes["labels"])

    def loss(self, model: nn.Module, batch: B) -> Loss:
        """Cross-entropy; with several labels, the binary cross-entropy of each."""
        read, smoothing = self.data.model_input(batch, learning=model.training), self.run.train.label_smoothing
        logits = _logits(model, read)
        entropy = _of_each if self.data.several else _of_one
        plain = [_total(entropy(logits.detach(), of.targets, smoothing=0.0), of) for of in read.wanted]
        smoothed = [_total(entropy(logits, of.targets, smoothing=smoothing), of) for of in read.wanted]
        return Term("loss", _sum(smoothed)), Term("nll", _sum(plain), weight=0.0)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: B) -> Bool[Tensor, "rows places"]:
        read = self.data.model_input(batch, learning=False)
        logits = _logits(model, read)
        given = (logits > 0).long() if self.data.several else logits.argmax(-1, keepdim=True)
        return given == read.wanted[0].targets

    # Inputs -> labels

    def _chances_of(self, model: nn.Module, inputs: Sequence[Input]) -> Chances:
        return self._chances(model, self.data.rows_to_answer(inputs, device=_device(model)), len(inputs))

    @torch.no_grad()
    def _chances(self, model: nn.Module, batches: Iterable[Rows], count: int) -> Chances:
        yes, no = (np.zeros((count, len(self.data.labels)), dtype=np.float32) for _ in range(2))
        for rows in batches:
            logits = _logits(model, rows)
            logs = F.logsigmoid(logits) if self.data.several else logits.log_softmax(-1)
            yes[rows.places] = logs.cpu().numpy()
            no[rows.places] = (F.logsigmoid(-logits) if self.data.several else torch.log1p(-logs.exp())).cpu().numpy()
        if np.isnan(yes).any():
            raise NotFinite("the model's probabilities are not finite; train it again")
        return Chances(yes, no)

    def predict(self, model: nn.Module, inputs: Sequence[Input], *, search: Search | None = None) -> list[Answer]:
        """The most likely label, scored by its log-probability, and the next ones; or all with a probability above 1/2.

        A set of labels is scored by the log-probability of all decisions together, and has no alternatives.
        """
        yes, no = self._chances_of(model, inputs)
        if self.data.several:
            return [Answer(self._said(np.flatnonzero(row > not_row)), float(np.maximum(row, not_row).sum()),
                           probabilities=self._probabilities(row)) for row, not_row in zip(yes, no, strict=True)]
        answers = []
        for row in yes:
            first, *others = np.argsort(-row, kind="stable")[: (search or self.run.search).best].tolist()
            answers.append(Answer(self.data.labels[first], float(row[first]),
                                  tuple(Answer(self.data.labels[number], float(row[number])) for number in others),
                                  self._probabilities(row)))
        return answers

    def _said(self, numbers: Sequence[int] | np.ndarray) -> str:
        return joined([self.data.labels[number] for number in numbers], order=self.data.labels)

    def _probabilities(self, logs: Float[np.ndarray, " labels"]) -> dict[str, float]:
        """The most likely label first."""
        return {self.data.labels[number]: math.exp(logs[number]) for number in np.argsort(-logs, kind="stable")}

    def judge(self, model: nn.Module, split: str, *, limit: int | None = None) -> ClassificationMetrics:
        """The metrics of the model on the (first `limit`) examples of a split."""
        labels = self.data.labels_of(split, limit)
        yes, no = self._chances(model, self.data.rows_of(split, limit, device=_device(model)), len(labels))
        wanted = np.array([[label in has for label in self.data.labels] for has in labels])
        return ClassificationMetrics(self.data.labels, yes, no, wanted, self.data.several)

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        return self.judge(model, split, limit=limit).scores()

    def confusion(self, model: nn.Module, split: str, *, limit: int | None = None) -> Confusion | None:
        if self.data.several:  # the labels are independent, so none is confused with another
            return None
        judged = self.judge(model, split, limit=limit)
        return Confusion(self.data.labels, judged.wanted.T.astype(np.int64) @ judged.given.astype(np.int64))

    # Given labels -> batches

    def batches(self, inputs: Sequence[Input], outputs: Sequence[str]) -> Iterator[B]:
        return self.data.batches(inputs, [self._numbers(output) for output in outputs])

    def _numbers(self, output: str) -> list[int]:
        names = [name.strip() for name in output.split(",") if name.strip()] if self.data.several else [output]
        if unknown := next((name for name in names if name not in self.data.labels), None):
            raise UserError(f"{unknown!r}: no such label; the labels are {some(self.data.labels)}")
        return [self.data.labels.index(name) for name in names]

    # Vectors, and a look inside

    def embed(self, model: nn.Module, inputs: Sequence[Input]) -> Float[np.ndarray, "inputs width"]:
        return self.data.vectors(model, inputs)

    def look(self, model: nn.Module, inputs: Sequence[Input], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the encoder; it does not depend on the labels."""
        return self.data.attention(model, inputs, only=only, heads=heads)

    def output_rows(self, batch: B, rows: int) -> Sequence[int]:
        return self.data.output_rows(rows)

    def choices(self, model: nn.Module, inputs: Sequence[Input], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """One choice: the label, or all of them, among the most likely labels."""
        yes, no = self._chances_of(model, inputs)
        told = outputs or [answer.text for answer in self.predict(model, inputs)]
        found = []
        for row, not_row, text in zip(yes, no, told, strict=True):
            has = np.isin(np.arange(len(self.data.labels)), self._numbers(text))
            chance = math.exp(np.where(has, row, not_row).sum() if self.data.several else row[has][0])
            likeliest = tuple(self._probabilities(row).items())[:best]
            found.append(Output(text, (Choice(text, chance, likeliest),)))
        return found

    def probe(self, model: nn.Module) -> Probe:
        return self.data.probe(model)


def _data(run: Run) -> LabelledInputs[Input, B]:
    """Its inputs are of the kind that the encoder reads."""
    return cast(LabelledInputs[Input, B], Texts(run) if run.model.image is None else Images(run))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _logits(model: nn.Module, rows: Rows | Read) -> Float[Tensor, "rows labels"]:
    return cast(Classifier, model)(rows.values, mask=rows.mask).float()  # type: ignore[no-any-return]


def _of_one(logits: Float[Tensor, "rows labels"], targets: Int[Tensor, "rows 1"], *,
            smoothing: float) -> Float[Tensor, "rows 1"]:
    """Of each row. Label smoothing spreads a share of the target's probability over all labels."""
    wanted = targets[:, 0]
    each = F.cross_entropy(logits, wanted.clamp(min=0), reduction="none", label_smoothing=smoothing)
    # Not with `ignore_index`: a NaN gradient must not be lost in a part of a batch that counts nothing.
    return (each * (wanted != IGNORED))[:, None]


def _of_each(logits: Float[Tensor, "rows labels"], targets: Int[Tensor, "rows labels"], *,
             smoothing: float) -> Float[Tensor, "rows labels"]:
    """Of each row and label. Label smoothing spreads a share of yes or no over both."""
    wanted = (1 - smoothing) * targets.clamp(min=0).float() + smoothing / 2
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return each * (targets != IGNORED)


def _total(entropy: Float[Tensor, "rows places"], of: Wanted) -> Float[Tensor, ""]:
    """Entropy is linear in the targets: of mixed inputs, each has its share."""
    return (entropy if of.share is None else entropy * of.share[:, None]).sum()


def _sum(totals: Sequence[Float[Tensor, ""]]) -> Float[Tensor, ""]:
    return totals[0] if len(totals) == 1 else torch.stack(list(totals)).sum()
