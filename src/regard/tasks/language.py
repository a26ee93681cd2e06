"""language: raw text to a decoder that goes on with it."""

import hashlib
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.checkpoint import read_json, write_json
from regard.data import tokenizer as tokenizers
from regard.data.batch import Batch, Chosen
from regard.data.builtin import standard_library
from regard.data.corpus import Corpus, Found, Text, find_texts, pieces, read_corpus
from regard.data.progress import progress
from regard.data.shards import Counts, Shards, write_shards
from regard.data.tokenizer import Tokenizer
from regard.generate.capture import Captures
from regard.generate.filters import Filter, Forbid, NoRepeat, PenalizeRepeats
from regard.generate.sample import Draws, Sampling, padded, sample
from regard.generate.score import compare, scores
from regard.generate.text import Writing, follow
from regard.look.choices import Choice, Output
from regard.look.record import Labels, Record
from regard.look.watch import watch
from regard.models.decoder import Decoder
from regard.nn.loss import cross_entropy
from regard.nn.mask import Mask
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Run
from regard.tasks.base import Answer, Likelihood, Loss, Scores, Sizes, Task, Term

__all__ = ["Language", "RowBatch"]

KEY = "key.json"  # of the cache: what it was made from
LEARN_FROM = 1 << 27  # characters that tokens are learned from, at the most: more text would not give others
IGNORED = -1  # a target that counts nothing
TEMPERATURE = 0.8  # of the drawing, where search.temperature is not set: likely text, and not always the same
TOGETHER = 1 << 13  # tokens that are scored at once


@dataclass(frozen=True)
class RowBatch(Batch):
    """What the decoder reads, and what it should write: the same shifted by one."""

    read: Int[Tensor, "rows length"]
    write: Int[Tensor, "rows length"]


class Language(Task[RowBatch]):
    """Text, cut into rows of equal length without regard for where a document ends."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.model.positions == "learned" and run.model.longest < run.data.longest:
            raise UserError(f"model.longest={run.model.longest}: a learned table of positions must reach "
                            f"data.longest={run.data.longest}; raise the one or lower the other")
        self.ids: dict[str, Shards] = {}
        self.counts: dict[str, Counts] = {}
        self.filters: dict[Hashable, tuple[Filter, ...]] = {}
        self.captures: Captures[Draws] = Captures()

    # Files -> ids

    def prepare(self, folder: Path) -> Sizes:
        cache = folder / "data"
        found = self._files()
        key = _digest(self.run, [text.path for text in found])
        if (cache / KEY).exists() and read_json(cache / KEY)["key"] == key:
            return self.restore(folder)
        if (folder / "checkpoints").exists():
            raise UserError(f"{folder}: the data has changed since this run began; train anew with --out DIR")
        corpus = read_corpus(found, key=self.run.data.source or "text", held_out=self.run.data.held_out)
        self.notes += corpus.notes
        self.tokens = self._tokens(corpus.splits["train"])
        cache.mkdir(parents=True, exist_ok=True)
        for old in [cache / KEY, *cache.glob("*.npy")]:
            old.unlink(missing_ok=True)
        self.tokens.save(folder / "tokenizer.json")
        self._write(corpus, cache)
        # Last: where it is, the cache is whole.
        write_json(cache / KEY, {"key": key, "splits": {name: asdict(counts) for name, counts in self.counts.items()},
                                 "notes": self.notes})
        return self._sizes()

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        if (folder / "data" / KEY).exists():
            about = read_json(folder / "data" / KEY)
            self.notes = about["notes"]
            self.counts = {split: Counts(**counts) for split, counts in about["splits"].items()}
            self.ids = {split: Shards.load(folder / "data" / split) for split in self.counts}
        return self._sizes()

    def splits(self) -> Sequence[str]:
        return list(self.ids)

    def _files(self) -> list[Found]:
        data = self.run.data
        if data.paths:
            return find_texts([Path(path) for path in data.paths])
        return [Found(file) for file in standard_library.files(data.built_in_size)]

    def _tokens(self, text: Text) -> Tokenizer:
        how = self.run.tokens
        if how.file is not None:
            return Tokenizer.load(Path(how.file))
        every = math.ceil(text.characters / LEARN_FROM)
        parts = (piece for document in text.documents() for piece in pieces(document))
        with progress("learning the tokens", text.characters // every) as tell:
            learned = tokenizers.train(_told(itertools.islice(parts, 0, None, every), tell), kind=how.kind,
                                       vocabulary=how.vocabulary, lowercase=how.lowercase)
        if len(learned) < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{len(learned)} tokens are used")
        return learned

    def _write(self, corpus: Corpus, cache: Path) -> None:
        total = sum(text.characters for text in corpus.splits.values())
        with progress("encoding the text", total) as tell:
            for split, text in corpus.splits.items():
                self.counts[split] = write_shards(cache / split, text.documents(), self.tokens, tell)
                self.ids[split] = Shards.load(cache / split)

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"vocabulary": -(-len(self.tokens) // 64) * 64}

    # Ids -> rows -> loss

    def build(self, sizes: Sizes) -> Decoder:
        return Decoder(self.run.model, vocabulary=sizes["vocabulary"])

    def lengths(self, split: str) -> NDArray[np.int64]:
        whole, length = len(self.ids[split]), self._length(split)
        return np.full(-(-whole // length), length)

    def _length(self, split: str) -> int:
        """Of a row; a text that is shorter is one row by itself."""
        return min(self.run.data.longest, len(self.ids[split]))

    def collate(self, split: str, chosen: Chosen) -> RowBatch:
        """Rows of the ring that the split is. The last goes on past where the first began; there, nothing counts."""
        ids, length = self.ids[split], self._length(split)
        first = self._offset(chosen.epoch, length)
        whole = np.full((chosen.rows, chosen.length + 1), self.tokens.start, dtype=np.int64)
        write = np.full((chosen.rows, chosen.length), IGNORED, dtype=np.int64)
        for row, index in enumerate(chosen.indices.tolist()):
            whole[row, : length + 1] = ids.around(first + index * length, length + 1)
            once = min(length, len(ids) - index * length)
            write[row, :once] = whole[row, 1 : once + 1]
        if self.tokens.start != self.tokens.end:
            write[write == self.tokens.start] = IGNORED  # what follows an end is no news, and no text
        count = int((write != IGNORED).sum())
        return RowBatch({"loss": count, "nll": count}, torch.from_numpy(whole[:, :-1].copy()), torch.from_numpy(write))

    def _offset(self, epoch: int, length: int) -> int:
        """Where the first row of an epoch begins: at the beginning of the text, and then elsewhere each time."""
        order = np.random.default_rng(self.run.seed).permutation(length)
        return int(order[epoch % length] - order[0]) % length

    def _states(self, model: nn.Module, read: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        decoder = cast(Decoder, model)
        if self.run.data.documents == "joined":
            return decoder(decoder.embed(read))  # type: ignore[no-any-return]
        starts = read == self.tokens.start
        places = torch.arange(read.shape[1], device=read.device).expand_as(read)
        since = places - places.where(starts, 0).cummax(1).values
        # The attentions need not know that positions begin anew: they only see how far apart two of them are.
        mask = Mask(causal=True, documents=starts.cumsum(1))
        return decoder(decoder.embed(read, since), mask=mask)  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: RowBatch) -> Loss:
        states = self._states(model, batch.read)
        total, plain = cross_entropy(states.flatten(0, 1), cast(Decoder, model).output.weight, batch.write.flatten(),
                                     ignore=IGNORED, smoothing=self.run.train.smoothing)
        return Term("loss", total), Term("nll", plain, weight=0.0)

    @torch.no_grad()
    def score(self, model: nn.Module, split: str, *, limit: int | None = None) -> Scores:
        """Every token once, with what comes before it in its row. `limit` counts rows."""
        if split not in self.ids:
            raise UserError(f"{split}: no such split; there are {', '.join(self.ids)}")
        length, device = self._length(split), next(model.parameters()).device
        rows = np.arange(len(self.lengths(split)))[:limit]
        total = count = 0.0
        for some in np.array_split(rows, math.ceil(len(rows) / max(1, TOGETHER // length))):
            batch = self.collate(split, Chosen(some, len(some), length)).to(device)
            total += float(next(term.total for term in self.loss(model, batch) if term.name == "nll"))
            count += batch.counts["nll"]
        size = self._bytes(split, len(rows) * length)
        return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count)),
                "bits_per_byte": total / size / math.log(2), "tokens": int(count), "bytes": size}

    def _bytes(self, split: str, ids: int) -> int:
        """Of the text that the first ids stand for, in UTF-8."""
        if ids >= len(self.ids[split]):
            return self.counts[split].bytes
        row = self.ids[split].around(0, ids + 1)
        texts = np.split(row, np.flatnonzero(row == self.tokens.start)[1:])
        return sum(len(text.encode()) for text in self.tokens.decode([ids.tolist() for ids in texts]))

    # Prompts -> what follows

    streams = True

    def predict(self, model: nn.Module, inputs: Sequence[str]) -> list[Answer]:
        """How the model goes on with each prompt. Prompts of like lengths are worked off together."""
        how, prompts = self.run.search, [self._prompt(text) for text in inputs]
        answers = [Answer("") for _ in inputs]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        size = max(1, how.batch // how.best)
        for places in (order[at : at + size] for at in range(0, len(order), size)):
            written = self._written(model, [prompts[i] for i in places])
            for number, place in enumerate(places):
                mine = written[number * how.best : (number + 1) * how.best]
                first, *others = (Answer(each.text, each.score) for each in mine)
                answers[place] = Answer(first.text, first.score, tuple(others))
        return answers

    def stream(self, model: nn.Module, text: str) -> Iterator[tuple[int, str]]:
        return self._write_on(model, [self._prompt(text)])[1]

    @torch.no_grad()
    def likelihoods(self, model: nn.Module, texts: Sequence[str]) -> list[Likelihood]:
        """Beyond the positions that a model has learned, a token is scored after those of its own row alone."""
        tower, rows, owners = self.run.model, list[list[int]](), list[int]()
        encoded = self.tokens.encode(list(texts))
        for number, ids in enumerate(encoded):
            whole = [self.tokens.start, *ids]
            most = tower.longest if tower.positions == "learned" else len(whole)
            for start in range(0, max(1, len(ids)), most):
                rows.append(whole[start : start + most + 1])
                owners.append(number)
        chances: list[list[float]] = [[] for _ in texts]
        for owner, row in zip(owners, scores(cast(Decoder, model), rows), strict=True):
            chances[owner] += row.tolist()
        return [Likelihood(tuple(self.tokens.pieces(ids)), tuple(found), len(text.encode()))
                for text, ids, found in zip(texts, encoded, chances, strict=True)]

    def compare(self, model: nn.Module, prompts: Sequence[str],
                endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """Each ending is read together with its prompt; from where the endings differ on, their tokens count."""
        most = self.run.model.longest if self.run.model.positions == "learned" else sys.maxsize
        begun, rests = list[list[int]](), list[list[list[int]]]()
        for prompt in prompts:
            rows = [[self.tokens.start, *ids] for ids in self.tokens.encode([prompt + ending for ending in endings])]
            same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
            shared = min(len(list(same)), min(map(len, rows)) - 1)
            rests.append([row[shared:] for row in rows])
            room = most + 1 - max(map(len, rests[-1]))  # the last token is not read
            begun.append(rows[0][max(0, shared - room) : shared])
        if (cut := sum(prompt[0] != self.tokens.start for prompt in begun)):
            self.notes.append(f"{cut:,} of {len(prompts):,} prompts cut to the last {most:,} tokens (model.longest)")
        return compare(cast(Decoder, model), begun, rests)

    def _prompt(self, text: str) -> list[int]:
        """What the decoder reads before it writes; of a text that is too long for its positions, the end."""
        ids = [self.tokens.start, *self.tokens.encode([text])[0]]
        most = self.run.model.longest
        if self.run.model.positions == "learned" and len(ids) > most:
            self.notes.append(f"a prompt of {len(ids):,} tokens cut to its last {most:,} (model.longest)")
            ids = ids[-most:]
        return ids

    def _written(self, model: nn.Module, prompts: Sequence[Sequence[int]]) -> list[Writing]:
        """`search.best` answers to each prompt, one after the other."""
        written, pieces = self._write_on(model, prompts)
        for _ in pieces:
            pass
        if any(math.isnan(each.log_probability) for each in written):
            raise NotFinite("the model's probabilities are not numbers: its training went wrong")
        return written

    def _write_on(self, model: nn.Module,
                  prompts: Sequence[Sequence[int]]) -> tuple[list[Writing], Iterator[tuple[int, str]]]:
        """The same, to be written while their pieces are asked for."""
        how, tower, tokens, decoder = self.run.search, self.run.model, self.tokens, cast(Decoder, model)
        # The last token is written only: it needs no position.
        most = [min(how.longest, tower.longest + 1 - len(prompt)) if tower.positions == "learned" else how.longest
                for prompt in prompts]
        written = [Writing(lambda ids: tokens.decode([ids])[0], end=tokens.end, longest=longest, after=prompt,
                           stop=how.stop)
                   for prompt, longest in zip(prompts, most, strict=True) for _ in range(how.best)]
        enough: set[int] = set()
        sampling = Sampling(
            end=tokens.end, longest=max(most), samples=how.best, top_k=how.top_k, top_p=how.top_p, min_p=how.min_p,
            temperature=TEMPERATURE if how.temperature is None else how.temperature, seed=how.seed)
        steps = sample(decoder, padded(prompts, device=next(model.parameters()).device), lengths=[*map(len, prompts)],
                       how=sampling, filters=self._filters(decoder), seeds=[[_checksum(prompt)] for prompt in prompts],
                       captures=self.captures, enough=enough)
        return written, follow(steps, written, enough=enough)

    def _filters(self, model: Decoder) -> tuple[Filter, ...]:
        """The same objects for every batch: a recorded step goes on reading their tensors."""
        how, vocabulary, device = self.run.search, model.output.out_features, next(model.parameters()).device
        key = (vocabulary, device, how.no_repeat, how.repetition_penalty)
        if key not in self.filters:
            never = [*self._never(), *range(len(self.tokens), vocabulary)]
            filters: list[Filter] = [Forbid(never, vocabulary=vocabulary, device=device)]
            filters += [] if how.no_repeat is None else [NoRepeat(how.no_repeat)]
            filters += [] if how.repetition_penalty == 1 else [PenalizeRepeats(how.repetition_penalty)]
            self.filters[key] = tuple(filters)
        return self.filters[key]

    def _never(self) -> list[int]:
        """Tokens of the vocabulary that no text has."""
        return [id for id in (self.tokens.pad, self.tokens.start) if id != self.tokens.end]

    def _text(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """What the new tokens add to the prompt: by themselves, they might lose a space at their beginning."""
        before, whole = self.tokens.decode([list(prompt), [*prompt, *new]])
        return whole[len(before) :]

    # A look inside

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None) -> list[Record]:
        """A row is named by the token that came next, a column by the token that was read: all from the start on."""
        device, records = next(model.parameters()).device, []
        for prompt, new in self._told(model, inputs, outputs):
            whole = [*prompt, *new]
            with watch(model, only, heads=heads) as seen:
                self._states(model, torch.tensor([whole[:-1]], device=device))
            labels = Labels(tuple(self.tokens.pieces(whole[1:])), tuple(self.tokens.pieces(whole[:-1])))
            records.append(Record({site: seen[site][0].float().cpu().numpy() for site in seen},
                                  dict.fromkeys(seen, labels), dict(seen.heads)))
        return records

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5) -> list[Output]:
        return [self._weighed(cast(Decoder, model), prompt, new, best)
                for prompt, new in self._told(model, inputs, outputs)]

    def _told(self, model: nn.Module, inputs: Sequence[str],
              outputs: Sequence[str] | None) -> Iterator[tuple[list[int], list[int]]]:
        """Each prompt with the tokens after it: of these outputs, or the very ones that the model says itself."""
        for number, text in enumerate(inputs):
            prompt = self._prompt(text)
            if outputs is None:
                yield prompt, self._written(model, [prompt])[0].tokens or [self.tokens.end]
            else:
                # Read together: a word may be begun by the prompt and ended by the output.
                whole = self._prompt(text + outputs[number])
                differs = (place for place, pair in enumerate(zip(prompt, whole, strict=False)) if pair[0] != pair[1])
                shared = next(differs, min(len(prompt), len(whole) - 1))
                yield whole[:shared], whole[shared:]

    def _weighed(self, model: Decoder, prompt: list[int], new: list[int], best: int) -> Output:
        tokens, device = self.tokens, next(model.parameters()).device
        states = self._states(model, torch.tensor([[*prompt, *new][:-1]], device=device))[:, len(prompt) - 1 :]
        logits = model.logits(states)[0].float()
        never = [*self._never(), *range(len(tokens), logits.shape[1])]  # the search does not say them either
        chances = logits.index_fill_(1, torch.tensor(never, device=device), -math.inf).softmax(-1).cpu()
        top = chances.topk(min(best, len(tokens) - len(self._never())))
        taken = chances[torch.arange(len(new)), new]
        return Output(self._text(prompt, new), tuple(
            Choice(word, chance, tuple(zip(tokens.pieces(ids), values, strict=True)))
            for word, chance, ids, values in zip(tokens.pieces(new), taken.tolist(), top.indices.tolist(),
                                                 top.values.tolist(), strict=True)))


def _told(texts: Iterator[str], tell: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        yield text
        tell(len(text))


def _checksum(prompt: Sequence[int]) -> int:
    """Other prompts have others: what is drawn for one tells nothing about the next."""
    ids = np.array(prompt, dtype=np.int64).tobytes()
    return int.from_bytes(hashlib.blake2b(ids, digest_size=16).digest(), "little")


def _digest(run: Run, files: Sequence[Path]) -> str:
    """Changes when the files or what is made of them change."""
    digest = hashlib.sha256(json.dumps([asdict(run.data), asdict(run.tokens)]).encode())
    published = [] if run.tokens.file is None else find_texts([Path(run.tokens.file)])
    for file in [*files, *(text.path for text in published)]:
        digest.update(file.name.encode(errors="surrogateescape"))
        if os.access(file, os.R_OK):  # else it will be left out with a note
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
