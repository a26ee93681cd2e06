"""classify: a text to its label, or to several."""

import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_LENGTH, Probe, made_up, of_all_lengths, of_encoder
from regard.data.labelled import Columns, Sample, read_corpus, read_file, some
from regard.data.reader import TextReader
from regard.data.splits import find_splits, find_tests
from regard.data.text.labelled_text import IGNORED, LabelBatch, LabelledText
from regard.data.text.rows import by_length, encoder_mask
from regard.generate.text_vectors import vectors
from regard.look.choices import Choice, Output
from regard.look.confusion import Confusion
from regard.look.encoder_states import attention
from regard.look.metrics import ClassificationMetrics
from regard.look.record import Record
from regard.models.build import text_encoder
from regard.models.classifier import Classifier
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Data, Run, Search
from regard.tasks.base import Answer, Example, Loss, Scores, Sizes, Task, Term

__all__ = ["Classify"]

BUILT_IN_CHECK = 1_000  # built-in sentences in the validation set and in each test set
PROBE_CANDIDATES = 64  # examples from which those for the checks are chosen
BETWEEN = ", "  # separates several labels of one text
MARKS = ("", "", "", ".", "!", "?")  # a built-in sentence of any kind ends with one of them


class Chances(NamedTuple):
    """Log-probabilities that each text has each label, and that it does not have it."""

    yes: Float[np.ndarray, "texts labels"]
    no: Float[np.ndarray, "texts labels"]


class Texts(LabelledText):
    """Texts, each with its label or its labels."""

    @property
    def several(self) -> bool:
        return self.run.data.multi_label

    def _columns(self, data: Data) -> Columns:
        return Columns(data.source, data.target, self.several)

    def files(self) -> list[Path]:
        paths = [Path(path) for path in self.run.data.paths]
        return list(find_splits(paths)[0].values()) if paths else []

    def read(self) -> dict[str, Sequence[Sample]]:
        data = self.run.data
        if not data.paths:
            return _sentences(data.built_in_size)
        corpus = read_corpus([Path(path) for path in data.paths], self._columns(data), held_out=data.held_out)
        self.notes += corpus.notes
        self.first = self.told(corpus.first)
        return dict(corpus.splits)

    def tests(self, path: Path, data: Data) -> dict[str, Sequence[Sample]]:
        files = [read_file(file, self._columns(data)) for file in find_tests(path)]
        for file in files:
            file.refuse_others(self.labels)
            self.notes += file.notes
        return {str(file.path): file.samples for file in files}

    def encoded(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        rows = self.rows([sample.text for sample in samples])
        return [(row, self.targets([numbers[label] for label in sample.labels]))
                for row, sample in zip(rows, samples, strict=True)]

    def targets(self, has: Sequence[int]) -> list[int]:
        """The number of the label; for several labels, 0 or 1 for each."""
        return [int(number in has) for number in range(len(self.labels))] if self.several else list(has)

    def target_places(self, length: int) -> int:
        return len(self.labels) if self.several else 1

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        return [Example(sample.text, BETWEEN.join(sorted(sample.labels, key=self.labels.index)))
                for sample in self.of(split)[:limit]]


class Classify(Task[str, LabelBatch]):
    """Text to label."""

    inputs = TextReader()
    counted = "labels"
    encoder_only = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: Texts = Texts(run)

    # Batches -> loss

    def build(self, sizes: Sizes) -> Classifier:
        tower = self.run.model
        return Classifier(text_encoder(tower, vocabulary=sizes["vocabulary"]), tower, labels=sizes["labels"])

    def _logits(self, model: nn.Module, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows labels"]:
        mask = encoder_mask(tokens, pad=self.data.tokens.pad, window=self.run.model.window)
        return cast(Classifier, model)(tokens, mask=mask).float()  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: LabelBatch) -> Loss:
        """Cross-entropy; with several labels, the binary cross-entropy of each."""
        logits, how = self._logits(model, batch.tokens), self.run.train
        entropy = _of_each if self.data.several else _of_one
        plain = entropy(logits.detach(), batch.targets, smoothing=0.0)
        smoothed = entropy(logits, batch.targets, smoothing=how.label_smoothing)
        return Term("loss", smoothed), Term("nll", plain, weight=0.0)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: LabelBatch) -> Bool[Tensor, "rows places"]:
        logits = self._logits(model, batch.tokens)
        given = (logits > 0).long() if self.data.several else logits.argmax(-1, keepdim=True)
        return given == batch.targets

    # Texts -> labels

    @torch.no_grad()
    def _chances(self, model: nn.Module, texts: Sequence[str]) -> Chances:
        rows, device = self.data.rows(texts), next(model.parameters()).device
        yes, no = (np.zeros((len(texts), len(self.data.labels)), dtype=np.float32) for _ in range(2))
        for places, tokens in by_length(rows, pad=self.data.tokens.pad, device=device):
            logits = self._logits(model, tokens)
            logs = F.logsigmoid(logits) if self.data.several else logits.log_softmax(-1)
            yes[places] = logs.cpu().numpy()
            no[places] = (F.logsigmoid(-logits) if self.data.several else torch.log1p(-logs.exp())).cpu().numpy()
        if np.isnan(yes).any():
            raise NotFinite("the model's probabilities are not finite; train it again")
        return Chances(yes, no)

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """The most likely label, scored by its log-probability, and the next ones; or all with a probability above 1/2.

        A set of labels is scored by the log-probability of all decisions together, and has no alternatives.
        """
        yes, no = self._chances(model, inputs)
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
        return BETWEEN.join(self.data.labels[number] for number in numbers)

    def _probabilities(self, logs: Float[np.ndarray, " labels"]) -> dict[str, float]:
        """The most likely label first."""
        return {self.data.labels[number]: math.exp(logs[number]) for number in np.argsort(-logs, kind="stable")}

    def judge(self, model: nn.Module, samples: Sequence[Sample]) -> ClassificationMetrics:
        """The metrics of the model on labelled texts."""
        yes, no = self._chances(model, [sample.text for sample in samples])
        wanted = np.array([[label in sample.labels for label in self.data.labels] for sample in samples])
        return ClassificationMetrics(self.data.labels, yes, no, wanted, self.data.several)

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        return self.judge(model, self.data.of(split)[:limit]).scores()

    def confusion(self, model: nn.Module, split: str, *, limit: int | None = None) -> Confusion | None:
        if self.data.several:  # the labels are independent, so none is confused with another
            return None
        judged = self.judge(model, self.data.of(split)[:limit])
        return Confusion(self.data.labels, judged.wanted.T.astype(np.int64) @ judged.given.astype(np.int64))

    # Given labels -> batches

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[LabelBatch]:
        rows, targets = self.data.rows(inputs), [self.data.targets(self._numbers(output)) for output in outputs]
        for places, tokens in by_length(rows, pad=self.data.tokens.pad, device=torch.device("cpu")):
            yield self.data.batch([rows[i] for i in places], [targets[i] for i in places],
                             shape=(len(places), tokens.shape[1]))

    def _numbers(self, output: str) -> list[int]:
        names = [name.strip() for name in output.split(",") if name.strip()] if self.data.several else [output]
        if unknown := next((name for name in names if name not in self.data.labels), None):
            raise UserError(f"{unknown!r}: no such label; the labels are {some(self.data.labels)}")
        return [self.data.labels.index(name) for name in names]

    # Vectors, and a look inside

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self.data.rows(inputs), pad=self.data.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the tokens; it does not depend on the labels."""
        return attention(model, self.data.tokens, self.data.rows(inputs), only=only, heads=heads)

    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """One choice: the label, or all of them, among the most likely labels."""
        yes, no = self._chances(model, inputs)
        told = outputs or [answer.text for answer in self.predict(model, inputs)]
        found = []
        for row, not_row, text in zip(yes, no, told, strict=True):
            has = np.isin(np.arange(len(self.data.labels)), self._numbers(text))
            chance = math.exp(np.where(has, row, not_row).sum() if self.data.several else row[has][0])
            likeliest = tuple(self._probabilities(row).items())[:best]
            found.append(Output(text, (Choice(text, chance, likeliest),)))
        return found

    def probe(self, model: nn.Module) -> Probe:
        """A probe from examples of all lengths of the validation set, or from made-up ones if the run has no data."""
        split, classifier = next(iter(self.data.samples), None), cast(Classifier, model)
        examples = [] if split is None else self.data.examples(split, PROBE_CANDIDATES)
        texts = of_all_lengths([one.input for one in examples if one.input.strip()], length=len)
        rows = [[*row[: MAX_PROBE_LENGTH - 1], self.data.tokens.end] for row in self.data.rows(texts)]
        return of_encoder(model, classifier.encoder, rows or made_up(len(self.data.tokens)), pad=self.data.tokens.pad,
                          logits=lambda read: self._logits(model, read.values)[:, None])


def _of_one(logits: Float[Tensor, "rows labels"], targets: Int[Tensor, "rows 1"], *,
            smoothing: float) -> Float[Tensor, ""]:
    """The sum over the rows. Label smoothing spreads a share of the target's probability over all labels."""
    wanted = targets[:, 0]
    each = F.cross_entropy(logits, wanted.clamp(min=0), reduction="none", label_smoothing=smoothing)
    # Not with `ignore_index`: a NaN gradient must not be lost in a part of a batch that counts nothing.
    return (each * (wanted != IGNORED)).sum()


def _of_each(logits: Float[Tensor, "rows labels"], targets: Int[Tensor, "rows labels"], *,
             smoothing: float) -> Float[Tensor, ""]:
    """The sum over rows and labels. Label smoothing spreads a share of yes or no over both."""
    wanted = (1 - smoothing) * targets.clamp(min=0).float() + smoothing / 2
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (each * (targets != IGNORED)).sum()


def _sentences(size: int) -> dict[str, Sequence[Sample]]:
    """English sentences and their kinds. The final mark is random: only the words and their order tell the kind."""
    from regard.data.builtin import phrasebook  # a lexicon that few runs need

    splits: dict[str, Sequence[Sample]] = {}
    trained: set[str] = set()
    for split in phrasebook.SPLITS:
        count = size if split == "train" else min(BUILT_IN_CHECK, size)
        every = {phrase.target.removesuffix("?"): phrase.kind for phrase in phrasebook.phrases(split, count)}
        # Several French sentences have the same English one, but the book's splits only separate the French ones.
        splits[split] = [Sample(text + _mark(text), (kind,)) for text, kind in every.items() if text not in trained]
        trained |= every.keys() if split == "train" else set()
    return splits


def _mark(text: str) -> str:
    """No mark for half of the sentences, any mark for the others: users write them, so the model must know them."""
    return MARKS[zlib.crc32(text.encode()) % len(MARKS)]
