"""Task: what a model is trained to do. It turns files into batches, batches into a loss, inputs into answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batch import Batch, Chosen
from regard.look.choices import Output
from regard.look.record import Record
from regard.settings.schema import Run

__all__ = ["Answer", "Loss", "Scores", "Sizes", "Task", "Term"]

B = TypeVar("B", bound=Batch)


@dataclass(frozen=True)
class Term:
    """One summand of a loss: a *sum* over the batch, to be divided by the count of the same name over all of it.

    Sums, because averages of averages are wrong under accumulation, padding and data parallelism.
    A weight of 0 is only reported.
    """

    name: str
    total: Tensor
    weight: float = 1.0


Loss = tuple[Term, ...]

Sizes = Mapping[str, int]
"""What is known only after the data was read: vocabularies, numbers of labels."""

Scores = dict[str, float | str]
"""Named figures of an evaluation, and the signatures they were computed under."""


@dataclass(frozen=True)
class Answer:
    """What a model says to one input, with the log-probability per token it was chosen by, and its next best."""

    text: str
    score: float | None = None
    others: "tuple[Answer, ...]" = ()


class Task(ABC, Generic[B]):
    """One job, for one run. `prepare` or `restore` comes first."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes: list[str] = []  # what a person should know about the data

    @abstractmethod
    def prepare(self, folder: Path) -> Sizes:
        """Read the data, learn the vocabulary, encode, and keep what `restore` needs in `folder`."""

    @abstractmethod
    def restore(self, folder: Path) -> Sizes:
        """What `prepare` kept, without the data: enough to answer."""

    @abstractmethod
    def build(self, sizes: Sizes) -> nn.Module:
        """The model, its parameters not yet initialised."""

    @abstractmethod
    def splits(self) -> Sequence[str]:
        """Names of the splits: "train", "val", and the tests."""

    @abstractmethod
    def lengths(self, split: str) -> NDArray[np.int64]:
        """The length of each example, by which it is batched."""

    @abstractmethod
    def collate(self, split: str, chosen: Chosen) -> B:
        """The chosen examples, padded to the chosen shape."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Loss: ...

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Sequence[str]) -> list[Answer]:
        """An answer to each input, in order."""

    @abstractmethod
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None) -> list[Record]:
        """What the model attends to while it gives these outputs, or without any its own answers.

        The answers are found at full speed; then one watched pass over the winners gives the weights of all of them.
        """

    @abstractmethod
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5) -> list[Output]:
        """These outputs, or without any the model's own answers, with the likeliest tokens at each place of them."""

    @abstractmethod
    def score(self, model: nn.Module, split: str, *, limit: int | None = None) -> Scores:
        """How well the model answers the (first `limit`) examples of a split."""
