"""Dataset: the examples of a run, by split. It turns files into examples, and examples into batches."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import Batch, BatchSpec
from regard.data.notes import Notes
from regard.data.prepared import prepare
from regard.settings.errors import UserError
from regard.settings.opening import to_read
from regard.settings.schema import Data, Run

__all__ = ["MAX_FIRST_EXAMPLE", "Box", "Dataset", "Example", "Links", "Regions", "Sizes", "no_such_split"]

MAX_FIRST_EXAMPLE = 500  # characters of the first example that are kept: more than a terminal's line has

Input = TypeVar("Input")
B = TypeVar("B", bound=Batch)

Sizes = Mapping[str, int]
"""Sizes that are known only after the data was read: of vocabularies, numbers of labels."""

Links = frozenset[tuple[int, int]]
"""Which words of two texts belong together: pairs (source word, target word), both counted from 0."""


class Box(NamedTuple):
    """A rectangle in a picture, in shares of the picture's height and width from its upper left corner."""

    top: float
    left: float
    bottom: float
    right: float


Regions = Mapping[int, Sequence[Box]]
"""The parts of a picture that words of its answer are about, by the word's number from 0. Other words are left out."""


@dataclass(frozen=True)
class Example(Generic[Input]):
    """An input and the answer that a model should give to it."""

    input: Input
    wanted: str


class Dataset(ABC, Generic[Input, B]):
    """The examples of one run. `prepare` or `restore` comes first.

    Files are read and encoded once (`make_data`) and kept in the run's directory, from which `restore` and
    `restore_data` read them.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes = Notes()
        """Notes for the person about the data."""
        self.first = ""
        """The first training example as it was read, for a person to see that it was read rightly."""

    @property
    def length(self) -> int | None:
        """The length of every example, if no other is possible."""
        return None

    def prepare(self, folder: Path) -> Sizes:
        """The data in `folder`, ready to be learned from: as it was kept there, or else prepared now."""
        return prepare(self, folder)

    def files(self) -> Iterable[Path]:
        """All files to read, in order; none: the built-in data."""
        return map(Path, self.run.data.paths)

    def fingerprint(self) -> str:
        """A digest of the data files and of the settings that say how they are read."""
        digest = hashlib.sha256(json.dumps([asdict(self.run.data), asdict(self.run.tokens)]).encode())
        for file in self.files():
            digest.update(file.name.encode(errors="surrogateescape"))
            with open(file, "rb", opener=to_read) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()

    @abstractmethod
    def make_data(self, folder: Path) -> dict[str, Any]:
        """Read the files, learn the vocabulary, encode, and write what `restore` and `restore_data` need to `folder`.

        The result is kept too, and given to `restore_data`. It has at least "splits" and "notes".
        """

    @abstractmethod
    def restore(self, folder: Path) -> Sizes:
        """Read what answering needs, such as a tokenizer, and no example."""

    @abstractmethod
    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Read the splits."""

    @abstractmethod
    def splits(self) -> Sequence[str]:
        """Names of the splits: "train", "val", and the tests. None before the data was read."""

    @abstractmethod
    def lengths(self, split: str) -> NDArray[np.int64]:
        """The length of each example, by which it is batched."""

    @abstractmethod
    def collate(self, split: str, chosen: BatchSpec) -> B:
        """The chosen examples, padded to the chosen shape."""

    @abstractmethod
    def examples(self, split: str, limit: int | None = None) -> list[Example[Input]]:
        """The (first `limit`) examples of a split that is not trained on, as a person would give them."""

    def alignments(self, split: str, limit: int) -> list[Links] | None:
        """Which places of those examples and of their answers belong together, where that is known."""
        return None

    def regions(self, split: str, limit: int) -> list[Regions] | None:
        """The parts of those examples' pictures that the words of their answers are about, where they are known."""
        return None

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        """Read the tests of other files or folders: splits that can be scored from now on, by these names.

        `source` and `target` are as in the settings of the data; those that are absent are the run's own.
        """
        raise UserError(f"--data: a run of {self.run.task} can only be evaluated on its own data")

    def stand_for(self, data: Data) -> Sizes:
        """Let these examples stand for other data, in a plan. Returns the sizes that are soon counted there."""
        return {}

    def shift(self, split: str, how: str, *, seed: int) -> str:
        """Make a perturbed copy of a split: a split of this name from now on."""
        raise UserError(f"--shift {how}: a run of {self.run.task} has no perturbations; a classifier has")


def no_such_split(split: str, there: Sequence[str]) -> UserError:
    if not there:
        return UserError(f"{split}: no such split; the run has come without its data")
    return UserError(f"{split}: no such split; there are {', '.join(there)}")
