"""translate: pairs of texts to an encoder-decoder that translates one into the other."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_LENGTH, Probe, made_up, of_all_lengths, of_encoder_decoder
from regard.data.reader import TextReader
from regard.data.text.parallel_corpus import ParallelBatch, ParallelCorpus, round_up
from regard.generate.answers import Answers, never
from regard.generate.beam import Hypothesis
from regard.look.choices import Output
from regard.look.outputs import records, token_alternatives
from regard.look.record import AxisPair, Record
from regard.look.watch import watch
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.loss import cross_entropy
from regard.nn.mask import Mask
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task, Term, answer_of, attention_terms, refuse_none

__all__ = ["Translate"]

PROBE_CANDIDATES = 64  # examples from which those for the checks are chosen


class Translate(Task[str, ParallelBatch]):
    """Text to text."""

    focus = "*.cross"
    inputs = TextReader()

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: ParallelCorpus = ParallelCorpus(run)
        self.answers = Answers()

    # Batches -> loss

    def build(self, sizes: Sizes) -> EncoderDecoder:
        tower = self.run.model
        if tower.tied == "all" and not self.run.tokens.joint:
            tower = replace(tower, tied="output")  # two vocabularies of the same size: an id is another word in each
        return translator(tower, sources=sizes["sources"], targets=sizes["targets"])

    def _states(self, model: nn.Module, batch: ParallelBatch) -> Tensor:
        return model(batch.source, batch.read, mask=self._mask(batch))  # type: ignore[no-any-return]

    def _mask(self, batch: ParallelBatch) -> Mask:
        return Mask(keys=batch.source != self.data.source_tokens.pad)

    def loss(self, model: nn.Module, batch: ParallelBatch) -> Loss:
        model, pad, how = cast(EncoderDecoder, model), self.data.target_tokens.pad, self.run.train
        states, more = model.with_terms(batch.source, batch.read, batch.write, ignore=pad, mask=self._mask(batch))
        total, plain = cross_entropy(states.flatten(0, 1), model.decoder.output.weight, batch.write.flatten(),
                                     ignore=pad, smoothing=how.label_smoothing)
        return Term("loss", total), Term("nll", plain, weight=0.0), *attention_terms(more, how)

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[ParallelBatch]:
        return self.data.batches(inputs, outputs)

    def output_rows(self, batch: ParallelBatch, rows: int) -> range:
        return range(rows - batch.counts["nll"], rows)

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: ParallelBatch) -> Bool[Tensor, "rows target"]:
        tokens = self.data.target_tokens
        logits = cast(EncoderDecoder, model).logits(self._states(model, batch))
        # From the end on: padding and start, which no answer has, come before it.
        return logits[..., tokens.end : len(tokens)].argmax(-1) + tokens.end == batch.write

    # Inputs -> answers

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """The best translation of each text, in batches of similar lengths; an empty text stays empty."""
        rows = self.data.encode(self.data.source_tokens, inputs, "input")
        order = [i for i in np.argsort(rows.lengths, kind="stable")[::-1].tolist() if inputs[i].strip()]
        answers = [Answer("") for _ in inputs]
        how = search or self.run.search
        # Batch only texts with the same limit: the length of an answer must not depend on the rest of the batch.
        for longest, alike in itertools.groupby(order, lambda i: min(how.max_tokens, _longest(len(rows[i])))):
            while chosen := list(itertools.islice(alike, how.batch)):
                found = self._generate(cast(EncoderDecoder, model), [rows[i] for i in chosen], longest, how)
                for place, hypotheses in zip(chosen, found, strict=True):
                    answers[place] = answer_of(hypotheses, self.data.target_tokens, how)
        return answers

    @torch.no_grad()
    def _generate(
        self, model: EncoderDecoder, rows: Sequence[NDArray[np.int32]], longest: int, how: Search
    ) -> list[list[Hypothesis]]:
        # An answer is about as long as its source.
        self.answers.refuse(model, self.run.model, how, rows=len(rows), tokens=min(longest, max(map(len, rows))),
                            longest=longest)
        source = _pad(rows, self.data.source_tokens.pad).to(next(model.parameters()).device)
        memory = self.answers.read(model, source, source != self.data.source_tokens.pad)
        return self.answers.find(model, memory, how, tokens=self.data.target_tokens, longest=longest,
                                 seeds=[row.tolist() for row in rows])

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        examples = self.data.examples(split, limit)
        answers, targets = self.greedy_answers(model, examples, search=search), [example.wanted for example in examples]
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

    # A look inside

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        told = self._with_outputs(model, inputs, outputs, search or self.run.search)
        end = self.data.target_tokens.end
        sources, targets = [source for source, _ in told], [[*target, end] for _, target in told]
        device, found = next(model.parameters()).device, dict[int, Record]()
        for places, batch in self.data.by_length(sources, targets):
            with watch(model, only, heads=heads) as seen:
                self._states(model, batch.to(device))
            axes = [self._axes(list(seen), sources[place], targets[place]) for place in places]
            found |= dict(zip(places, records(seen, axes), strict=True))
        return [found[place] for place in range(len(told))]

    def _axes(self, sites: Sequence[str], source: list[int], target: list[int]) -> dict[str, AxisPair]:
        """The axes of each site: the rows and columns of one sentence, without padding."""
        tokens = self.data.target_tokens
        words, written = tuple(self.data.source_tokens.pieces(source)), tuple(tokens.pieces(target))
        read = tuple(tokens.pieces([tokens.start, *target[:-1]]))
        return {site: AxisPair(words, words) if site.startswith("encoder")
                else AxisPair(written, words if site.endswith("cross") else read) for site in sites}

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        return [self._weighed(cast(EncoderDecoder, model), source, target, best)
                for source, target in self._with_outputs(model, inputs, outputs, search or self.run.search)]

    def _weighed(self, model: EncoderDecoder, source: list[int], target: list[int], best: int) -> Output:
        device, tokens = next(model.parameters()).device, self.data.target_tokens
        read = torch.tensor([[tokens.start, *target]], device=device)
        logits = model.logits(model(torch.tensor([source], device=device), read))[0]
        return Output(tokens.decode([target])[0], token_alternatives(tokens, logits, [*target, tokens.end], best=best,
                                                          never=never(tokens, logits.shape[1])))

    def _with_outputs(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None,
              how: Search) -> list[tuple[list[int], list[int]]]:
        """Each input with its output, or with the exact tokens of the model's own answer, not its text read again."""
        sources = self.data.encode(self.data.source_tokens, inputs, "input")
        if outputs is not None:
            targets = self.data.target_tokens.encode(list(outputs))
        else:
            targets = []
            for row in sources:
                longest = min(how.max_tokens, _longest(len(row)))
                found = self._generate(cast(EncoderDecoder, model), [row], longest, how)[0]
                targets.append(refuse_none(found)[0].tokens)
        return [(source.tolist(), target) for source, target in zip(sources, targets, strict=True)]

    def probe(self, model: nn.Module) -> Probe:
        """A probe from examples of all lengths of the validation set, or from made-up ones if the run has no data."""
        split = next(iter(self.data.pairs), None)
        examples = [] if split is None else self.data.examples(split, PROBE_CANDIDATES)
        chosen = of_all_lengths([one for one in examples if one.input.strip() and one.wanted.strip()],
                                length=lambda one: len(one.input))
        sources = self.data.source_tokens.encode([example.input for example in chosen])
        targets = self.data.target_tokens.encode([example.wanted for example in chosen])
        start, end = self.data.target_tokens.start, self.data.target_tokens.end
        return of_encoder_decoder(
            cast(EncoderDecoder, model), end=end, pad=self.data.source_tokens.pad,
            token_pad=self.data.target_tokens.pad, decode=lambda ids: self.data.target_tokens.decode([ids])[0],
            inputs=[[*row[:MAX_PROBE_LENGTH], end] for row in sources or made_up(len(self.data.source_tokens))],
            rows=[[start, *row[:MAX_PROBE_LENGTH]] for row in targets or made_up(len(self.data.target_tokens))])


def _pad(rows: Sequence[NDArray[np.int32]], pad: int) -> Int[Tensor, "rows length"]:
    """Pad to a multiple of 8, so that few shapes occur."""
    padded = np.full((len(rows), round_up(max(len(row) for row in rows), 8)), pad, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)


def _longest(length: int) -> int:
    """The limit for an answer: a translation is at most twice as long, and a model that never ends must be stopped.

    The length is rounded up to a power of two, so that many sources have the same.

    >>> [_longest(length) for length in (1, 8, 9, 16, 17)]
    [32, 32, 48, 48, 80]
    """
    return 16 + 2 * max(8, 1 << (length - 1).bit_length())
