"""ParallelCorpus: pairs of texts that translate each other become examples and batches of them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data import tokenizer as tokenizers
from regard.data.batch import Batch, BatchSpec
from regard.data.dataset import MAX_FIRST_EXAMPLE, Dataset, Example, Links, Sizes, no_such_split
from regard.data.layout import Sides, find_files, sides_of
from regard.data.prepared import KEY, keep_lines, kept_lines, refuse_uneven
from regard.data.ragged import Ragged, damaged
from regard.data.text.parallel_files import Pair, read_pairs, read_test_pairs
from regard.data.text.targets import Ids, encoded, targets_of
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["ParallelBatch", "ParallelCorpus", "round_up"]

BUILT_IN_CHECK = 1_000  # built-in pairs in the validation set and in each test set
BUILT_IN_SIDES = "fr", "en"
# Weights of one head that are watched at once: many short sentences, or a single long one.
MAX_WATCHED_WEIGHTS = 1 << 15


@dataclass(frozen=True)
class ParallelBatch(Batch):
    """Source, what the decoder reads, and what it should write: the same shifted by one."""

    source: Int[Tensor, "rows source"]
    read: Int[Tensor, "rows target"]
    write: Int[Tensor, "rows target"]


class ParallelCorpus(Dataset[str, ParallelBatch]):
    """Pairs of texts, and the tokens of both sides."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.tokens.file is not None:
            raise UserError(f"tokens.file={run.tokens.file}: pairs of texts have tokens learned from their own two "
                            "sides; leave it out")
        self.pairs: dict[str, Sequence[Pair]] = {}  # the text of every split but train
        self.ids: dict[str, tuple[Ragged, Ragged]] = {}
        data = run.data
        self.sides: Sides = sides_of([Path(path) for path in data.paths], source=data.source, target=data.target)

    # Files -> examples

    def make_data(self, folder: Path) -> dict[str, Any]:
        if self.run.tokens.file is not None:
            raise UserError("the prepared data of this run is gone, and its tokens cannot be learned again without "
                            "changing what the model reads; measure it on other data with --data")
        splits, cache = self._read(), folder / "data"
        self.first = self.first or _one_line(splits["train"][0])  # of the built-in data
        self._learn_tokens(splits["train"])
        self.source_tokens.save(folder / "source_tokenizer.json")
        self.target_tokens.save(folder / "tokenizer.json")
        for split, pairs in splits.items():
            self.encode(self.source_tokens, [p.source for p in pairs], "source", split).save(cache / f"{split}.source")
            self.encode(self.target_tokens, [p.target for p in pairs], "target", split).save(cache / f"{split}.target")
            if split != "train":
                keep_lines(cache / f"{split}.jsonl", ({"source": p.source, "target": p.target} for p in pairs))
        return {"splits": list(splits), "notes": self.notes, "first": self.first, "sides": self.sides}

    def restore(self, folder: Path) -> Sizes:
        self.source_tokens = Tokenizer.load(folder / "source_tokenizer.json")
        self.target_tokens = Tokenizer.load(folder / "tokenizer.json")
        return self._sizes()

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        cache = folder / "data"
        match about.get("sides", self.sides):  # which older runs have not kept
            case [str() | None as source, str() | None as target]:
                self.sides = source, target
            case _:
                raise damaged(cache / KEY, "sides: wants two languages")
        self.pairs = {split: [_pair(kept, cache / f"{split}.jsonl") for kept in kept_lines(cache / f"{split}.jsonl")]
                      for split in about["splits"] if split != "train"}
        self.ids = {split: (Ragged.load(cache / f"{split}.source", least=0, below=len(self.source_tokens)),
                            Ragged.load(cache / f"{split}.target", least=0, below=len(self.target_tokens)))
                    for split in ["train", *self.pairs]}
        for split, (sources, targets) in self.ids.items():
            refuse_uneven(cache / f"{split}.source.ends.npy", len(sources), len(targets),
                          len(self.pairs.get(split, sources)))

    def files(self) -> Iterable[Path]:
        """With the splits that lie beside those named."""
        data = self.run.data
        if not data.paths:
            return []
        layout = find_files([Path(path) for path in data.paths], source=data.source, target=data.target)
        return itertools.chain(*layout.files.values())

    def splits(self) -> Sequence[str]:
        return ["train", *self.pairs] if self.ids or self.pairs else []

    def lengths(self, split: str) -> NDArray[np.int64]:
        source, target = self.ids[split]
        return np.maximum(source.lengths, target.lengths)

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        if split not in self.pairs:
            raise no_such_split(split, list(self.pairs))
        return [Example(pair.source, pair.target) for pair in self.pairs[split][:limit]]

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        own = self.sides if self.run.data.paths else BUILT_IN_SIDES
        found = read_test_pairs(paths, source=source, target=target, own=own)
        self.notes += found.notes
        self.pairs |= found.splits
        return list(found.splits)

    def alignments(self, split: str, limit: int) -> list[Links] | None:
        """Of the built-in data, which is made with them."""
        if self.run.data.paths:
            return None
        from regard.data.builtin.phrasebook import phrases

        return [frozenset(phrase.alignment) for phrase in phrases(split, min(limit, len(self.pairs[split])))]

    def _read(self) -> dict[str, Sequence[Pair]]:
        data = self.run.data
        if not data.paths:
            from regard.data.builtin import phrasebook  # a lexicon that few runs need

            check = min(BUILT_IN_CHECK, data.built_in_size)
            sizes = {split: data.built_in_size if split == "train" else check for split in phrasebook.SPLITS}
            return {split: [Pair(p.source, p.target) for p in phrasebook.phrases(split, size)]
                    for split, size in sizes.items()}
        corpus = read_pairs([Path(path) for path in data.paths], source=data.source, target=data.target)
        self.notes += corpus.notes
        self.sides, self.first = corpus.languages, _one_line(corpus.first)
        return dict(corpus.splits)

    def _learn_tokens(self, pairs: Sequence[Pair]) -> None:
        how = self.run.tokens
        sources, targets = (pair.source for pair in pairs), (pair.target for pair in pairs)

        def learn(texts: Iterable[str]) -> Tokenizer:
            return tokenizers.train(texts, kind=how.kind, vocabulary=how.vocabulary, lowercase=how.lowercase)

        if how.joint:
            self.source_tokens = self.target_tokens = learn(text for side in (sources, targets) for text in side)
        else:
            self.source_tokens, self.target_tokens = learn(sources), learn(targets)
        fewest = min(len(self.source_tokens), len(self.target_tokens))
        if fewest < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{fewest} tokens are used")

    def encode(self, tokens: Tokenizer, texts: Sequence[str], thing: str, split: str | None = None) -> Ragged:
        """Ids with the end after them, cut to the longest length."""
        return encoded(tokens, texts, longest=self.run.data.max_tokens, notes=self.notes, thing=thing, split=split)

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"sources": round_up(len(self.source_tokens), 64), "targets": round_up(len(self.target_tokens), 64)}

    # Examples -> batches

    def collate(self, split: str, chosen: BatchSpec) -> ParallelBatch:
        sources, targets = self.ids[split]
        places = chosen.indices.tolist()
        return self._padded([sources[i] for i in places], [targets[i] for i in places], rows=chosen.rows,
                            source_length=chosen.length, target_length=chosen.length)

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[ParallelBatch]:
        """Texts with the outputs to give to them, in batches of like lengths."""
        sources = self.encode(self.source_tokens, inputs, "input")
        targets = self.encode(self.target_tokens, outputs, "output")
        return (batch for _, batch in self.by_length(list(sources), list(targets)))

    def by_length(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Iterator[tuple[list[int], ParallelBatch]]:
        """Batches of like lengths, each with the places that its rows had."""
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            length = lengths[order[0]]
            rows = max(1, MAX_WATCHED_WEIGHTS // length**2)
            places, order = order[:rows], order[rows:]
            mine, answers = [sources[i] for i in places], [targets[i] for i in places]
            yield places, self._padded(mine, answers, rows=len(places), source_length=max(map(len, mine)),
                                       target_length=max(map(len, answers)))

    def _padded(self, sources: Sequence[Ids], targets: Sequence[Ids], *, rows: int, source_length: int,
                target_length: int) -> ParallelBatch:
        source = np.full((rows, source_length), self.source_tokens.pad, dtype=np.int64)
        for row, ids in enumerate(sources):
            source[row, : len(ids)] = ids
        read, write, count = targets_of(targets, tokens=self.target_tokens, rows=rows, length=target_length)
        return ParallelBatch({"loss": count, "nll": count}, torch.from_numpy(source), read, write)


def _one_line(pair: Pair) -> str:
    return f"{pair.source[:MAX_FIRST_EXAMPLE]} → {pair.target[:MAX_FIRST_EXAMPLE]}"


def _pair(kept: object, path: Path) -> Pair:
    match kept:
        case {"source": str(source), "target": str(target), **more} if not more:
            return Pair(source, target)
    raise damaged(path, "a line is no pair of texts")


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
