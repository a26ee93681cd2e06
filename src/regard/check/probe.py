"""Probe: a model as the checks see it, whatever its task: some inputs, and the ways in which it reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.data.tokenizer import Tokenizer
from regard.generate.detokenize import Decode
from regard.generate.steps import Steps
from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.mask import Mask

__all__ = ["MAX_PROBE_LENGTH", "MAX_PROBE_ROWS", "Padded", "Probe", "Rows", "excerpts", "made_up", "of_all_lengths",
           "of_decoder", "of_encoder", "of_encoder_decoder"]

MAX_PROBE_ROWS, MAX_PROBE_LENGTH = 8, 24  # rows, and places of each: enough for every shape, and a matter of seconds

T = TypeVar("T")
Rows = Sequence[Sequence[int]]
"""Token ids."""


@dataclass(frozen=True)
class Padded:
    """Inputs in one tensor, and which of its places belong to them."""

    values: Shaped[Tensor, "rows length ..."]
    real: Bool[Tensor, "rows length"]

    def pick(self, rows: Int[Tensor, " picked"]) -> "Padded":
        return Padded(self.values[rows], self.real[rows])


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A model and its inputs. A part that the model does not have is None, and its checks are skipped.

    An input is a tensor, place after place along its first side: token ids, or the vectors of a recording. Pictures of
    one size have a side of any meaning there, and no padding.
    """

    model: nn.Module
    inputs: Sequence[Tensor]
    """The inputs that an encoder reads at once. A model without an encoder has empty ones."""
    pad: float | None
    """The number that inputs are padded with; None for inputs of one size, which have no padding."""
    rows: Rows
    """The tokens of a model that writes, one row for each input: it reads them one by one, from the token before the
    answer. Empty rows for a model that does not write."""
    logits: Callable[[Padded, Int[Tensor, "rows written"]], Float[Tensor, "rows places classes"]]
    """The logits of inputs and rows, in one pass."""
    blind: Callable[[Tensor, Int[Tensor, " places"] | None], Float[Tensor, "rows places width"]] | None
    """The states of inputs whose places all see one another and are all at position 0, read in the given order."""
    writer: Steps | None = None
    """The model, where it answers token by token."""
    remember: Callable[[Padded], object] = lambda inputs: None
    """The memory of the inputs, for a model that writes."""
    end: int | None = None
    """The id that ends a writer's answer."""
    token_pad: int = 0
    """The id that rows are padded with."""
    decode: Decode | None = None
    """The text of a writer's tokens."""

    def padded(self, inputs: Sequence[Tensor], *, more: int = 0) -> Padded:
        """Inputs in one tensor, with padding up to the length of the longest and `more` places of it."""
        if self.pad is None:
            return self.filled(inputs)
        lengths = torch.tensor([len(each) for each in inputs], device=self._device)
        longest = int(lengths.max()) + more
        ruler = inputs[0].new_full((longest, *inputs[0].shape[1:]), self.pad)  # only for its length
        values = pad_sequence([*inputs, ruler], batch_first=True, padding_value=self.pad)[:-1]
        return Padded(values.to(self._device), torch.arange(longest, device=self._device) < lengths[:, None])

    def filled(self, inputs: Sequence[Tensor]) -> Padded:
        """Of one length without padding: shorter inputs begin again."""
        longest = max(map(len, inputs))
        values = torch.stack([each[torch.arange(longest) % max(1, len(each))] for each in inputs]).to(self._device)
        return Padded(values, torch.ones(values.shape[:2], dtype=torch.bool, device=self._device))

    def padded_rows(self, rows: Rows, *, more: int = 0) -> Int[Tensor, "rows written"]:
        longest = max(map(len, rows)) + more
        return self._ids([[*row, *[self.token_pad] * (longest - len(row))] for row in rows])

    def filled_rows(self, rows: Rows) -> Int[Tensor, "rows written"]:
        longest = max(map(len, rows))
        return self._ids([[row[place % len(row)] for place in range(longest)] for row in rows])

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _ids(self, rows: Rows) -> Int[Tensor, "rows written"]:
        return torch.tensor(rows, dtype=torch.long, device=self._device)


def of_encoder_decoder(model: EncoderDecoder, inputs: Sequence[Tensor] | Rows, rows: Rows, *, pad: float | None,
                       token_pad: int, end: int, decode: Decode | None = None) -> Probe:
    def mask(read: Padded) -> Mask:
        return Mask() if pad is None else Mask(keys=read.real)

    return Probe(
        model=model, inputs=_tensors(inputs), pad=pad, rows=rows, token_pad=token_pad, end=end, decode=decode,
        writer=model, blind=None if pad is None else _blind(model.encoder),
        logits=lambda read, written: model.logits(model(read.values, written, mask=mask(read))),
        remember=lambda read: model.encode(read.values, mask(read)))


def of_decoder(model: AutoregressiveDecoder, rows: Rows, *, pad: int, end: int, decode: Decode | None = None) -> Probe:
    def blind(written: Tensor, order: Int[Tensor, " places"] | None) -> Float[Tensor, "rows places width"]:
        nowhere = torch.zeros_like(written[:1])
        tokens = written if order is None else written[:, order]
        return model(model.embed(tokens, nowhere), mask=Mask(), positions=nowhere)  # type: ignore[no-any-return]

    return Probe(
        model=model, inputs=_tensors([[] for _ in rows]), pad=pad, rows=rows, token_pad=pad, end=end, decode=decode,
        writer=model, blind=None if model.ordered else blind,
        logits=lambda _, written: model.logits(model(model.embed(written))))


def of_encoder(model: nn.Module, encoder: Encoder, inputs: Sequence[Tensor] | Rows, *, pad: float | None,
               logits: Callable[[Padded], Float[Tensor, "rows places classes"]]) -> Probe:
    """A probe of a model that reads sequences: the places of its inputs are those of its states."""
    return Probe(model=model, inputs=_tensors(inputs), pad=pad, rows=[[] for _ in inputs],
                 logits=lambda read, _: logits(read), blind=_blind(encoder))


def _blind(encoder: Encoder) -> Callable[[Tensor, Tensor | None], Tensor] | None:
    def states(inputs: Tensor, order: Int[Tensor, " places"] | None) -> Float[Tensor, "rows places width"]:
        layout = encoder.inputs.layout
        places = inputs.shape[1] if layout is None else layout.places
        nowhere = torch.zeros((1, places), dtype=torch.long, device=inputs.device)
        x = encoder.embed(inputs, nowhere)
        return encoder(x if order is None else x[:, order], positions=nowhere)  # type: ignore[no-any-return]

    return states if encoder.blocks and not encoder.ordered else None


def _tensors(inputs: Sequence[Tensor] | Rows) -> list[Tensor]:
    return [each if isinstance(each, Tensor) else torch.tensor(each, dtype=torch.long) for each in inputs]


def of_all_lengths(examples: Sequence[T], *, length: Callable[[T], int]) -> list[T]:
    """A few of them, from the shortest to the longest.

    >>> of_all_lengths([*range(1000, 0, -1)], length=int)
    [1, 126, 251, 376, 501, 626, 751, 876]
    """
    by_length = sorted(examples, key=length)
    return by_length[:: max(1, len(by_length) // MAX_PROBE_ROWS)][:MAX_PROBE_ROWS]


def excerpts(tokens: Tokenizer, of_lengths: Callable[[Sequence[int]], list[list[int]]]) -> list[list[int]]:
    """Text of all lengths that is not trained on; or made up, where a run has come without its data."""
    rows = made_up(len(tokens))
    if found := of_lengths([len(row) for row in rows]):
        rows = [own or row for own, row in zip(found, rows, strict=True)]
    return [[tokens.start, *row[: MAX_PROBE_LENGTH - 2], tokens.end] for row in rows]


def made_up(vocabulary: int) -> list[list[int]]:
    """Rows of ids, for a run that has come without its data."""
    random = torch.Generator().manual_seed(0)
    lengths = range(2, MAX_PROBE_LENGTH, MAX_PROBE_LENGTH // MAX_PROBE_ROWS)
    return [torch.randint(3, vocabulary, (length,), generator=random).tolist() for length in lengths]
