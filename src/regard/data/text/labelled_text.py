"""LabelledText: texts and their labels become examples and batches of them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.checkpoint import read_labels, write_json
from regard.data import tokenizer as tokenizers
from regard.data.batch import IGNORED, Batch, BatchSpec
from regard.data.dataset import MAX_FIRST_EXAMPLE, Dataset, Example, Sizes, no_such_split
from regard.data.labelled import Sample, some
from regard.data.perturb import perturb
from regard.data.prepared import keep_lines, kept_lines, refuse_uneven
from regard.data.ragged import Ragged, damaged
from regard.data.text.rows import padded, rows_of
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError, count
from regard.settings.schema import Data, Run

__all__ = ["LabelBatch", "LabelledText", "Sample"]

LABELS = "labels.json"
BUILT_IN_EXAMPLES = 100  # enough to contain every label


@dataclass(frozen=True)
class LabelBatch(Batch):
    """The input of the encoder, and the target labels."""

    tokens: Int[Tensor, "rows length"]
    targets: Int[Tensor, "rows places"]


class LabelledText(Dataset[str, LabelBatch]):
    """Texts with labels: of the whole text, or of each word.

    A subclass defines how files become samples (`read`), and samples ids (`encoded`) and batches (`collate`).
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.samples: dict[str, Sequence[Sample]] = {}  # of every split but train
        self.ids: dict[str, tuple[Ragged, Ragged]] = {}
        self.labels: list[str] = []

    @abstractmethod
    def read(self) -> dict[str, Sequence[Sample]]:
        """The samples of every split, "train" and "val" among them. Notes for the user go to `notes`."""

    @abstractmethod
    def encoded(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
        """The ids of each sample, from its start to its end, cut to `data.max_tokens`; and its targets."""

    @abstractmethod
    def tests(self, path: Path, data: Data) -> dict[str, Sequence[Sample]]:
        """The labelled texts of another file, or of the tests in another folder, by their names.

        `data` names their columns.
        """

    def changed(self, sample: Sample, text: str) -> Sample:
        """A sample with a changed text. Its labels are those of the whole text, and stay."""
        return replace(sample, text=text)

    def told(self, sample: Sample) -> str:
        """A sample on one line, to print."""
        return f"{sample.text[:MAX_FIRST_EXAMPLE]} → {', '.join(sample.labels) or 'no label'}"

    def keep(self, cache: Path, splits: dict[str, Sequence[Sample]]) -> None:
        """Write the rest that `restore` needs of the samples into `cache`."""

    # Files -> ids

    def make_data(self, folder: Path) -> dict[str, Any]:
        if self.labels and not self.run.data.paths:
            self._refuse_built_in()
        splits, cache = self.read(), folder / "data"
        self._learn_labels(splits)
        self.first = self.first or self.told(splits["train"][0])
        self.tokens = self._tokens(splits["train"])
        self.tokens.save(folder / "tokenizer.json")
        write_json(folder / LABELS, {"labels": self.labels})
        for split, samples in splits.items():
            self.add(split, samples)
            for ragged, what in zip(self.ids[split], ("ids", "targets"), strict=True):
                ragged.save(cache / f"{split}.{what}")
            if split != "train":
                keep_lines(cache / f"{split}.jsonl", ([sample.text, sample.labels] for sample in samples))
        self.keep(cache, splits)
        return {"splits": list(splits), "notes": self.notes, "first": self.first}

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        self.labels = read_labels(folder / LABELS)
        return self._sizes()

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        cache = folder / "data"
        texts = {split: cache / f"{split}.jsonl" for split in about["splits"] if split != "train"}
        self.samples = {split: [_sample(kept, file) for kept in kept_lines(file)] for split, file in texts.items()}
        self.ids = {split: (Ragged.load(cache / f"{split}.ids", least=0, below=len(self.tokens)),
                            Ragged.load(cache / f"{split}.targets", least=IGNORED, below=max(2, len(self.labels))))
                    for split in about["splits"]}
        for split, (ids, targets) in self.ids.items():
            refuse_uneven(cache / f"{split}.ids.ends.npy", len(ids), len(targets), len(self.samples.get(split, ids)))
            if targets.lengths.tolist() != [self.target_places(length) for length in ids.lengths.tolist()]:
                raise damaged(cache / f"{split}.targets.ends.npy", "its rows are not those of the ids")

    def splits(self) -> Sequence[str]:
        return list(self.ids)

    def lengths(self, split: str) -> NDArray[np.int64]:
        return self.ids[split][0].lengths

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        """The target is the labels, separated by spaces."""
        return [Example(sample.text, " ".join(sample.labels)) for sample in self.of(split)[:limit]]

    def of(self, split: str) -> Sequence[Sample]:
        """The samples of a split other than train."""
        if split not in self.samples:
            raise no_such_split(split, list(self.samples))
        return self.samples[split]

    def add(self, name: str, samples: Sequence[Sample]) -> None:
        """Add a split, for the lifetime of this object."""
        rows = self.encoded(samples)
        self.samples[name] = samples
        self.ids[name] = Ragged.of(ids for ids, _ in rows), Ragged.of(targets for _, targets in rows)

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        own = self.run.data
        data = replace(own, source=source or own.source, target=target or own.target)
        found = {name: samples for path in paths for name, samples in self.tests(path, data).items()}
        for name, samples in found.items():
            self.add(name, samples)
        return list(found)

    def shift(self, split: str, how: str, *, seed: int) -> str:
        name = f"{split} {how}"
        self.add(name, [self.changed(sample, perturb(sample.text, how, seed=seed)) for sample in self.of(split)])
        return name

    def _learn_labels(self, splits: dict[str, Sequence[Sample]]) -> None:
        """Learn the labels of the training data. A test must not have others: no model could predict them."""
        known = {label for sample in splits["train"] for label in sample.labels}
        if not known.issubset(self.labels or known):  # a converted run, without its data
            origin = "train" if self.run.data.paths else "the built-in data"
            raise UserError(f"{origin}: has the labels {some(sorted(known))}; the run has learned {some(self.labels)}; "
                            "`regard eval --data FILE` measures it on others")
        self.labels = self.labels or sorted(known)  # a converted model has its own order
        if len(known) < 2:
            there = f"{count(len(known), 'different label')} ({', '.join(known) or 'none'})"
            raise UserError(f"train: {there}; at least two are needed")
        for split, samples in splits.items():
            for number, sample in enumerate(samples, 1):
                if unknown := [label for label in sample.labels if label not in known]:
                    raise UserError(f"{split}: example {number:,} has the label {unknown[0]!r}, which is not in train; "
                                    f"its labels are {some(self.labels)}")

    def _refuse_built_in(self) -> None:
        """Refuse the built-in data early if a few examples show other labels: making all of them takes minutes."""
        few = type(self)(replace(self.run, data=replace(self.run.data, built_in_size=BUILT_IN_EXAMPLES)))
        few.labels = self.labels
        few._learn_labels(few.read())

    def _tokens(self, samples: Sequence[Sample]) -> Tokenizer:
        how = self.run.tokens
        if how.file is not None:
            return Tokenizer.load(Path(how.file))
        learned = tokenizers.train((sample.text for sample in samples), kind=how.kind, vocabulary=how.vocabulary,
                                   lowercase=how.lowercase, mask=True)
        if len(learned) < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{len(learned)} tokens are used")
        return learned

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"vocabulary": -(-len(self.tokens) // 64) * 64, "labels": len(self.labels)}

    # Ids -> batches

    def collate(self, split: str, chosen: BatchSpec) -> LabelBatch:
        ids, targets = self.ids[split]
        places = chosen.indices.tolist()
        return self.batch([ids[i].tolist() for i in places], [targets[i].tolist() for i in places],
                          shape=(chosen.rows, chosen.length))

    def batch(self, rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *,
              shape: tuple[int, int]) -> LabelBatch:
        """Missing rows, and targets that are IGNORED, do not count."""
        width = self.target_places(shape[1])
        wanted = padded(targets, pad=IGNORED, shape=(shape[0], width))
        count = int((wanted != IGNORED).sum())
        return LabelBatch({"loss": count, "nll": count}, padded(rows, pad=self.tokens.pad, shape=shape), wanted)

    @abstractmethod
    def target_places(self, length: int) -> int:
        """The number of targets of a row with this many tokens."""

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        return rows_of(self.tokens, texts, longest=self.run.data.max_tokens, notes=self.notes)


def _sample(kept: object, path: Path) -> Sample:
    match kept:
        case [str(text), [*labels]] if all(isinstance(label, str) for label in labels):
            return Sample(text, tuple(map(str, labels)))
    raise damaged(path, "a line is not a text with its labels")
