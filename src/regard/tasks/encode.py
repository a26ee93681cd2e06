"""encode: a text to its vector, by an encoder that came without anything on it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.check.probe import Probe, made_up, of_encoder
from regard.data.batch import Batch, BatchSpec
from regard.data.tokenizer import Tokenizer
from regard.look.choices import Output
from regard.look.record import Record
from regard.models.encoder_only import EncoderOnly
from regard.settings.errors import UserError
from regard.settings.schema import Search
from regard.tasks.base import Answer, Example, Loss, Scores, Sizes, Task, no_such_split
from regard.tasks.reading import attention, rows_of, seen, vectors

__all__ = ["Encode"]

DIGITS = 6  # of a number that is printed: float32 has hardly more


class Encode(Task[Batch]):
    """Text to vector. It has no examples: what it should answer, nobody says."""

    reads_only = True

    def fingerprint(self) -> str:
        raise _learns_nothing()

    def make_data(self, folder: Path) -> dict[str, Any]:
        raise _learns_nothing()

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        raise _learns_nothing()

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        return {"vocabulary": len(self.tokens)}

    def build(self, sizes: Sizes) -> EncoderOnly:
        return EncoderOnly(self.run.model, vocabulary=sizes["vocabulary"])

    # Texts -> vectors

    def embed(self, model: nn.Module, texts: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self._rows(texts), pad=self.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """Each vector as JSON."""
        return [Answer(json.dumps([float(f"{number:.{DIGITS}g}") for number in vector.tolist()]))
                for vector in self.embed(model, inputs)]

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        return rows_of(self.tokens, texts, longest=self.run.data.max_tokens)

    # A look inside

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """What the tokens look at."""
        return attention(model, self.tokens, self._rows(inputs), only=only, heads=heads)

    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """None: a vector is not chosen among others."""
        return [Output("", ()) for _ in inputs]

    def probe(self, model: nn.Module) -> Probe:
        """Of made-up rows; its states stand for the logits it has not."""
        bare, start, end = cast(EncoderOnly, model), self.tokens.start, self.tokens.end

        def states(read: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
            return bare(read, mask=seen(read, pad=self.tokens.pad, window=self.run.model.window))  # type: ignore[no-any-return]

        return of_encoder(bare, bare.encoder, [[start, *row, end] for row in made_up(len(self.tokens))],
                          pad=self.tokens.pad, logits=states)

    # What examples would be for

    def splits(self) -> Sequence[str]:
        return []

    def lengths(self, split: str) -> NDArray[np.int64]:
        raise no_such_split(split, [])

    def examples(self, split: str, limit: int | None = None) -> list[Example]:
        raise no_such_split(split, [])

    def collate(self, split: str, chosen: BatchSpec) -> Batch:
        raise _learns_nothing()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        raise _learns_nothing()

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[Batch]:
        raise _learns_nothing()

    def matches_greedy(self, model: nn.Module, batch: Batch) -> Bool[Tensor, "rows places"]:
        raise _learns_nothing()

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        raise _learns_nothing()


def _learns_nothing() -> UserError:
    return UserError("a run of encode gives vectors and learns nothing; train another task --from it, such as classify")
