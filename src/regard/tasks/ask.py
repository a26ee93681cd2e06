"""ask: a question about an image to its answer, by a decoder of mixed sequences."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_LENGTH, MAX_PROBE_ROWS, Padded, Probe, made_up
from regard.data.batch import IGNORED
from regard.data.images.asked_images import AskedImages, MixedBatch, MixedRow
from regard.data.images.augment import augmented
from regard.data.images.image_question import ImageQuestion, QuestionReader
from regard.data.images.pixels import centred, normalized
from regard.data.images.seeds import pixel_seeds
from regard.generate.answers import Answers, never
from regard.generate.beam import Hypothesis
from regard.look.axes import AxisPair, Grid, Mixed
from regard.look.caption_scores import normalized as plain
from regard.look.choices import Output
from regard.look.outputs import records, token_alternatives
from regard.look.record import Record
from regard.look.watch import watch
from regard.models.build import mixed_decoder
from regard.models.mixed import MixedDecoder, MixedPrompt
from regard.nn.loss import cross_entropy
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task, Term, answer_of, refuse_none
from regard.tasks.classify.images import Shifted, grid_of

__all__ = ["Ask"]

MAX_WATCHED_PLACES = 1 << 9  # of the sequences whose attention is recorded together


class Questions(AskedImages):
    """Questions about images, also about changed ones."""

    def shift(self, split: str, how: str, *, seed: int) -> str:
        name = f"{split} {how}"
        self.add(name, Shifted(self.pixels[split], how, seed), self.of(split))
        return name


class Ask(Task[ImageQuestion, MixedBatch]):
    """Image and text to text."""

    focus = "*.self"
    inputs = QuestionReader()

    def __init__(self, run: Run) -> None:
        if run.model.image is None:
            raise UserError("ask: the model must read images, and model.image is absent; set model.image.size")
        if run.model.recurrent is not None:
            raise UserError(f"model.recurrent.cell={run.model.recurrent.cell}: ask reads an image and a text in one "
                            "sequence, by attention; remove it, or take caption")
        super().__init__(run)
        reach = run.data.max_tokens + run.model.image.places
        if run.model.positions in ("learned", "fourier") and run.model.max_positions < reach:
            raise UserError(f"model.max_positions={run.model.max_positions}: positions must reach the "
                            f"{run.model.image.places} places of an image and data.max_tokens={run.data.max_tokens}; "
                            f"set it to {reach}")
        self.data: Questions = Questions(run)
        self.answers = Answers()

    # Batches -> loss

    def build(self, sizes: Sizes) -> MixedDecoder:
        return mixed_decoder(self.run.model, vocabulary=sizes["vocabulary"])

    def loss(self, model: nn.Module, batch: MixedBatch) -> Loss:
        mixed = cast(MixedDecoder, model)
        pixels = self._augmented(batch) if model.training else normalized(batch.pixels, self.data.image)
        states = mixed(batch.read, batch.spans, pixels)
        total, nll = cross_entropy(states.flatten(0, 1), mixed.decoder.output.weight, batch.write.flatten(),
                                   ignore=IGNORED, smoothing=self.run.train.label_smoothing)
        return Term("loss", total), Term("nll", nll, weight=0.0)

    def _augmented(self, batch: MixedBatch) -> Float[Tensor, "rows channels size size"]:
        changed = augmented(batch.pixels, batch.seeds, how=self.run.train.augment, image=self.data.image)
        return centred(changed.pixels, self.data.image)

    def _logits(self, model: nn.Module, batch: MixedBatch) -> Float[Tensor, "rows length vocabulary"]:
        mixed = cast(MixedDecoder, model)
        return mixed.logits(mixed(batch.read, batch.spans, normalized(batch.pixels, self.data.image)))

    def batches(self, inputs: Sequence[ImageQuestion], outputs: Sequence[str]) -> Iterator[MixedBatch]:
        return self.data.batches(inputs, outputs, rows=self._watched_together)

    def output_rows(self, batch: MixedBatch, rows: int) -> range:
        return range(max(0, rows - batch.counts["nll"]), rows)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: MixedBatch) -> Bool[Tensor, "rows length"]:
        tokens = self.data.tokens
        # From the end on: padding and start, which no answer has, come before it.
        return self._logits(model, batch)[..., tokens.end : len(tokens)].argmax(-1) + tokens.end == batch.write

    # Inputs -> answers

    def predict(self, model: nn.Module, inputs: Sequence[ImageQuestion], *,
                search: Search | None = None) -> list[Answer]:
        """Questions of one length share a batch: without padding, an answer cannot depend on the others."""
        how, found = search or self.run.search, dict[int, Answer]()
        rows = self._prompts(inputs)
        order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
        while order:
            alike = [place for place in order[: how.batch] if len(rows[place].ids) == len(rows[order[0]].ids)]
            order = order[len(alike) :]
            answers = self._generate(cast(MixedDecoder, model), [inputs[place] for place in alike],
                                     [rows[place] for place in alike], how)
            for place, hypotheses in zip(alike, answers, strict=True):
                found[place] = answer_of(hypotheses, self.data.tokens, how)
        return [found[place] for place in range(len(inputs))]

    def _prompts(self, inputs: Sequence[ImageQuestion]) -> list[MixedRow]:
        """The questions, and after each the token at which its answer starts."""
        rows = self.data.rows([given.question for given in inputs], [""] * len(inputs))
        return [MixedRow(row.ids[:-1], row.image_at) for row in rows]

    @torch.no_grad()
    def _generate(self, model: MixedDecoder, inputs: Sequence[ImageQuestion], rows: Sequence[MixedRow],
                  how: Search) -> list[list[Hypothesis]]:
        longest = min(how.max_tokens, self.run.data.max_tokens)
        self.answers.refuse(model, self.run.model, how, rows=len(inputs), tokens=1, longest=longest)
        prompt, bytes_ = self._mixed(model, inputs, rows)
        return self.answers.find(model, prompt, how, tokens=self.data.tokens, longest=longest, seeds=[
            [*pixel_seeds(each), *row.ids] for each, row in zip(bytes_, rows, strict=True)])

    def _mixed(self, model: MixedDecoder, inputs: Sequence[ImageQuestion], rows: Sequence[MixedRow]) -> tuple[
        MixedPrompt, UInt8[np.ndarray, "inputs channels size size"]
    ]:
        """The prompts up to the start of the answer, which the search reads; and the bytes of their images."""
        batch = self.data.batch(inputs, rows).to(next(model.parameters()).device)
        return model.mix(batch.read, batch.spans, normalized(batch.pixels, self.data.image)), batch.pixels.cpu().numpy()

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """Exact answers, without regard to case and punctuation."""
        examples = self.data.examples(split, limit)
        answers = self.greedy_answers(model, examples, search=search)
        right = sum(plain(answer) == plain(example.wanted) for answer, example in zip(answers, examples, strict=True))
        return {"exact": 100 * right / len(examples), "examples": len(examples)}

    # A look inside

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[ImageQuestion], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The label of a row is the token that was read there, or, in an answer, the token that it produced."""
        device, found, together = next(model.parameters()).device, list[Record](), self._watched_together
        told = self._told(model, inputs, outputs, search or self.run.search)
        for start in range(0, len(inputs), together):
            some = slice(start, start + together)
            with watch(model, only, heads=heads) as seen:
                self._logits(model, self.data.batch(inputs[some], told[some]).to(device))
            axes = [self._axes(cast(MixedDecoder, model), given, row)
                    for given, row in zip(inputs[some], told[some], strict=True)]
            found += records(seen, [dict.fromkeys(seen, pair) for pair in axes])
        return found

    def _axes(self, model: MixedDecoder, given: ImageQuestion, row: MixedRow) -> AxisPair:
        grid, tokens, at = grid_of(model.images, given.image, self.data.image), self.data.tokens, row.image_at
        start = list(row.ids).index(tokens.start)
        read, made = tokens.pieces(row.ids[:-1]), tokens.pieces(row.ids)
        return AxisPair(_mixed_axis([*read[:start], *made[start + 1 :]], at, grid), _mixed_axis(read, at, grid))

    @property
    def _watched_together(self) -> int:
        return max(1, MAX_WATCHED_PLACES // self.data.image.places)

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[ImageQuestion], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        tokens, found, device = self.data.tokens, list[Output](), next(model.parameters()).device
        told = self._told(model, inputs, outputs, search or self.run.search)
        for given, row in zip(inputs, told, strict=True):
            batch = self.data.batch([given], [row]).to(device)
            written = batch.write[0] != IGNORED
            answer = batch.write[0][written].tolist()
            logits = self._logits(model, batch)[0][written]
            found.append(Output(tokens.decode([answer[:-1]])[0], token_alternatives(
                tokens, logits, answer, best=best, never=never(tokens, logits.shape[1]))))
        return found

    def _told(self, model: nn.Module, inputs: Sequence[ImageQuestion], outputs: Sequence[str] | None,
              how: Search) -> list[MixedRow]:
        """Each question with its output, or with the tokens of the model's own answer."""
        if outputs is not None:
            return self.data.rows([given.question for given in inputs], outputs)
        told = list[MixedRow]()
        for given, row in zip(inputs, self._prompts(inputs), strict=True):
            answer = refuse_none(self._generate(cast(MixedDecoder, model), [given], [row], how)[0])[0]
            told.append(MixedRow([*row.ids, *answer.tokens, self.data.tokens.end], row.image_at))
        return told

    def probe(self, model: nn.Module) -> Probe:
        """A probe from images of the validation set, or from noise if the run has no data."""
        mixed, tokens, image = cast(MixedDecoder, model), self.data.tokens, self.data.image
        split = next(iter(self.data.asked), None)
        if split is None:
            shape = (MAX_PROBE_ROWS, 1 if image.grey else 3, image.size, image.size)
            bytes_ = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
            rows = made_up(len(tokens))[:MAX_PROBE_ROWS]
        else:
            asked = self.data.of(split)[:MAX_PROBE_ROWS]
            bytes_ = self.data.pixels[split].take(np.array([one.image for one in asked], np.int64))
            rows = [[*row.ids[:-1]] for row in self.data.rows([one.question for one in asked],
                                                              [one.answer for one in asked])]
        pixels = normalized(torch.from_numpy(np.ascontiguousarray(bytes_)), image)

        def prompt(read: Padded) -> MixedPrompt:
            spans = torch.ones(len(read.values), mixed.places, dtype=torch.long, device=read.values.device)
            return mixed.mix(torch.zeros_like(spans), spans, read.values)

        def logits(read: Padded, written: Int[Tensor, "rows written"]) -> Float[Tensor, "rows places classes"]:
            spans = torch.nn.functional.pad(prompt(read).spans, (0, written.shape[1]))
            whole = torch.nn.functional.pad(written, (mixed.places, 0))
            return mixed.logits(mixed(whole, spans, read.values)[:, mixed.places :])

        return Probe(
            model=mixed, inputs=list(pixels), pad=None, rows=[row[:MAX_PROBE_LENGTH] for row in rows],
            token_pad=tokens.pad, end=tokens.end, decode=lambda ids: tokens.decode([ids])[0], writer=mixed, blind=None,
            logits=logits, remember=prompt)


def _mixed_axis(pieces: Sequence[str], at: int, grid: Grid) -> Mixed:
    before, after = tuple(pieces[:at]), tuple(pieces[at:])
    return Mixed((*((before,) if before else ()), grid, *((after,) if after else ())))
