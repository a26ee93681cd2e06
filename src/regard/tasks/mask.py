"""mask: raw text to an encoder that fills its blanks."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.check.probe import Probe, excerpts, of_encoder
from regard.data.batch import IGNORED
from regard.data.published import MASKS
from regard.data.reader import TextReader
from regard.data.text.masked_text import MaskedBatch, MaskedText, at
from regard.data.text.rows import by_length, encoder_mask, padded
from regard.generate.text_vectors import vectors
from regard.look.choices import Output
from regard.look.encoder_states import attention
from regard.look.outputs import token_alternatives
from regard.look.record import Record
from regard.models.masked_lm import MaskedLM
from regard.nn.loss import cross_entropy
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.settings.setting import shown
from regard.tasks.base import Answer, Example, Loss, Scores, Sizes, Task, Term

__all__ = ["Fill"]

BLANK = re.compile("|".join(map(re.escape, MASKS)))
SEPARATOR = re.compile(r"\[SEP\]|</s>")


class Asked(NamedTuple):
    """A text with blanks, as it is read."""

    text: str
    ids: list[int]
    blanks: list[int]
    """Their places among the ids."""


class Blanks(MaskedText):
    """Raw text, and texts with one blank as its examples."""

    def asked(self, texts: Sequence[str], random: np.random.Generator) -> Example[str]:
        """One blank in a text."""
        place = int(random.choice([place for place, text in enumerate(texts) if text.strip()]))
        space = " " * (texts[place].startswith(" ") and not self.tokens.has_spaces)
        [name] = self.tokens.pieces([cast(int, self.tokens.mask)])
        return Example("".join([*texts[:place], space, name, *texts[place + 1 :]]), "".join(texts))


class Fill(Task[str, MaskedBatch]):
    """Predicts the tokens of blanks (Devlin et al. 2019, 3.1; Liu et al. 2019)."""

    inputs = TextReader()

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: Blanks = Blanks(run)

    # Rows -> loss

    def build(self, sizes: Sizes) -> MaskedLM:
        return MaskedLM(self.run.model, vocabulary=sizes["vocabulary"], sentences=self.run.masking.next_sentence)

    def _states(self, model: MaskedLM, tokens: Int[Tensor, "rows length"],
                segments: Int[Tensor, "rows length"] | None) -> Float[Tensor, "rows length width"]:
        mask = encoder_mask(tokens, pad=self.data.tokens.pad, window=model.encoder.window)
        return model(tokens, mask=mask, segments=segments)  # type: ignore[no-any-return]

    def _trained(self, model: MaskedLM, batch: MaskedBatch) -> Float[Tensor, "rows length width"]:
        """Segments mark the second half only if there are halves: elsewhere, ends may separate whole documents."""
        return self._states(model, batch.tokens, self.data.segments(batch.tokens) if batch.order is not None else None)

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Loss:
        """Computes only the logits of the places to predict."""
        masked = cast(MaskedLM, model)
        states, output = self._trained(masked, batch), masked.words.output
        total, plain = cross_entropy(masked.words.features(at(states, batch.places)), output.weight,
                                     batch.targets.flatten(), ignore=IGNORED, smoothing=self.run.train.label_smoothing,
                                     bias=output.bias)
        terms = Term("loss", total), Term("nll", plain, weight=0.0)
        if batch.order is None:
            return terms
        assert masked.head is not None
        order = F.cross_entropy(masked.head(states[:, 0]).float(), batch.order, ignore_index=IGNORED, reduction="sum")
        return *terms, Term("order", order)

    @torch.no_grad()
    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """Every row once, always with the same blanks. `limit` counts rows."""
        masked, device = cast(MaskedLM, model), next(model.parameters()).device
        total, right, stood, ordered = 0.0, 0, list[Tensor](), list[Tensor]()
        for batch in self.data.scored(split, limit, device):
            states, targets = self._trained(masked, batch), batch.targets.flatten()
            asked = targets != IGNORED
            logits = masked.logits(at(states, batch.places)[asked]).float()
            total += float(F.cross_entropy(logits, targets[asked], reduction="sum"))
            right += int((logits.argmax(-1) == targets[asked]).sum())
            stood.append(targets[asked].cpu())
            if batch.order is not None and masked.head is not None:
                known = batch.order != IGNORED
                ordered.append((masked.head(states[:, 0]).argmax(-1) == batch.order)[known].cpu())
        if not len(tokens := torch.cat(stood)):
            raise self.data.nothing_asked(split)
        loss = total / len(tokens)
        scores: Scores = {"loss": loss, "perplexity": math.exp(min(700.0, loss)),
                          "accuracy": right / len(tokens),
                          # The accuracy of always predicting the most frequent token.
                          "most_frequent": int(tokens.bincount().max()) / len(tokens), "blanks": len(tokens)}
        if ordered:
            scores["next_sentence"] = float(torch.cat(ordered).float().mean())
        return scores

    # Texts with blanks -> texts without

    def _read(self, text: str) -> Asked:
        """[SEP] separates a text from a second one. Both names of a blank work, with any tokenizer."""
        mask, most, row = cast(int, self.data.tokens.mask), self.run.data.max_tokens, [self.data.tokens.start]
        for sentence in SEPARATOR.split(text):
            first, *others = self.data.tokens.between(BLANK.split(sentence.strip(" ")))
            row += [*first, *(id for ids in others for id in (mask, *ids)), self.data.tokens.end]
        if len(row) > most:
            self.notes.count_up("texts", 1, 1, lambda part, _, first: (
                f"a text of {first:,} tokens cut to {most:,} (data.max_tokens)" if part == 1 else
                f"{part:,} texts cut to {most:,} tokens, the first from {first:,} (data.max_tokens)"), size=len(row))
            row = [*row[: most - 1], self.data.tokens.end]
        blanks = [place for place, id in enumerate(row) if id == mask]
        if len(blanks) != len(BLANK.findall(text)):
            raise UserError(f"a blank is not within the first data.max_tokens={most} tokens of the text; shorten it")
        return Asked(text, row, blanks)

    def _read_blanks(self, text: str) -> Asked:
        asked = self._read(text)
        if not asked.blanks:
            raise UserError(f"no blank in {shown(text)}: write {MASKS[1]} for each word to fill in")
        return asked

    def _segments(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"] | None:
        return self.data.segments(tokens) if self.run.model.embedding.segments > 1 else None

    @torch.no_grad()
    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """Each blank is filled separately, as if the others stayed blank, with `search.best` candidates."""
        best = (search or self.run.search).best
        asked = [self._read_blanks(text) for text in inputs]
        answers = [Answer("") for _ in inputs]
        for places, logits in self._logits(model, asked):
            for place, own in zip(places, logits, strict=True):
                answers[place] = self._answer(asked[place], own, best)
        return answers

    def _logits(self, model: nn.Module,
                asked: Sequence[Asked]) -> Iterator[tuple[list[int], list[Float[Tensor, "_ vocabulary"]]]]:
        """The logits of the blanks, for some texts at a time."""
        masked, device = cast(MaskedLM, model), next(model.parameters()).device
        for places, tokens in by_length([one.ids for one in asked], pad=self.data.tokens.pad, device=device):
            blanks = tokens.eq(cast(int, self.data.tokens.mask))
            logits = masked.logits(self._states(masked, tokens, self._segments(tokens))[blanks])
            yield places, list(logits.split(blanks.sum(1).tolist()))

    def _answer(self, asked: Asked, logits: Float[Tensor, "blanks vocabulary"], count: int) -> Answer:
        best = self._best(logits)
        choices = token_alternatives(self.data.tokens, logits, best, never=self._never(logits.shape[1]), best=count)
        score = math.fsum(math.log(max(choice.probability, 1e-300)) for choice in choices) / len(choices)
        return Answer(self._filled(asked.text, best), score, choices=choices)

    def _best(self, logits: Float[Tensor, "blanks vocabulary"]) -> list[int]:
        never = torch.tensor(self._never(logits.shape[1]), device=logits.device)
        best: list[int] = logits.index_fill(1, never, -math.inf).argmax(1).tolist()
        return best

    def _never(self, vocabulary: int) -> list[int]:
        """Ids that must not fill a blank: special ones, unknown words, and those that only round the vocabulary up."""
        never = {*self.data.masking_policy.words.special, *range(len(self.data.tokens), vocabulary)}
        return sorted(never if self.data.tokens.unknown is None else {*never, self.data.tokens.unknown})

    def _filled(self, text: str, ids: Sequence[int]) -> str:
        found, *parts = BLANK.split(text)
        for id, part in zip(ids, parts, strict=True):
            new, before = self.data.masking_policy.words.written[id], self._before(found)
            found = (before + new if before else new.lstrip(" ")) + part
        return found

    def _before(self, part: str) -> str:
        """The text before a blank: most words' tokens include their space."""
        return part if self.data.tokens.has_spaces else part.rstrip(" ")

    def _fillings(self, text: str, output: str) -> list[int]:
        """The tokens of an output in the places of the text's blanks."""
        *parts, last = BLANK.split(text)
        pattern = "(.+?)".join([*(re.escape(self._before(part)) for part in parts), re.escape(last)])
        if (match := re.fullmatch(pattern, output, re.DOTALL)) is None:
            raise UserError(f"{output}: is not the text with its blanks filled")
        return [self._id(new, begins=match.start(number) == 0) for number, new in enumerate(match.groups(), 1)]

    def _id(self, new: str, *, begins: bool) -> int:
        """The token with this text; of several the first. At the beginning of a text it may be another one."""
        known = None if begins else self.data.masking_policy.words.id_of(new)
        ids = [known] if known is not None else self.data.tokens.between([new] if begins else ["", new])[-1]
        if not ids:
            raise UserError(f"{new!r}: the model has no such token")
        return ids[0]

    # Examples, and given outputs

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[MaskedBatch]:
        """Only the blanks count."""
        asked = [self._read_blanks(text) for text in inputs]
        filled = [self._fillings(text, output) for text, output in zip(inputs, outputs, strict=True)]
        pad, cpu = self.data.tokens.pad, torch.device("cpu")
        for places, tokens in by_length([one.ids for one in asked], pad=pad, device=cpu):
            blanks = padded([asked[i].blanks for i in places], pad=0)
            targets = padded([filled[i] for i in places], pad=IGNORED)
            yield self.data.batch(tokens.numpy(), blanks.numpy(), targets.numpy())

    def output_rows(self, batch: MaskedBatch, rows: int) -> list[int]:
        found: list[int] = batch.places[0].tolist()
        return found

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: MaskedBatch) -> Bool[Tensor, "rows asked"]:
        masked = cast(MaskedLM, model)
        states = at(self._states(masked, batch.tokens, self._segments(batch.tokens)), batch.places)
        best = torch.tensor(self._best(masked.logits(states)), device=states.device)
        return (best == batch.targets.flatten()).view_as(batch.targets)

    # Vectors, and a look inside

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self.data.rows(inputs), pad=self.data.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The label of a row is its token; that of a blank is its filling."""
        told = self._with_outputs(model, inputs, outputs)
        return attention(model, self.data.tokens, [asked.ids for asked, _ in told], only=only, heads=heads,
                         said=[said for _, said in told], segments=self._segments)

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """A choice for each token, blank or not: the model's prediction there."""
        masked, device, found = cast(MaskedLM, model), next(model.parameters()).device, list[Output]()
        for asked, said in self._with_outputs(model, inputs, outputs):
            read = torch.tensor([asked.ids], device=device)
            logits = masked.logits(self._states(masked, read, self._segments(read)))[0]
            text = self._filled(asked.text, [said[place] for place in asked.blanks])
            found.append(Output(text, token_alternatives(
                self.data.tokens, logits, said, never=self._never(logits.shape[1]), best=best)))
        return found

    @torch.no_grad()
    def _with_outputs(self, model: nn.Module, inputs: Sequence[str],
              outputs: Sequence[str] | None) -> list[tuple[Asked, list[int]]]:
        """Each text as it is read, and with its blanks filled: as in these outputs, or by the model."""
        found = []
        for number, asked in enumerate(map(self._read, inputs)):
            if outputs is not None:
                fillings = self._fillings(asked.text, outputs[number])
            else:
                [(_, [logits])] = self._logits(model, [asked])
                fillings = self._best(logits)
            filled = dict(zip(asked.blanks, fillings, strict=True))
            found.append((asked, [filled.get(place, id) for place, id in enumerate(asked.ids)]))
        return found

    def probe(self, model: nn.Module) -> Probe:
        masked = cast(MaskedLM, model)
        rows = excerpts(self.data.tokens, self.data.excerpts)
        return of_encoder(model, masked.encoder, rows, pad=self.data.tokens.pad,
                          logits=lambda read: masked.logits(
                              self._states(masked, read.values, self._segments(read.values))))
