"""encode: a text to its vector, by an encoder that came without a head."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.check.probe import Padded, Probe, made_up, of_encoder
from regard.data.batch import Batch, BatchSpec
from regard.data.dataset import Dataset, Example, no_such_split
from regard.data.reader import TextReader
from regard.data.text.rows import encoder_mask, rows_of
from regard.data.tokenizer import Tokenizer
from regard.generate.text_vectors import vectors
from regard.look.choices import Output
from regard.look.encoder_states import attention
from regard.look.record import Record
from regard.models.encoder_only import EncoderOnly
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Scores, Sizes, Task

__all__ = ["Encode"]

DIGITS = 6  # of a printed number: float32 has hardly more


class TokensOnly(Dataset[str, Batch]):
    """The tokens of texts, and no examples: there is no right answer to learn."""

    def fingerprint(self) -> str:
        raise _learns_nothing()

    def make_data(self, folder: Path) -> dict[str, Any]:
        raise _learns_nothing()

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        return {"vocabulary": len(self.tokens)}

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        raise _learns_nothing()

    def splits(self) -> Sequence[str]:
        return []

    def lengths(self, split: str) -> NDArray[np.int64]:
        raise no_such_split(split, [])

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        raise no_such_split(split, [])

    def collate(self, split: str, chosen: BatchSpec) -> Batch:
        raise _learns_nothing()

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        return rows_of(self.tokens, texts, longest=self.run.data.max_tokens)


class Encode(Task[str, Batch]):
    """Text to vector."""

    inputs = TextReader()

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: TokensOnly = TokensOnly(run)

    def build(self, sizes: Sizes) -> EncoderOnly:
        return EncoderOnly(self.run.model, vocabulary=sizes["vocabulary"])

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self.data.rows(inputs), pad=self.data.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """Each vector as JSON."""
        return [Answer(json.dumps([float(f"{number:.{DIGITS}g}") for number in vector.tolist()]))
                for vector in self.embed(model, inputs)]

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the tokens."""
        return attention(model, self.data.tokens, self.data.rows(inputs), only=only, heads=heads)

    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """Nothing: a vector has no alternatives."""
        return [Output("", ()) for _ in inputs]

    def probe(self, model: nn.Module) -> Probe:
        """A probe from made-up rows, with states in place of logits."""
        bare, tokens = cast(EncoderOnly, model), self.data.tokens

        def states(read: Padded) -> Float[Tensor, "rows length width"]:
            return bare(read.values, mask=encoder_mask(read.values, pad=tokens.pad, window=self.run.model.window))  # type: ignore[no-any-return]

        rows = [[tokens.start, *row, tokens.end] for row in made_up(len(tokens))]
        return of_encoder(bare, bare.encoder, rows, pad=tokens.pad, logits=states)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        raise _learns_nothing()

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[Batch]:
        raise _learns_nothing()

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        raise _learns_nothing()


def _learns_nothing() -> UserError:
    return UserError("a run of encode only computes vectors; to train, start another task, such as classify, --from it")
