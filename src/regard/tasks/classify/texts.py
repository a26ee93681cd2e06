"""Texts: labelled texts, and how classify reads them."""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from regard.check.probe import MAX_PROBE_LENGTH, Padded, Probe, made_up, of_all_lengths, of_encoder
from regard.data.dataset import Example, Sizes
from regard.data.labelled import Columns, Sample, read_corpus, read_file
from regard.data.reader import TextReader
from regard.data.splits import find_splits, find_tests
from regard.data.text.labelled_text import LabelBatch, LabelledText
from regard.data.text.rows import by_length, encoder_mask
from regard.generate.text_vectors import vectors
from regard.look.encoder_states import attention
from regard.look.record import Record
from regard.models.build import text_encoder
from regard.models.classifier import Classifier
from regard.models.encoder import Encoder
from regard.nn.mask import Mask
from regard.settings.schema import Data, Tower
from regard.tasks.classify.labelled import LabelledInputs, Read, Rows, Wanted, joined

__all__ = ["Texts"]

BUILT_IN_CHECK = 1_000  # built-in sentences in the validation set and in each test set
PROBE_CANDIDATES = 64  # examples from which those for the checks are chosen
MARKS = ("", "", "", ".", "!", "?")  # a built-in sentence of any kind ends with one of them


class Texts(LabelledText, LabelledInputs[str, LabelBatch]):
    """Texts, each with its label or its labels."""

    reader = TextReader()

    # Files -> samples

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
        return [Example(sample.text, joined(sample.labels, order=self.labels)) for sample in self.of(split)[:limit]]

    # How a model reads them

    def encoder(self, tower: Tower, sizes: Sizes) -> Encoder:
        return text_encoder(tower, vocabulary=sizes["vocabulary"])

    def _mask(self, tokens: torch.Tensor) -> Mask:
        return encoder_mask(tokens, pad=self.tokens.pad, window=self.run.model.window)

    def model_input(self, batch: LabelBatch, *, learning: bool) -> Read:
        return Read(batch.tokens, self._mask(batch.tokens), (Wanted(batch.targets),))

    def rows_to_answer(self, inputs: Sequence[str], *, device: torch.device) -> Iterator[Rows]:
        for places, tokens in by_length(self.rows(inputs), pad=self.tokens.pad, device=device):
            yield Rows(places, tokens, self._mask(tokens))

    def labels_of(self, split: str, limit: int | None = None) -> list[tuple[str, ...]]:
        return [sample.labels for sample in self.of(split)[:limit]]

    def batches(self, inputs: Sequence[str], labels: Sequence[Sequence[int]]) -> Iterator[LabelBatch]:
        rows, targets = self.rows(inputs), [self.targets(has) for has in labels]
        for places, tokens in by_length(rows, pad=self.tokens.pad, device=torch.device("cpu")):
            yield self.batch([rows[i] for i in places], [targets[i] for i in places],
                             shape=(len(places), tokens.shape[1]))

    # Vectors, and a look inside

    def vectors(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "inputs width"]:
        head = self.run.model.head
        return vectors(model, self.rows(inputs), pad=self.tokens.pad, pool=head.pool, normalize=head.normalize)

    def attention(self, model: nn.Module, inputs: Sequence[str], *, only: str | Sequence[str],
                  heads: Sequence[int] | None) -> list[Record]:
        return attention(model, self.tokens, self.rows(inputs), only=only, heads=heads)

    def probe(self, model: nn.Module) -> Probe:
        """The examples are of all lengths."""
        def logits(read: Padded) -> torch.Tensor:
            return model(read.values, mask=self._mask(read.values)).float()[:, None]  # type: ignore[no-any-return]

        split = next(iter(self.samples), None)
        examples = [] if split is None else self.examples(split, PROBE_CANDIDATES)
        texts = of_all_lengths([one.input for one in examples if one.input.strip()], length=len)
        rows = [[*row[: MAX_PROBE_LENGTH - 1], self.tokens.end] for row in self.rows(texts)]
        return of_encoder(model, cast(Classifier, model).encoder, rows or made_up(len(self.tokens)),
                          pad=self.tokens.pad, logits=logits)


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
