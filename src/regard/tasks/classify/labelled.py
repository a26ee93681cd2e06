"""LabelledInputs: all that classify asks about its inputs. Texts and images answer it, each in a file."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.check.probe import Probe
from regard.data.batch import Batch
from regard.data.dataset import Dataset, Sizes
from regard.data.reader import Reader
from regard.look.record import Record
from regard.models.encoder import Encoder
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["LabelledInputs", "Read", "Rows", "Wanted", "joined"]

BETWEEN = ", "  # separates several labels of one input

Input = TypeVar("Input")
B = TypeVar("B", bound=Batch)


class Wanted(NamedTuple):
    """The labels that rows should get: one for each, or 0 or 1 for every label. those that are
    IGNORED count nothing."""

    targets: Int[Tensor, "rows places"]
    share: Float[Tensor, " rows"] | None = None
    """How much of a row is an input with these labels, if inputs are mixed; absent: all of it."""


class Read(NamedTuple):
    """A batch as the encoder reads it, and its labels: of mixed inputs, those of each."""

    values: Shaped[Tensor, "rows ..."]
    mask: Mask
    wanted: tuple[Wanted, ...]


class Rows(NamedTuple):
    """Inputs that are read at once, and the places that they had among all."""

    places: list[int]
    values: Shaped[Tensor, "rows ..."]
    mask: Mask


class LabelledInputs(Dataset[Input, B]):
    """Inputs of one kind with their labels, and how a model reads them."""

    reader: Reader[Input]
    labels: list[str]

    @property
    def several(self) -> bool:
        """Whether an input has any number of labels."""
        return self.run.data.multi_label

    @abstractmethod
    def encoder(self, tower: Tower, sizes: Sizes) -> Encoder: ...

    @abstractmethod
    def model_input(self, batch: B, *, learning: bool) -> Read:
        """A batch on its device. Inputs are only augmented if the model is `learning`."""

    @abstractmethod
    def rows_to_answer(self, inputs: Sequence[Input], *, device: torch.device) -> Iterator[Rows]:
        """Inputs to answer, in the order that is read fastest."""

    def rows_of(self, split: str, limit: int | None, *, device: torch.device) -> Iterator[Rows]:
        """The (first `limit`) inputs of a split."""
        return self.rows_to_answer([example.input for example in self.examples(split, limit)], device=device)

    @abstractmethod
    def labels_of(self, split: str, limit: int | None = None) -> list[tuple[str, ...]]:
        """The labels of each of these inputs."""

    @abstractmethod
    def batches(self, inputs: Sequence[Input], labels: Sequence[Sequence[int]]) -> Iterator[B]:
        """Inputs with the numbers of their labels, in batches of similar inputs."""

    @abstractmethod
    def vectors(self, model: nn.Module, inputs: Sequence[Input]) -> Float[np.ndarray, "inputs width"]: ...

    @abstractmethod
    def attention(self, model: nn.Module, inputs: Sequence[Input], *, only: str | Sequence[str],
                  heads: Sequence[int] | None) -> list[Record]:
        """The attention of the encoder over each input."""

    def output_rows(self, rows: int) -> Sequence[int]:
        """The rows of a record from which the label is read: all if nothing else is known."""
        return range(rows)

    @abstractmethod
    def probe(self, model: nn.Module) -> Probe:
        """The model and some inputs of the validation set, or made-up ones if the run has no data."""


def joined(labels: Sequence[str], *, order: Sequence[str]) -> str:
    """Several labels as a text.

    >>> joined(["red", "blue"], order=["blue", "green", "red"])
    'blue, red'
    """
    return BETWEEN.join(sorted(labels, key=order.index))
