"""detect: raw text to an encoder that finds replaced tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.check.probe import Probe, excerpts, of_encoder
from regard.data.batch import IGNORED, BatchSpec
from regard.data.reader import TextReader
from regard.data.text.masked_text import MaskedBatch, MaskedText, at
from regard.data.text.rows import by_length, encoder_mask, padded
from regard.generate.text_vectors import vectors
from regard.look.choices import Choice, Output
from regard.look.encoder_states import attention
from regard.look.record import Record
from regard.models.electra import Detector
from regard.models.masked_lm import MaskedLM
from regard.nn.loss import cross_entropy
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Example, Loss, Scores, Sizes, Task, Term

__all__ = ["Detect", "drawn"]

MARKS = "[[", "]]"  # around replaced words
DRAWN = {"cpu": 2**21, "cuda": 2**27}  # logits to sample from at once
TRIED = 100  # tokens to search for a whole word
REPLACED = "(another)"  # the detector's answer for a replaced word


class Filled(NamedTuple):
    """A batch after the generator has filled its blanks."""

    tokens: Int[Tensor, "rows length"]
    replaced: Bool[Tensor, "rows length"]
    """Places whose filling differs from the original; a right filling counts as original (Clark et al. 2020, 3.1)."""
    features: Float[Tensor, "places vectors"]
    """The input of the generator's output layer, blank after blank."""


class Word(NamedTuple):
    text: str
    places: range
    """Of its tokens in the row."""


class ReplacedWords(MaskedText):
    """Raw text, and texts with one replaced word as its examples."""

    def collate(self, split: str, chosen: BatchSpec) -> MaskedBatch:
        """The detector judges every token, including the start and the end."""
        batch = super().collate(split, chosen)
        return replace(batch, counts={**batch.counts, "detector": int((batch.tokens != self.tokens.pad).sum())})

    def words(self, row: Sequence[int]) -> list[Word]:
        """The words of a row between its start and its end, each with the space before it."""
        starts = np.flatnonzero(self.masking_policy.words.starts(np.array([row[:-1]]))[0])[1:].tolist()
        spans = [range(*ends) for ends in pairwise([*starts, len(row) - 1])]
        texts = [self.masking_policy.words.text([row[place] for place in span]) for span in spans]
        return [Word(text if number else text.removeprefix(" "), span)
                for number, (text, span) in enumerate(zip(texts, spans, strict=True))]

    def asked(self, texts: Sequence[str], random: np.random.Generator) -> Example[str] | None:
        """One word of a text is replaced by another."""
        [row] = self.rows(["".join(texts)])
        words = [word.text for word in self.words(row)]
        if not (letters := [place for place, word in enumerate(words) if word.strip(" ").isalpha()]):
            return None
        place, ids = int(random.choice(letters)), self.masking_policy.ordinary
        written = self.masking_policy.words.written
        others = [word for word in (written[id].strip(" ") for id in random.permutation(ids)[:TRIED])
                  if word.isalpha() and word != words[place].strip(" ")]
        if not others:
            return None
        before, new = "".join(words[:place]), words[place].replace(words[place].strip(" "), others[0])
        text = "".join([before, new, *words[place + 1 :]])
        # Tokenize again: the other may be more than one token.
        now = [word.text for word in self.words(self.rows([text])[0])]
        ends = np.cumsum([0, *map(len, now)]).tolist()
        if "".join(now) != text or len(before) not in ends[:-1]:
            return None
        marked = ends.index(len(before))
        return Example(text, "".join([*now[:marked], _marked(now[marked]), *now[marked + 1 :]]))


class Detect(Task[str, MaskedBatch]):
    """A small generator fills the blanks, and a detector finds what it filled wrongly (ELECTRA, Clark et al. 2020)."""

    inputs = TextReader()
    focus = acting = "encoder.*"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.masking.next_sentence:
            raise UserError("masking.next_sentence: has no effect on detect, which reads one text at a time; only mask "
                            "uses it; remove it")
        self.data: ReplacedWords = ReplacedWords(run)

    # Rows -> loss

    def build(self, sizes: Sizes) -> Detector:
        return Detector(self.run.model, vocabulary=sizes["vocabulary"], generator=self.run.masking.generator)

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Loss:
        """Both learn from the same batch (eq. 1); the detector's gradient does not reach the generator."""
        detector = cast(Detector, model)
        if batch.replaced is not None:
            total = _errors(self._logits(detector, batch.tokens), batch.replaced > 0, batch.replaced != IGNORED)
            return Term("loss", total), Term("nll", total.detach(), weight=0.0)
        filled, output = self._filled(detector, batch), _generator(detector).words.output
        total, plain = cross_entropy(filled.features, output.weight, batch.targets.flatten(), ignore=IGNORED,
                                     smoothing=self.run.train.label_smoothing, bias=output.bias)
        found = _errors(self._logits(detector, filled.tokens, like=batch.tokens), filled.replaced,
                        batch.tokens != self.data.tokens.pad)
        return (Term("loss", total), Term("nll", plain, weight=0.0),
                Term("detector", found, weight=self.run.masking.detector_weight))

    def _filled(self, model: Detector, batch: MaskedBatch, random: torch.Generator | None = None) -> Filled:
        generator = _generator(model)
        mask = encoder_mask(batch.tokens, pad=self.data.tokens.pad, window=generator.encoder.window)
        features = generator.words.features(at(model.fill(batch.tokens, mask=mask), batch.places))
        with torch.no_grad():
            new = drawn(features, generator.words.output, random).view_as(batch.places)
        asked = batch.targets != IGNORED
        # Unused places are those of the first token, which is overwritten with itself.
        new = new.where(asked, batch.tokens.gather(1, batch.places))
        replaced = torch.zeros_like(batch.tokens, dtype=torch.bool)
        return Filled(batch.tokens.scatter(1, batch.places, new),
                      replaced.scatter(1, batch.places, asked & (new != batch.targets)), features)

    def _logits(self, model: Detector, tokens: Int[Tensor, "rows length"], *,
                like: Int[Tensor, "rows length"] | None = None) -> Float[Tensor, "rows length"]:
        """The logit of each token for having been replaced; `like`: the original rows, since padding can be sampled."""
        mask = encoder_mask(tokens if like is None else like, pad=self.data.tokens.pad, window=model.encoder.window)
        logits = model(tokens, mask=mask)
        return logits.float()  # type: ignore[no-any-return]

    @torch.no_grad()
    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """Every row once, always with the same blanks and the same samples. `limit` counts rows."""
        detector, device = cast(Detector, model), next(model.parameters()).device
        generated, detected = torch.zeros(3, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
        random = torch.Generator(device).manual_seed(self.run.seed)  # torch's default generator is shared
        for batch in self.data.scored(split, limit, device):
            filled, real = self._filled(detector, batch, random), batch.tokens != self.data.tokens.pad
            asked, targets = batch.targets.flatten() != IGNORED, batch.targets.flatten()
            said = _generator(detector).words.output(filled.features).float()[asked]
            generated += _sums(F.cross_entropy(said, targets[asked], reduction="sum"),
                               (said.argmax(-1) == targets[asked]).sum(), asked.sum())
            logits = self._logits(detector, filled.tokens, like=batch.tokens)
            found, wrong = (logits > 0) & real, filled.replaced
            detected += _sums(_errors(logits, wrong, real), ((found == wrong) & real).sum(), real.sum(),
                              (found & wrong).sum(), found.sum(), wrong.sum())
        loss, right, blanks = generated.tolist()
        if not blanks:
            raise self.data.nothing_asked(split)
        errors, agree, tokens, both, marked, replaced = detected.tolist()
        return {"loss": loss / blanks, "perplexity": math.exp(min(700.0, loss / blanks)),
                "generator_accuracy": right / blanks, "detector_loss": errors / tokens,
                "detector_accuracy": agree / tokens, "precision": both / max(1.0, marked),
                "recall": both / max(1.0, replaced), "replaced": replaced / tokens,
                "blanks": int(blanks), "tokens": int(tokens)}

    # Texts -> replaced words

    @torch.no_grad()
    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """Each text with [[marks]] around words that were probably replaced, and the probability of each."""
        answers, rows, detector = [Answer("") for _ in inputs], self.data.rows(inputs), cast(Detector, model)
        for places, tokens in by_length(rows, pad=self.data.tokens.pad, device=next(model.parameters()).device):
            for place, chances in zip(places, self._logits(detector, tokens).sigmoid().tolist(), strict=True):
                row = rows[place]
                choices = [Choice(piece, chance, ()) for piece, chance in zip(self.data.tokens.pieces(row), chances,
                                                                              strict=False)]
                text = "".join(_marked(word.text) if word.text.strip() and max(chances[i] for i in word.places) > 0.5
                               else word.text for word in self.data.words(row))
                answers[place] = Answer(text, choices=tuple(choices[1:-1]))
        return answers

    # Examples, and given outputs

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[MaskedBatch]:
        """Batches in which every token counts: marked or not."""
        rows = self.data.rows(inputs)
        given = [self._given(row, output) for row, output in zip(rows, outputs, strict=True)]
        for places, tokens in by_length(rows, pad=self.data.tokens.pad, device=torch.device("cpu")):
            none = torch.zeros(len(places), 1, dtype=torch.long)
            replaced = padded([given[i] for i in places], pad=IGNORED)
            count = int((replaced != IGNORED).sum())
            yield MaskedBatch({"loss": count, "nll": count}, tokens, none, none + IGNORED, replaced=replaced)

    def _given(self, row: Sequence[int], output: str) -> list[int]:
        """Which tokens of a row an output marks."""
        found, left = [0] * len(row), output
        for word in self.data.words(row):
            is_marked = left.startswith(_marked(word.text))
            text = _marked(word.text) if is_marked else word.text
            if not left.startswith(text):
                raise UserError(f"{output}: is not the text with {' '.join(MARKS)} around some of its words")
            found[word.places.start : word.places.stop] = [int(is_marked)] * len(word.places)
            left = left[len(text) :]
        return found

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: MaskedBatch) -> Bool[Tensor, "rows length"]:
        assert batch.replaced is not None
        found = self._logits(cast(Detector, model), batch.tokens) > 0
        return (found == (batch.replaced > 0)) & (batch.replaced != IGNORED)

    # Vectors, and a look inside

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self.data.rows(inputs), pad=self.data.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the tokens in the detector; it does not depend on the marks."""
        return attention(model, self.data.tokens, self.data.rows(inputs), only=only, heads=heads)

    @torch.no_grad()
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """For each token: original or replaced."""
        device, found = next(model.parameters()).device, list[Output]()
        answers = outputs or [answer.text for answer in self.predict(model, inputs)]
        for row, text in zip(self.data.rows(inputs), answers, strict=True):
            chances = self._logits(cast(Detector, model), torch.tensor([row], device=device))[0].sigmoid().tolist()
            found.append(Output(text, tuple(
                Choice(piece, 1 - chance, tuple(sorted([(piece, 1 - chance), (REPLACED, chance)], key=lambda x: -x[1])))
                for piece, chance in zip(self.data.tokens.pieces(row), chances, strict=True))))
        return found

    def probe(self, model: nn.Module) -> Probe:
        detector = cast(Detector, model)
        rows = excerpts(self.data.tokens, self.data.excerpts)
        return of_encoder(model, detector.encoder, rows, pad=self.data.tokens.pad,
                          logits=lambda read: self._logits(detector, read.values)[..., None])


def drawn(features: Float[Tensor, "places vectors"], output: nn.Linear,
          random: torch.Generator | None = None) -> Int[Tensor, " places"]:
    """Sample tokens: the largest of softmax(logits) / −log(u) is a sample, with u uniform between 0 and 1.

    Absent, `random` is torch's default generator, as for everything random in training.
    """
    rows = max(1, DRAWN.get(features.device.type, 2**24) // output.out_features)
    found = []
    for piece in features.split(rows):
        logits = output(piece).float()
        even = torch.rand(logits.shape, generator=random, device=logits.device)
        found.append((logits - even.log().neg().clamp(min=1e-20).log()).argmax(-1))
    return torch.cat(found)


def _generator(model: Detector) -> MaskedLM:
    if model.generator is None:
        raise UserError("the detector was converted without its generator; it can find replaced words, but it can "
                        "neither be trained nor scored")
    return model.generator


def _errors(logits: Float[Tensor, "rows length"], wrong: Bool[Tensor, "rows length"],
            real: Bool[Tensor, "rows length"]) -> Float[Tensor, ""]:
    """The sum of −log of the probability of the truth, over the real tokens."""
    return (F.binary_cross_entropy_with_logits(logits, wrong.float(), reduction="none") * real).sum()


def _sums(*values: Tensor) -> Float[Tensor, " values"]:
    return torch.stack([value.double() for value in values]).cpu()


def _marked(word: str) -> str:
    """The word with marks around it; a space stays outside."""
    bare = word.lstrip(" ")
    return f"{word[: len(word) - len(bare)]}{MARKS[0]}{bare}{MARKS[1]}"
