"""Task: what a model is trained to do. It turns files into batches, batches into a loss, inputs into answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batch import Batch, Chosen
from regard.look.choices import Output
from regard.look.record import Record
from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["Answer", "Likelihood", "Loss", "Scores", "Sizes", "Task", "Term"]

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


@dataclass(frozen=True)
class Likelihood:
    """How likely a model finds a text: the log-probability of each of its tokens after those before it."""

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    bytes: int

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)

    @property
    def bits_per_byte(self) -> float:
        return -self.total / math.log(2) / max(1, self.bytes)


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

    streams = False
    """Whether its answers are texts that go on from their input, to be shown as they are written."""

    def stream(self, model: nn.Module, text: str) -> Iterator[tuple[int, str]]:
        """The answers to one input as they are written: the number of the answer, and what is new of it."""
        answer = self.predict(model, [text])[0]
        return enumerate(each.text for each in (answer, *answer.others))

    def likelihoods(self, model: nn.Module, texts: Sequence[str]) -> list[Likelihood]:
        """How likely the model finds each text."""
        raise self._is_no_language_model()

    def compare(self, model: nn.Module, prompts: Sequence[str],
                endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """The log-probability of each ending after each prompt, up to a sum that all endings of a prompt share."""
        raise self._is_no_language_model()

    def _is_no_language_model(self) -> UserError:
        return UserError(f"a run of {self.run.task} does not say how likely a text is; one of language does")

    @abstractmethod
    def score(self, model: nn.Module, split: str, *, limit: int | None = None) -> Scores:
        """How well the model answers the (first `limit`) examples of a split."""
