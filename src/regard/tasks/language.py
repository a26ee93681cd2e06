"""language: raw text to a decoder that predicts the next token."""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.check.probe import Probe, made_up, of_decoder
from regard.data.batch import IGNORED, BatchSpec
from regard.data.dataset import no_such_split
from regard.data.reader import TextReader
from regard.data.text.packing import WANTED, PackedBatch, PackedText
from regard.device import fits
from regard.generate.completions import TextGenerator
from regard.generate.detokenize import Completion
from regard.generate.score import compare, scores
from regard.generate.search_memory import refuse_search
from regard.look.choices import Output
from regard.look.outputs import records, token_alternatives
from regard.look.record import AxisPair, Record
from regard.look.watch import watch
from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.build import text_decoder
from regard.nn.loss import cross_entropy
from regard.nn.mask import Mask
from regard.settings.errors import NotFinite, UserError, out_of
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Example, Likelihood, Loss, Scores, Sizes, Task, Term

__all__ = ["Language"]

MAX_SCORED_TOKENS = 1 << 13  # tokens that are scored at once
MAX_SHOWN_TOKENS = 32  # new tokens to show if no output is given: a larger picture would be unreadable


class Language(Task[str, PackedBatch]):
    """A language model: continues a text."""

    inputs = TextReader()

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: PackedText = PackedText(run)
        self.generator = TextGenerator()

    # Rows -> loss

    def build(self, sizes: Sizes) -> AutoregressiveDecoder:
        return text_decoder(self.run.model, vocabulary=sizes["vocabulary"])

    def _states(self, model: nn.Module, read: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        decoder = cast(AutoregressiveDecoder, model)
        if self.run.data.documents == "joined":
            return decoder(decoder.embed(read))  # type: ignore[no-any-return]
        starts = read == self.data.tokens.start
        places = torch.arange(read.shape[1], device=read.device).expand_as(read)
        since = places - places.where(starts, 0).cummax(1).values
        # Attention need not know that positions restart: it only uses the distance between two of them.
        mask = Mask(causal=True, documents=starts.cumsum(1))
        return decoder(decoder.embed(read, since), mask=mask)  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: PackedBatch) -> Loss:
        decoder = cast(AutoregressiveDecoder, model)
        total, plain = self._entropy(decoder, self._states(model, batch.read), batch.write)
        if decoder.reads_back:
            # Each token predicts the one before it. The token before a start is the end of another text.
            before = batch.read[:, :-1].where(batch.write[:, :-1] != IGNORED, IGNORED)
            total = total + self._entropy(decoder, decoder.hindsight(batch.read)[:, 1:], before)[0]
        return Term("loss", total), Term("nll", plain, weight=0.0)

    def _entropy(self, decoder: AutoregressiveDecoder, states: Float[Tensor, "rows length width"],
                 wanted: Int[Tensor, "rows length"]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        return cross_entropy(states.flatten(0, 1), decoder.output.weight, wanted.flatten(), ignore=IGNORED,
                             smoothing=self.run.train.label_smoothing)

    @torch.no_grad()
    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """Every token once, given the tokens before it in its row. `limit` counts rows."""
        if split not in self.data.ids:
            raise no_such_split(split, list(self.data.ids))
        length, device, how = self.data.row_length(split), next(model.parameters()).device, self.run.train
        rows = np.arange(len(self.data.lengths(split)))[:limit]
        # At most one piece of a batch: if training fits, so does scoring.
        together = max(1, min(MAX_SCORED_TOKENS, how.batch_tokens // how.accumulate) // length)
        total = count = 0.0
        for some in np.array_split(rows, math.ceil(len(rows) / together)):
            batch = self.data.collate(split, BatchSpec(some, len(some), length)).to(device)
            with fits(f"scoring {len(some)} × {length} tokens", self._smaller()):
                total += float(next(term.total for term in self.loss(model, batch) if term.name == "nll"))
            count += batch.counts["nll"]
        size = self._bytes(split, len(rows) * length)
        return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count)),
                "bits_per_byte": total / size / math.log(2), "tokens": int(count), "bytes": size}

    def _smaller(self) -> str:
        how = self.run.train
        return (f"train.batch_tokens={how.batch_tokens} / train.accumulate={how.accumulate} and "
                f"data.max_tokens={self.run.data.max_tokens} determine the number: train with less, or score with "
                "regard eval --device cpu")

    def _bytes(self, split: str, ids: int) -> int:
        """The bytes in UTF-8 of the text of the first ids."""
        if ids >= len(self.data.ids[split]):
            return self.data.counts[split].bytes
        row = self.data.ids[split].around(0, ids + 1)
        texts = np.split(row, np.flatnonzero(row == self.data.tokens.start)[1:])
        return sum(len(text.encode()) for text in self.data.tokens.decode([ids.tolist() for ids in texts]))

    # Prompts -> continuations

    streams = True

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """The continuation of each prompt. Prompts of similar lengths are processed together."""
        how, prompts = search or self.run.search, [self._prompt(text) for text in inputs]
        answers = [Answer("") for _ in inputs]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        size = max(1, how.batch // how.best)
        for places in (order[at : at + size] for at in range(0, len(order), size)):
            written = self._written(model, [prompts[i] for i in places], how)
            for number, place in enumerate(places):
                mine = written[number * how.best : (number + 1) * how.best]
                first, *others = (Answer(each.text, each.score) for each in mine)
                answers[place] = Answer(first.text, first.score, tuple(others))
        return answers

    def stream(self, model: nn.Module, text: str, *, search: Search | None = None) -> Iterator[tuple[int, str]]:
        return self._write_on(model, [self._prompt(text)], search or self.run.search)[1]

    @torch.no_grad()
    def likelihoods(self, model: nn.Module, texts: Sequence[str]) -> list[Likelihood]:
        """Beyond the positions that a model has learned, a token is scored given only those of its own row."""
        most, rows, owners = self._reach, list[list[int]](), list[int]()
        encoded = self.data.tokens.encode(list(texts))
        for number, ids in enumerate(encoded):
            whole = [self.data.tokens.start, *ids]
            for start in range(0, max(1, len(ids)), most):
                rows.append(whole[start : start + most + 1])
                owners.append(number)
        chances: list[list[float]] = [[] for _ in texts]
        for owner, row in zip(owners, scores(cast(AutoregressiveDecoder, model), rows), strict=True):
            chances[owner] += row.tolist()
        if not all(map(math.isfinite, itertools.chain(*chances))):
            raise _no_numbers()
        return [Likelihood(tuple(self.data.tokens.pieces(ids)), tuple(found), len(text.encode()))
                for text, ids, found in zip(texts, encoded, chances, strict=True)]

    def compare(self, model: nn.Module, prompts: Sequence[str],
                endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """Each ending is read together with its prompt; tokens count from the first place where the endings differ."""
        most, begun, rests, tokens = self._reach, list[list[int]](), list[list[list[int]]](), self.data.tokens
        for prompt in prompts:
            rows = [[tokens.start, *ids] for ids in tokens.encode([prompt + ending for ending in endings])]
            same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
            shared = min(len(list(same)), min(map(len, rows)) - 1)
            rests.append([row[shared:] for row in rows])
            room = most + 1 - max(map(len, rests[-1]))  # the last token is not read
            if room < 1:
                raise UserError(f"an ending of {most + 1 - room:,} tokens: the model reads at most {most:,} "
                                "(model.max_positions)")
            begun.append(rows[0][max(0, shared - room) : shared])
        cut = sum(prompt[0] != tokens.start for prompt in begun)
        self.notes.count_up("compared", cut, len(prompts), lambda part, whole, _: (
            f"{out_of(part, whole, 'prompt')} cut to the last {most:,} tokens (model.max_positions)"))
        found = compare(cast(AutoregressiveDecoder, model), begun, rests)
        if not np.isfinite(found).all():
            raise _no_numbers()
        return found

    @property
    def _reach(self) -> int:
        """The most tokens that can be read: learned positions are limited."""
        return self.run.model.max_positions if self.run.model.positions == "learned" else sys.maxsize

    def _prompt(self, text: str) -> list[int]:
        """The ids that the decoder reads before it writes; of a text that is too long for its positions, the end."""
        ids, most = [self.data.tokens.start, *self.data.tokens.encode([text])[0]], self._reach
        if len(ids) > most:
            self._note_cut("prompt", len(ids), most)
        return ids[-most:]

    def _note_cut(self, thing: str, size: int, most: int) -> None:
        self.notes.count_up(thing, 1, 1, lambda part, _, first: (
            f"a {thing} of {first:,} tokens cut to its last {most:,} (model.max_positions)" if part == 1 else
            f"{part:,} {thing}s cut to their last {most:,} tokens, the first from {first:,} (model.max_positions)"),
            size=size)

    def _written(self, model: nn.Module, prompts: Sequence[Sequence[int]], how: Search) -> list[Completion]:
        """`how.best` answers to each prompt, one after the other."""
        written, pieces = self._write_on(model, prompts, how)
        for _ in pieces:
            pass
        return written

    def _write_on(self, model: nn.Module, prompts: Sequence[Sequence[int]],
                  how: Search) -> tuple[list[Completion], Iterator[tuple[int, str]]]:
        """The same, written while their pieces are consumed."""
        decoder = cast(AutoregressiveDecoder, model)
        # The last token is only written, not read: it needs no position.
        longest = [min(how.max_tokens, self._reach + 1 - len(prompt)) for prompt in prompts]
        weights = next(model.parameters())
        refuse_search(how, self.run.model, rows=len(prompts) * how.best, tokens=max(map(len, prompts)),
                      longest=max(longest), width=weights.dtype, device=weights.device)
        written, pieces = self.generator.generate(
            decoder, prompts, how, tokens=self.data.tokens, longest=longest,
            never=self._never(decoder.output.out_features))
        return written, self._followed(pieces, written, how.max_tokens)

    def _followed(self, pieces: Iterator[tuple[int, str]], written: Sequence[Completion],
                  longest: int) -> Iterator[tuple[int, str]]:
        """The pieces; at the end, add notes for the user."""
        yield from pieces
        if any(math.isnan(each.log_probability) for each in written):
            raise _no_numbers()
        if cut := sum(each.was_cut and len(each.tokens) < longest for each in written):
            self.notes.count_up("answers", cut, cut, lambda part, *_: (
                f"answers that were cut at the last learned position: {part:,} (model.max_positions={self._reach:,})"))

    def _never(self, vocabulary: int) -> list[int]:
        """The ids that must never be sampled."""
        special = [id for id in (self.data.tokens.pad, self.data.tokens.start) if id != self.data.tokens.end]
        return [*special, *range(len(self.data.tokens), vocabulary)]

    def greedy_answers(self, model: nn.Module, examples: Sequence[Example[str]], *,
                       search: Search | None = None) -> list[str]:
        """The most likely text unless sampling is set, as long as the target."""
        how = search or self.run.search
        how = replace(how, temperature=how.temperature or 0.0, best=1, stop=(), max_tokens=2 * WANTED)
        answers = self.predict(model, [example.input for example in examples], search=how)
        return [answer.text[: len(example.wanted)] for answer, example in zip(answers, examples, strict=True)]

    # Given outputs -> batches

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[PackedBatch]:
        """Batches in which only the tokens after the prompts count."""
        pairs = sorted(map(self._read, inputs, outputs), key=lambda pair: -sum(map(len, pair)))
        while pairs:
            longest = sum(map(len, pairs[0]))
            some, pairs = pairs[: max(1, MAX_SCORED_TOKENS // longest)], pairs[max(1, MAX_SCORED_TOKENS // longest) :]
            whole = np.full((len(some), longest), self.data.tokens.start, dtype=np.int64)
            write = np.full((len(some), longest - 1), IGNORED, dtype=np.int64)
            for row, (prompt, new) in enumerate(some):
                whole[row, : len(prompt) + len(new)] = [*prompt, *new]
                write[row, len(prompt) - 1 : len(prompt) + len(new) - 1] = new
            count = int((write != IGNORED).sum())
            yield PackedBatch({"loss": count, "nll": count}, torch.from_numpy(whole[:, :-1].copy()),
                           torch.from_numpy(write))

    def _read(self, text: str, output: str) -> tuple[list[int], list[int]]:
        """A prompt and the tokens after it, tokenized together: a word may begin in the one and end in the other."""
        prompt, whole = ([self.data.tokens.start, *ids] for ids in self.data.tokens.encode([text, text + output]))
        whole += [] if output else [self.data.tokens.end]
        differs = (place for place, pair in enumerate(zip(prompt, whole, strict=False)) if pair[0] != pair[1])
        shared = max(1, next(differs, min(len(prompt), len(whole) - 1)))
        left = max(0, len(whole) - 1 - self._reach)  # the last token is not read
        if left:
            self._note_cut("text", len(whole), len(whole) - left)
        return whole[left : max(shared, left + 1)], whole[max(shared, left + 1) :]

    def output_rows(self, batch: PackedBatch, rows: int) -> range:
        return range(rows - batch.counts["nll"], rows)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: PackedBatch) -> Bool[Tensor, "rows length"]:
        said = batch.write != IGNORED
        logits = cast(AutoregressiveDecoder, model).logits(self._states(model, batch.read)[said][None])[0]
        logits[:, self._never(logits.shape[1])] = -math.inf
        return torch.zeros_like(said).masked_scatter(said, logits.argmax(-1) == batch.write[said])

    # A look inside

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The label of a row is the next token, that of a column the token read, from the start token on."""
        device, found = next(model.parameters()).device, list[Record]()
        for prompt, new in self._with_outputs(model, inputs, outputs, search or self.run.search):
            whole = [*prompt, *new]
            with watch(model, only, heads=heads) as seen:
                self._states(model, torch.tensor([whole[:-1]], device=device))
            axes = AxisPair(tuple(self.data.tokens.pieces(whole[1:])), tuple(self.data.tokens.pieces(whole[:-1])))
            found += records(seen, [dict.fromkeys(seen, axes)])
        return found

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """A choice for each token from the start token on, including those of the prompt."""
        device, found = next(model.parameters()).device, list[Output]()
        for prompt, new in self._with_outputs(model, inputs, outputs, search or self.run.search):
            whole = [*prompt, *new]
            states = self._states(model, torch.tensor([whole[:-1]], device=device))
            logits = cast(AutoregressiveDecoder, model).logits(states)[0]
            found.append(Output(self.data.added(prompt, new), token_alternatives(
                self.data.tokens, logits, whole[1:], never=self._never(logits.shape[1]), best=best)))
        return found

    def _with_outputs(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None,
              search: Search) -> list[tuple[list[int], list[int]]]:
        """Each prompt with the tokens after it: those of these outputs, or the model's own."""
        if outputs is not None:
            return list(map(self._read, inputs, outputs))
        how = replace(search, best=1, max_tokens=min(search.max_tokens, MAX_SHOWN_TOKENS))
        return [(list(self.generator.trim_last_space(prompt, self.data.tokens)),
                 self._written(model, [prompt], how)[0].tokens or [self.data.tokens.end])
                for prompt in map(self._prompt, inputs)]

    def probe(self, model: nn.Module) -> Probe:
        """A probe from held-out text of all lengths, or from made-up text if the run has no data."""
        tokens = self.data.tokens
        rows, ids = made_up(len(tokens)), self.data.ids.get("val")
        if ids is not None:
            apart = max(1, len(ids) // len(rows))
            rows = [ids.around(number * apart, len(row)).tolist() for number, row in enumerate(rows)]
        return of_decoder(cast(AutoregressiveDecoder, model), [[tokens.start, *row] for row in rows], pad=tokens.pad,
                          end=tokens.end, decode=lambda ids: tokens.decode([ids])[0])


def _no_numbers() -> NotFinite:
    return NotFinite("the model's probabilities are not finite; train it again")
