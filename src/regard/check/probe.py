"""Probe: a model as the checks see it, whatever its task: rows of ids, and the ways in which it reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.text.masked_text import MaskedText
from regard.generate.steps import Steps
from regard.generate.text import Decode
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.writes import Writes
from regard.nn.mask import Mask

__all__ = ["MAX_PROBE_LENGTH", "MAX_PROBE_ROWS", "Probe", "Rows", "excerpts", "made_up", "of_decoder", "of_encoder",
           "of_encoder_decoder"]

MAX_PROBE_ROWS, MAX_PROBE_LENGTH = 8, 24  # rows, and tokens of each: enough for every shape, and a matter of seconds

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A model and its inputs. A part that the model does not have is None, and its checks are skipped."""

    model: nn.Module
    rows: Rows
    """The rows to read; a model that writes reads them token by token, from the token before the answer."""
    sources: Rows
    """The sources, read at once: one for each row, empty if the model has none."""
    pad: int
    logits: Callable[[Int[Tensor, "rows length"], Int[Tensor, "rows source"]], Float[Tensor, "rows places classes"]]
    """The logits of rows and their sources, in one pass."""
    blind: Callable[[Int[Tensor, "rows length"], Int[Tensor, "1 length"]], Float[Tensor, "rows length width"]] | None
    """The states of tokens that all see one another, at the given positions."""
    writer: Steps | None = None
    """The model, where it answers token by token."""
    remember: Callable[[Int[Tensor, "rows source"]], object] = lambda source: None
    """The memory of the sources, for a model that writes."""
    end: int | None = None
    """The id that ends a writer's answer."""
    decode: Decode | None = None
    """The text of a writer's tokens."""

    def padded(self, rows: Rows) -> Int[Tensor, "rows length"]:
        longest = max(map(len, rows))
        return self._tensor([[*row, *[self.pad] * (longest - len(row))] for row in rows])

    def filled(self, rows: Rows) -> Int[Tensor, "rows length"]:
        """Of one length without padding: shorter rows begin again."""
        longest = max(map(len, rows))
        return self._tensor([[row[place % len(row)] for place in range(longest)] for row in rows])

    def _tensor(self, rows: Rows) -> Int[Tensor, "rows length"]:
        return torch.tensor(rows, dtype=torch.long, device=next(self.model.parameters()).device)


def of_encoder_decoder(model: EncoderDecoder, rows: Rows, sources: Rows, *, pad: int, end: int,
                       decode: Decode | None = None) -> Probe:
    def seen(source: Int[Tensor, "rows source"]) -> Mask:
        return Mask(keys=source != pad)

    return Probe(
        model=model, rows=rows, sources=sources, pad=pad, end=end, decode=decode, writer=model,
        logits=lambda read, source: model.logits(model(source, read, mask=seen(source))),
        blind=None if model.encoder.ordered else lambda tokens, here: model.encoder(
            model.encoder.embed(tokens, here), positions=here),
        remember=lambda source: model.encode(source, seen(source)))


def of_decoder(model: Writes, rows: Rows, *, pad: int, end: int, decode: Decode | None = None) -> Probe:
    return Probe(
        model=model, rows=rows, sources=[[] for _ in rows], pad=pad, end=end, decode=decode, writer=model,
        logits=lambda read, _: model.logits(model(model.embed(read))),
        blind=None if model.ordered else lambda tokens, here: model(
            model.embed(tokens, here), mask=Mask(), positions=here))


def of_encoder(
    model: nn.Module, encoder: Encoder, rows: Rows, *, pad: int,
    logits: Callable[[Int[Tensor, "rows length"]], Float[Tensor, "rows places classes"]],
) -> Probe:
    return Probe(
        model=model, rows=rows, sources=[[] for _ in rows], pad=pad,
        logits=lambda read, _: logits(read),
        blind=None if encoder.ordered else lambda tokens, here: encoder(
            encoder.embed(tokens, here), positions=here))


def excerpts(data: MaskedText) -> list[list[int]]:
    """Text of all lengths that is not trained on; or made up, where a run has come without its data."""
    tokens, rows = data.tokens, made_up(len(data.tokens))
    if found := data.excerpts([len(row) for row in rows]):
        rows = [own or row for own, row in zip(found, rows, strict=True)]
    return [[tokens.start, *row[: MAX_PROBE_LENGTH - 2], tokens.end] for row in rows]


def made_up(vocabulary: int) -> list[list[int]]:
    """Rows of ids, for a run that has come without its data."""
    random = torch.Generator().manual_seed(0)
    lengths = range(2, MAX_PROBE_LENGTH, MAX_PROBE_LENGTH // MAX_PROBE_ROWS)
    return [torch.randint(3, vocabulary, (length,), generator=random).tolist() for length in lengths]
