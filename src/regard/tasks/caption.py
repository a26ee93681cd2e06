"""caption: images to an encoder-decoder that tells what is in them."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_LENGTH, MAX_PROBE_ROWS, Probe, made_up, of_encoder_decoder
from regard.data.images.augment import augmented
from regard.data.images.captioned_images import CaptionBatch, CaptionedImages
from regard.data.images.decode import ImageFile
from regard.data.images.pixels import centred, normalized
from regard.data.images.reader import ImageReader
from regard.data.images.seeds import pixel_seeds
from regard.generate.answers import Answers, never
from regard.generate.beam import Hypothesis
from regard.look.axes import AxisPair, Grid
from regard.look.caption_scores import caption_scores
from regard.look.choices import Output
from regard.look.outputs import records, token_alternatives
from regard.look.record import Record
from regard.look.watch import watch
from regard.models.build import captioner
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.loss import cross_entropy
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task, Term, answer_of, attention_terms, refuse_none
from regard.tasks.classify.images import Shifted, grid_of

__all__ = ["Caption"]

MAX_WATCHED_PLACES = 1 << 9  # of the images whose attention is recorded together


class Captions(CaptionedImages):
    """Images with captions, also changed ones."""

    def shift(self, split: str, how: str, *, seed: int) -> str:
        name = f"{split} {how}"
        self.add(name, Shifted(self.pixels[split], how, seed), self.of(split))
        return name


class Caption(Task[ImageFile, CaptionBatch]):
    """Image to text."""

    focus = "*.cross"
    inputs = ImageReader()

    def __init__(self, run: Run) -> None:
        if run.model.image is None:
            raise UserError("caption: the model must read images, and model.image is absent; set model.image.size, or "
                            "take model.preset=captioner")
        super().__init__(run)
        self.data: Captions = Captions(run)
        self.answers = Answers()

    # Batches -> loss

    def build(self, sizes: Sizes) -> EncoderDecoder:
        return captioner(self.run.model, targets=sizes["targets"])

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        model, pad, how = cast(EncoderDecoder, model), self.data.tokens.pad, self.run.train
        pixels = self._augmented(batch) if model.training else self._normalized(batch.pixels)
        states, more = model.with_terms(pixels, batch.read, batch.write, ignore=pad)
        total, plain = cross_entropy(states.flatten(0, 1), model.decoder.output.weight, batch.write.flatten(),
                                     ignore=pad, smoothing=how.label_smoothing)
        return Term("loss", total), Term("nll", plain, weight=0.0), *attention_terms(more, how)

    def _augmented(self, batch: CaptionBatch) -> Float[Tensor, "rows channels size size"]:
        changed = augmented(batch.pixels, batch.seeds, how=self.run.train.augment, image=self.data.image)
        return centred(changed.pixels, self.data.image)

    def _normalized(self, pixels: UInt8[Tensor, "rows channels size size"]) -> Float[Tensor, "rows channels size size"]:
        return normalized(pixels, self.data.image)

    def _logits(self, model: nn.Module, batch: CaptionBatch) -> Float[Tensor, "rows target vocabulary"]:
        whole = cast(EncoderDecoder, model)
        return whole.logits(whole(self._normalized(batch.pixels), batch.read))

    def batches(self, inputs: Sequence[ImageFile], outputs: Sequence[str]) -> Iterator[CaptionBatch]:
        return self.data.batches(inputs, outputs, rows=self._watched_together)

    def output_rows(self, batch: CaptionBatch, rows: int) -> range:
        return range(max(0, rows - batch.counts["nll"]), rows)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: CaptionBatch) -> Bool[Tensor, "rows target"]:
        tokens = self.data.tokens
        # From the end on: padding and start, which no answer has, come before it.
        return self._logits(model, batch)[..., tokens.end : len(tokens)].argmax(-1) + tokens.end == batch.write

    # Inputs -> answers

    def predict(self, model: nn.Module, inputs: Sequence[ImageFile], *, search: Search | None = None) -> list[Answer]:
        how, found = search or self.run.search, list[Answer]()
        for start in range(0, len(inputs), how.batch):
            answers = self._generate(cast(EncoderDecoder, model), inputs[start : start + how.batch], how)
            found += [answer_of(hypotheses, self.data.tokens, how) for hypotheses in answers]
        return found

    @torch.no_grad()
    def _generate(self, model: EncoderDecoder, inputs: Sequence[ImageFile], how: Search) -> list[list[Hypothesis]]:
        longest = min(how.max_tokens, self.run.data.max_tokens)
        self.answers.refuse(model, self.run.model, how, rows=len(inputs), tokens=1, longest=longest)
        bytes_ = self.data.read(inputs)
        pixels = self._normalized(torch.from_numpy(bytes_).to(next(model.parameters()).device))
        return self.answers.find(model, self.answers.read(model, pixels), how, tokens=self.data.tokens, longest=longest,
                                 seeds=[pixel_seeds(each) for each in bytes_])

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        answers = self.greedy_answers(model, self.data.examples(split, limit), search=search)
        return caption_scores(answers, [one.captions for one in self.data.of(split)[:limit]])

    # A look inside

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[ImageFile], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        told = self._told(model, inputs, outputs, search or self.run.search)
        device, found, together = next(model.parameters()).device, list[Record](), self._watched_together
        encoder = cast(EncoderDecoder, model).encoder
        for start in range(0, len(inputs), together):
            some = slice(start, start + together)
            targets = [[*target, self.data.tokens.end] for target in told[some]]
            with watch(model, only, heads=heads) as seen:
                self._logits(model, self.data.batch(inputs[some], targets).to(device))
            grids = [grid_of(encoder.inputs, given, self.data.image) for given in inputs[some]]
            found += records(seen, [self._axes(list(seen), grid, target)
                                    for grid, target in zip(grids, targets, strict=True)])
        return found

    def _axes(self, sites: Sequence[str], grid: Grid, target: list[int]) -> dict[str, AxisPair]:
        tokens = self.data.tokens
        written, read = tuple(tokens.pieces(target)), tuple(tokens.pieces([tokens.start, *target[:-1]]))
        return {site: AxisPair(grid, grid) if site.startswith("encoder")
                else AxisPair(written, grid if site.endswith("cross") else read) for site in sites}

    @property
    def _watched_together(self) -> int:
        return max(1, MAX_WATCHED_PLACES // self.data.image.places)

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[ImageFile], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        tokens, found, device = self.data.tokens, list[Output](), next(model.parameters()).device
        told = self._told(model, inputs, outputs, search or self.run.search)
        for given, target in zip(inputs, told, strict=True):
            written = [*target, tokens.end]
            logits = self._logits(model, self.data.batch([given], [written]).to(device))[0]
            found.append(Output(tokens.decode([target])[0], token_alternatives(
                tokens, logits, written, best=best, never=never(tokens, logits.shape[1]))))
        return found

    def _told(self, model: nn.Module, inputs: Sequence[ImageFile], outputs: Sequence[str] | None,
              how: Search) -> list[list[int]]:
        """The tokens of each output, or of the model's own answer."""
        if outputs is not None:
            return self.data.tokens.encode(list(outputs))
        answers = [self._generate(cast(EncoderDecoder, model), [given], how)[0] for given in inputs]
        return [refuse_none(answer)[0].tokens for answer in answers]

    def probe(self, model: nn.Module) -> Probe:
        """A probe from images of the validation set, or from noise if the run has no data."""
        split, tokens = next(iter(self.data.named), None), self.data.tokens
        if split is None:
            channels, size = 1 if self.data.image.grey else 3, self.data.image.size
            noise = np.random.default_rng(0).integers(0, 256, (MAX_PROBE_ROWS, channels, size, size), dtype=np.uint8)
            bytes_, rows = noise, made_up(len(tokens))[:MAX_PROBE_ROWS]
        else:
            named = self.data.of(split)[:MAX_PROBE_ROWS]
            bytes_ = self.data.pixels[split].take(np.arange(len(named)))
            rows = tokens.encode([one.captions[0] for one in named])
        pixels = self._normalized(torch.from_numpy(np.ascontiguousarray(bytes_)))
        return of_encoder_decoder(
            cast(EncoderDecoder, model), list(pixels), [[tokens.start, *row[:MAX_PROBE_LENGTH]] for row in rows],
            pad=None, token_pad=tokens.pad, end=tokens.end, decode=lambda ids: tokens.decode([ids])[0])
