"""translate: pairs of texts to an encoder-decoder that turns the one into the other."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.checkpoint import read_json, write_json
from regard.data import tokenizer as tokenizers
from regard.data.batch import Batch, Chosen
from regard.data.layout import find_files
from regard.data.ragged import Ragged
from regard.data.text import Pair, read_pairs
from regard.data.tokenizer import Tokenizer
from regard.generate.beam import Beam, Hypothesis, Search, beam
from regard.generate.capture import Captures, where
from regard.generate.filters import Filter, Forbid, NoRepeat
from regard.generate.sample import Sampling, gather, sample
from regard.look.choices import Choice, Output
from regard.look.record import Labels, Record
from regard.look.watch import watch
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory
from regard.nn.loss import cross_entropy
from regard.nn.mask import Mask
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Run
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task, Term

__all__ = ["PairBatch", "Translate"]

KEY = "key.json"  # of the cache: what it was made from
BUILT_IN_CHECK = 1_000  # built-in pairs in the validation set and in each test set
TOGETHER = 1 << 15  # weights of one head that are watched at once: many short sentences, or a long one by itself

Ids = Sequence[int] | NDArray[np.int32]


@dataclass(frozen=True)
class PairBatch(Batch):
    """Source, what the decoder reads, and what it should write: the same shifted by one."""

    source: Int[Tensor, "rows source"]
    read: Int[Tensor, "rows target"]
    write: Int[Tensor, "rows target"]


class Translate(Task[PairBatch]):
    """Text to text."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.model.positions == "learned" and run.model.longest < run.data.longest:
            raise UserError(f"model.longest={run.model.longest}: a learned table of positions must reach "
                            f"data.longest={run.data.longest}; raise the one or lower the other")
        self.pairs: dict[str, Sequence[Pair]] = {}  # the text of every split but train
        self.ids: dict[str, tuple[Ragged, Ragged]] = {}
        self.filters: dict[tuple[int, int | None, torch.device], tuple[Filter, ...]] = {}
        self.captures: Captures[Search] = Captures()

    # Files -> examples

    def prepare(self, folder: Path) -> Sizes:
        cache = folder / "data"
        key = _digest(self.run)
        if (cache / KEY).exists() and read_json(cache / KEY)["key"] == key:
            sizes = self.restore(folder)
            self._load_ids(cache)
            return sizes
        if (folder / "checkpoints").exists():
            raise UserError(f"{folder}: the data has changed since this run began; train anew with --out DIR")
        splits = self._read()
        self._learn_tokens(splits["train"])
        cache.mkdir(parents=True, exist_ok=True)
        (cache / KEY).unlink(missing_ok=True)
        self.source_tokens.save(folder / "source_tokenizer.json")
        self.target_tokens.save(folder / "tokenizer.json")
        for split, pairs in splits.items():
            self.ids[split] = (self._encode(self.source_tokens, [p.source for p in pairs], f"sources of {split}"),
                               self._encode(self.target_tokens, [p.target for p in pairs], f"targets of {split}"))
            self.ids[split][0].save(cache / f"{split}.source")
            self.ids[split][1].save(cache / f"{split}.target")
            if split != "train":
                lines = (json.dumps({"source": p.source, "target": p.target}, ensure_ascii=False) for p in pairs)
                (cache / f"{split}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        self.pairs = {split: pairs for split, pairs in splits.items() if split != "train"}
        # Last: where it is, the cache is whole.
        write_json(cache / KEY, {"key": key, "splits": list(splits), "notes": self.notes})
        return self._sizes()

    def restore(self, folder: Path) -> Sizes:
        self.source_tokens = Tokenizer.load(folder / "source_tokenizer.json")
        self.target_tokens = Tokenizer.load(folder / "tokenizer.json")
        if (folder / "data" / KEY).exists():
            about = read_json(folder / "data" / KEY)
            self.notes = about["notes"]
            self.pairs = {split: _read_kept(folder / "data" / f"{split}.jsonl")
                          for split in about["splits"] if split != "train"}
        return self._sizes()

    def splits(self) -> Sequence[str]:
        return ["train", *self.pairs]

    def lengths(self, split: str) -> NDArray[np.int64]:
        source, target = self.ids[split]
        return np.maximum(source.lengths, target.lengths)

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

    def _encode(self, tokens: Tokenizer, texts: Sequence[str], what: str) -> Ragged:
        """Ids with the end after them, cut to the longest length."""
        longest = self.run.data.longest - 1
        rows = tokens.encode(texts)
        cut = sum(len(row) > longest for row in rows)
        if cut:
            self.notes.append(f"{cut:,} of {len(rows):,} {what} cut to data.longest={self.run.data.longest} tokens")
        return Ragged.of([*row[:longest], tokens.end] for row in rows)

    def _load_ids(self, cache: Path) -> None:
        for split in self.splits():
            self.ids[split] = Ragged.load(cache / f"{split}.source"), Ragged.load(cache / f"{split}.target")

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"sources": _round_up(len(self.source_tokens), 64), "targets": _round_up(len(self.target_tokens), 64)}

    # Examples -> batches -> loss

    def build(self, sizes: Sizes) -> EncoderDecoder:
        tower = self.run.model
        if tower.tied == "all" and not self.run.tokens.joint:
            tower = replace(tower, tied="output")  # the same id is another word: one size is not one vocabulary
        return EncoderDecoder(tower, sources=sizes["sources"], targets=sizes["targets"])

    def collate(self, split: str, chosen: Chosen) -> PairBatch:
        sources, targets = self.ids[split]
        places = chosen.indices.tolist()
        return self._padded([sources[i] for i in places], [targets[i] for i in places], rows=chosen.rows,
                            source_length=chosen.length, target_length=chosen.length)

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[PairBatch]:
        """Texts with the outputs to give to them, in batches of like lengths."""
        sources = self._encode(self.source_tokens, inputs, "inputs")
        targets = self._encode(self.target_tokens, outputs, "outputs")
        return (batch for _, batch in self._alike(list(sources), list(targets)))

    def _alike(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Iterator[tuple[list[int], PairBatch]]:
        """Batches of like lengths, each with the places that its rows had."""
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            length = lengths[order[0]]
            rows = max(1, TOGETHER // length**2)
            places, order = order[:rows], order[rows:]
            mine, answers = [sources[i] for i in places], [targets[i] for i in places]
            yield places, self._padded(mine, answers, rows=len(places), source_length=max(map(len, mine)),
                                       target_length=max(map(len, answers)))

    def _padded(self, sources: Sequence[Ids], targets: Sequence[Ids], *, rows: int, source_length: int,
                target_length: int) -> PairBatch:
        source = np.full((rows, source_length), self.source_tokens.pad, dtype=np.int64)
        target = np.full((rows, target_length + 1), self.target_tokens.pad, dtype=np.int64)
        target[:, 0] = self.target_tokens.start
        for row, (ids, answer) in enumerate(zip(sources, targets, strict=True)):
            source[row, : len(ids)] = ids
            target[row, 1 : 1 + len(answer)] = answer
        count = int((target[:, 1:] != self.target_tokens.pad).sum())
        whole = torch.from_numpy(target)
        return PairBatch({"loss": count, "nll": count}, torch.from_numpy(source),
                         whole[:, :-1].contiguous(), whole[:, 1:].contiguous())

    def _states(self, model: nn.Module, batch: PairBatch) -> Tensor:
        return model(batch.source, batch.read, mask=Mask(keys=batch.source != self.source_tokens.pad))  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        states = self._states(model, batch)
        total, plain = cross_entropy(
            states.flatten(0, 1), model.decoder.output.weight, batch.write.flatten(),  # type: ignore[union-attr,arg-type]
            ignore=self.target_tokens.pad, smoothing=self.run.train.smoothing)
        return Term("loss", total), Term("nll", plain, weight=0.0)

    # Inputs -> answers

    def predict(self, model: nn.Module, inputs: Sequence[str]) -> list[Answer]:
        """The best translation of each text, worked off in batches of like lengths; an empty text is its own."""
        rows = self._encode(self.source_tokens, inputs, "inputs")
        order = [i for i in np.argsort(rows.lengths, kind="stable")[::-1].tolist() if inputs[i].strip()]
        answers = [Answer("") for _ in inputs]
        how = self.run.search
        # Only like with like: how long an answer may get must not depend on who else is in the batch.
        for longest, alike in itertools.groupby(order, lambda i: min(how.longest, _longest(len(rows[i])))):
            while chosen := list(itertools.islice(alike, how.batch)):
                found = self._generate(cast(EncoderDecoder, model), [rows[i] for i in chosen], longest)
                for place, hypotheses in zip(chosen, found, strict=True):
                    texts = self.target_tokens.decode([h.tokens for h in hypotheses[: how.best]])
                    if not hypotheses:
                        raise NotFinite("the model's probabilities are not numbers: its training went wrong")
                    first, *others = (Answer(text, h.score) for text, h in zip(texts, hypotheses, strict=False))
                    answers[place] = replace(first, others=tuple(others))
        return answers

    @torch.no_grad()
    def _generate(
        self, model: EncoderDecoder, rows: Sequence[NDArray[np.int32]], longest: int
    ) -> list[list[Hypothesis]]:
        how, tokens, device = self.run.search, self.target_tokens, next(model.parameters()).device
        source = _pad(rows, self.source_tokens.pad).to(device)
        real = source != self.source_tokens.pad
        states = self.captures.call(lambda source, real: model.encode(source, Mask(keys=real)).states, source, real,
                                    key=where(model))
        memory = Memory(states, Mask(keys=real))
        size = model.decoder.output.out_features
        filters = self._filters(size, how.no_repeat, device)
        prompt = torch.full((len(rows), 1), tokens.start, device=device)
        if how.temperature is None:
            return beam(model, prompt, memory=memory, filters=filters, captures=self.captures, how=Beam(
                end=tokens.end, longest=longest, size=max(how.beam, how.best), length_penalty=how.length_penalty))
        draws = [sample(model, prompt, memory=memory, filters=filters, how=Sampling(
            end=tokens.end, longest=longest, temperature=how.temperature, top_k=how.top_k, top_p=how.top_p,
            seed=how.seed + draw)) for draw in range(how.best)]
        return [[*row] for row in zip(*(gather(draw, end=tokens.end) for draw in draws), strict=True)]

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None) -> list[Record]:
        tokens, told = self.target_tokens, self._told(model, inputs, outputs)
        sources, targets = [source for source, _ in told], [[*target, tokens.end] for _, target in told]
        device, records = next(model.parameters()).device, dict[int, Record]()
        for places, batch in self._alike(sources, targets):
            with watch(model, only, heads=heads) as seen:
                self._states(model, batch.to(device))
            weights = {site: seen[site].float().cpu().numpy() for site in seen}
            for row, place in enumerate(places):
                mine = {site: array[row] for site, array in weights.items()}
                records[place] = self._record(mine, seen.heads, sources[place], targets[place])
        return [records[place] for place in range(len(sources))]

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5) -> list[Output]:
        return [self._weighed(cast(EncoderDecoder, model), source, target, best)
                for source, target in self._told(model, inputs, outputs)]

    def _told(self, model: nn.Module, inputs: Sequence[str],
              outputs: Sequence[str] | None) -> list[tuple[list[int], list[int]]]:
        """Each input with its output, or the model's own answer: of that the very tokens, not their text read again."""
        sources = self._encode(self.source_tokens, inputs, "inputs")
        if outputs is not None:
            targets = self.target_tokens.encode(list(outputs))
        else:
            targets = []
            for row in sources:
                longest = min(self.run.search.longest, _longest(len(row)))
                if not (found := self._generate(cast(EncoderDecoder, model), [row], longest)[0]):
                    raise NotFinite("the model's probabilities are not numbers: its training went wrong")
                targets.append(found[0].tokens)
        return [(source.tolist(), target) for source, target in zip(sources, targets, strict=True)]

    def _weighed(self, model: EncoderDecoder, source: list[int], target: list[int], best: int) -> Output:
        device, tokens = next(model.parameters()).device, self.target_tokens
        read, write = [tokens.start, *target], [*target, tokens.end]
        states = model(torch.tensor([source], device=device), torch.tensor([read], device=device))
        logits = model.logits(states)[0].float()
        never = [tokens.pad, tokens.start, *range(len(tokens), logits.shape[1])]  # the search does not say them either
        chances = logits.index_fill_(1, torch.tensor(never, device=device), -math.inf).softmax(-1).cpu()
        top = chances.topk(min(best, len(tokens) - 2))
        taken = chances[torch.arange(len(write)), write]
        return Output(tokens.decode([target])[0], tuple(
            Choice(word, chance, tuple(zip(tokens.pieces(ids), values, strict=True)))
            for word, chance, ids, values in zip(tokens.pieces(write), taken.tolist(), top.indices.tolist(),
                                                 top.values.tolist(), strict=True)))

    def _record(self, weights: Mapping[str, NDArray[np.float32]], heads: Mapping[str, tuple[int, ...]],
                source: list[int], target: list[int]) -> Record:
        """Of one sentence: without the padding, every row and column is a word."""
        tokens = self.target_tokens
        words, written = self.source_tokens.pieces(source), tokens.pieces(target)
        read = tokens.pieces([tokens.start, *target[:-1]])
        labels = {}
        for site in weights:
            if site.startswith("encoder"):
                labels[site] = Labels(tuple(words), tuple(words))
            else:
                labels[site] = Labels(tuple(written), tuple(words if site.endswith("cross") else read))
        trimmed = {site: array[:, : len(labels[site].targets), : len(labels[site].sources)].copy()  # not all the batch
                   for site, array in weights.items()}
        return Record(trimmed, labels, dict(heads))

    @torch.no_grad()
    def greedy(self, model: nn.Module, batch: PairBatch) -> Int[Tensor, "rows target"]:
        """What a greedy search writes after each token that is read."""
        tokens = self.target_tokens
        logits = cast(EncoderDecoder, model).logits(self._states(model, batch))
        # From the end on: padding and start, which no answer has, come before it.
        return logits[..., tokens.end : len(tokens)].argmax(-1) + tokens.end

    def _filters(self, vocabulary: int, no_repeat: int | None, device: torch.device) -> tuple[Filter, ...]:
        """The same objects for every batch: a recorded search goes on reading their tensors."""
        key = (vocabulary, no_repeat, device)
        if key not in self.filters:
            tokens = self.target_tokens
            never = [tokens.pad, tokens.start, *range(len(tokens), vocabulary)]
            forbid = Forbid(never, vocabulary=vocabulary, device=device)
            self.filters[key] = (forbid,) if no_repeat is None else (forbid, NoRepeat(no_repeat))
        return self.filters[key]

    def score(self, model: nn.Module, split: str, *, limit: int | None = None) -> Scores:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        if split not in self.pairs:
            raise UserError(f"{split}: no such split; there are {', '.join(self.pairs)}")
        pairs = self.pairs[split][:limit]
        answers = [answer.text for answer in self.predict(model, [pair.source for pair in pairs])]
        targets = [pair.target for pair in pairs]
        bleu, lower, chrf = BLEU(), BLEU(lowercase=True), CHRF()
        return {
            "bleu": bleu.corpus_score(answers, [targets]).score,
            "bleu_lowercase": lower.corpus_score(answers, [targets]).score,
            "chrf": chrf.corpus_score(answers, [targets]).score,
            "exact": 100 * sum(a == t for a, t in zip(answers, targets, strict=True)) / len(targets),
            "sentences": len(targets),
            "bleu_signature": str(bleu.get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }


def _digest(run: Run) -> str:
    """Changes when the data files or what is made of them change."""
    digest = hashlib.sha256(json.dumps([asdict(run.data), asdict(run.tokens)]).encode())
    if run.data.paths:
        layout = find_files([Path(path) for path in run.data.paths], source=run.data.source, target=run.data.target)
        for file in itertools.chain(*layout.files.values()):  # with the splits that lie beside those named
            digest.update(file.name.encode(errors="surrogateescape"))
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _read_kept(path: Path) -> list[Pair]:
    with open(path, encoding="utf-8", newline="\n") as file:
        return [Pair(**json.loads(line)) for line in file]


def _pad(rows: Sequence[NDArray[np.int32]], pad: int) -> Int[Tensor, "rows length"]:
    """To a multiple of 8, so that few shapes occur."""
    padded = np.full((len(rows), _round_up(max(len(row) for row in rows), 8)), pad, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)


def _longest(length: int) -> int:
    """Nothing translates into more than twice its length; a model that never ends must not cost the earth.

    The length is rounded up to a power of two, so that many sources have the same.

    >>> [_longest(length) for length in (1, 8, 9, 16, 17)]
    [32, 32, 48, 48, 80]
    """
    return 16 + 2 * max(8, 1 << (length - 1).bit_length())


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
