"""Task: what a model is trained to do. It turns files into batches, batches into a loss, inputs into answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_ROWS, Probe
from regard.data.batch import Batch, BatchSpec
from regard.data.notes import Notes
from regard.look.alignment import Links
from regard.look.choices import Choice, Output
from regard.look.confusion import Confusion
from regard.look.record import Record
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search, Tower
from regard.settings.setting import of, written
from regard.tasks.prepared import prepare

__all__ = ["FIRST_SHOWN", "Answer", "Example", "Likelihood", "Loss", "Scores", "Sizes", "Task", "Term",
           "loss_per_token", "no_such_split", "of_all_lengths"]

B = TypeVar("B", bound=Batch)
FIRST_SHOWN = 500  # characters of the first example that are kept: more than a terminal's line has


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

Scores = dict[str, float | str | dict[str, float]]
"""Named figures of an evaluation, whole tables of them, and the signatures they were computed under."""


@dataclass(frozen=True)
class Answer:
    """What a model says to one input, with the log-probability per token it was chosen by, and its next best.

    Where it says something of each place of the input by itself, `choices` has what it could have said there.
    """

    text: str
    score: float | None = None
    others: "tuple[Answer, ...]" = ()
    probabilities: Mapping[str, float] | None = None
    """Of all that could be answered, where that is a list of labels; the likeliest first."""
    choices: tuple[Choice, ...] = ()
    """What was likely at each place that was asked for, where a task is about such."""


@dataclass(frozen=True)
class Example:
    """What a model is asked, and what it should answer."""

    input: str
    wanted: str


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
        return abs(self.total) / math.log(2) / max(1, self.bytes)


class Task(ABC, Generic[B]):
    """One job, for one run. `prepare` or `restore` comes first.

    The verbs know no task by its name: what they need of one is here.

    Several threads may ask one task at once. Where answers are searched for, `search` says how; absent, the run does.
    It is an argument and never kept, so that no call sees the settings of another.
    """

    focus = "*"
    """The attentions by which an output looks at its input, as `look` names them with `only`."""

    counted = "tokens"
    """What its loss counts."""

    acting = "*"
    """The attentions that act when it answers, named in the same way: another may only have taught the model."""

    reads_only = False
    """Whether its model is an encoder alone, which may have more than the encoder of a translator."""

    def __init__(self, run: Run) -> None:
        if not self.reads_only:
            _refuse_reader(run)
        elif (bptt := of(run, "model.recurrent.bptt")) is not None:
            raise UserError(f"model.recurrent.bptt={bptt}: only a language model uses this, and {run.task} "
                            "trains none; remove it")
        if run.model.positions == "learned" and run.model.max_positions < run.data.max_tokens:
            raise UserError(f"model.max_positions={run.model.max_positions}: a learned table of positions must reach "
                            f"data.max_tokens={run.data.max_tokens}; raise the one or lower the other")
        self.run = run
        self.notes = Notes()  # what a person should know about the data
        self.first = ""
        """The first training example as it was read, for a person to see that it was read rightly."""

    def prepare(self, folder: Path) -> Sizes:
        """The data in `folder`, ready to be learned from: as it was kept there, or else prepared now."""
        return prepare(self, folder)

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the data files or what is made of them change."""

    @abstractmethod
    def make_data(self, folder: Path) -> dict[str, Any]:
        """Read the data, learn the vocabulary, encode, and keep what `restore` and `restore_data` need in `folder`.

        What is returned is kept with it, and given to `restore_data`: "splits" and "notes" at the least.
        """

    @abstractmethod
    def restore(self, folder: Path) -> Sizes:
        """What was kept, without the data: enough to answer."""

    @abstractmethod
    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        """The splits that were kept."""

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
    def collate(self, split: str, chosen: BatchSpec) -> B:
        """The chosen examples, padded to the chosen shape."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Loss: ...

    @abstractmethod
    def examples(self, split: str, limit: int | None = None) -> list[Example]:
        """The (first `limit`) examples of a split that is not trained on, as texts."""

    def alignments(self, split: str, limit: int) -> list[Links] | None:
        """Which words of those examples belong together, where that is known."""
        return None

    @abstractmethod
    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[B]:
        """Inputs with the outputs to give to them, in batches of like lengths. They count the tokens of the outputs."""

    def output_rows(self, batch: B) -> Sequence[int]:
        """Which rows of a record are those of the outputs of one example: the last, where a model goes on with it."""
        return range(-batch.counts["nll"], 0)

    @abstractmethod
    def matches_greedy(self, model: nn.Module, batch: B) -> Bool[Tensor, "rows places"]:
        """Which tokens of the outputs are those that a greedy search takes there. What is not said is none."""

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """An answer to each input, in order."""

    def greedy_answers(self, model: nn.Module, examples: Sequence[Example], *,
                       search: Search | None = None) -> list[str]:
        """An answer to each example, which is right if it is what was wanted."""
        return [answer.text for answer in self.predict(model, [one.input for one in examples], search=search)]

    @abstractmethod
    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """What the model attends to while it gives these outputs, or without any its own answers.

        The answers are found at full speed; then one watched pass over the winners gives the weights of all of them.
        """

    @abstractmethod
    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """These outputs, or without any the model's own answers, with the likeliest tokens at each place of them."""

    streams = False
    """Whether its answers are texts that go on from their input, to be shown as they are written."""

    def stream(self, model: nn.Module, text: str, *, search: Search | None = None) -> Iterator[tuple[int, str]]:
        """The answers to one input as they are written: the number of the answer, and what is new of it."""
        answer = self.predict(model, [text], search=search)[0]
        return enumerate(each.text for each in (answer, *answer.others))

    def likelihoods(self, model: nn.Module, texts: Sequence[str]) -> list[Likelihood]:
        """How likely the model finds each text."""
        raise self._is_no_language_model()

    def compare(self, model: nn.Module, prompts: Sequence[str],
                endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """The log-probability of each ending after each prompt, up to a sum that all endings of a prompt share."""
        raise self._is_no_language_model()

    def embed(self, model: nn.Module, texts: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        """A vector for each text."""
        raise UserError(f"a run of {self.run.task} has no vectors of texts; one with an encoder alone has")

    def _is_no_language_model(self) -> UserError:
        return UserError(f"a run of {self.run.task} does not say how likely a text is; one of language does")

    @abstractmethod
    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """How well the model answers the (first `limit`) examples of a split."""

    # Of other data.

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        """Read the tests of other files or folders: splits that can be scored from now on, by these names.

        `source` and `target` are as in the settings of the data; those that are absent are the run's own.
        """
        raise UserError(f"--data: a run of {self.run.task} is not measured on other data than its own")

    def shift(self, split: str, how: str, *, seed: int) -> str:
        """Make a copy of a split with its texts shifted (`data.shift`): a split of this name from now on."""
        raise UserError(f"--shift {how}: is for texts with labels, as classify has; a run of {self.run.task} has none")

    def confusion(self, model: nn.Module, split: str, *, limit: int | None = None) -> Confusion | None:
        """Which labels are taken for which, where an answer is one of a few."""
        return None

    @abstractmethod
    def probe(self, model: nn.Module) -> Probe:
        """The model and some of its examples, ready to be checked."""


@torch.no_grad()
def loss_per_token(task: Task[B], model: nn.Module, batches: Iterable[B]) -> float:
    """The mean of −log of the probability of each token that they count."""
    device, total, count = next(model.parameters()).device, 0.0, 0
    for batch in batches:
        total += sum(float(term.total) for term in task.loss(model, batch.to(device)) if term.name == "nll")
        count += batch.counts["nll"]
    return total / max(1, count)


def _refuse_reader(run: Run) -> None:
    """What an encoder by itself has would be left out in silence."""
    plain, tower = Tower(), run.model
    for name in ("embedding.segments", "embedding.norm", "embedding.width", "global_projections"):
        if (value := of(tower, name)) != of(plain, name):
            raise UserError(f"model.{name}={written(value)}: only an encoder uses this, and {run.task} "
                            "trains none; remove it")


def no_such_split(split: str, there: Sequence[str]) -> UserError:
    if not there:
        return UserError(f"{split}: no such split; the run has come without its data")
    return UserError(f"{split}: no such split; there are {', '.join(there)}")


def of_all_lengths(examples: Sequence[Example]) -> list[Example]:
    """A few of them, from the shortest to the longest."""
    whole = [example for example in examples if example.input.strip() and example.wanted.strip()]
    by_length = sorted(whole, key=lambda example: len(example.input))
    return by_length[:: max(1, len(by_length) // MAX_PROBE_ROWS)][:MAX_PROBE_ROWS]
