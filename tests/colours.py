"""Runs that learn a colour: of texts that name it, and of images that show it. The same tests ask both."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as pillow
from torch import Tensor

from regard.data.images.pixels import normalized
from regard.data.labelled import Sample
from regard.predictor import Predictor
from regard.settings.schema import Run
from regard.verbs.train import settled

__all__ = ["COLOURS", "KINDS", "Images", "Kind", "Texts"]

COLOURS = {"red": (220, 40, 30), "green": (40, 190, 50), "blue": (40, 50, 210), "pink": (250, 160, 180)}
TINY = ("model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "train.steps=40", "train.warmup=5",
        "train.learning_rate=0.01", "train.label_smoothing=0.0", "device=cpu", "train.precision=float32")


class Kind(ABC):
    """Inputs of one kind."""

    name: str
    settings: tuple[str, ...]
    checks: frozenset[str]
    shift: str
    """One of the ways in which `regard eval --shift` changes such inputs."""
    first: str
    """The first place of an input's axis."""

    def __repr__(self) -> str:  # the name of a test
        return self.name

    def run(self, data: Path | None, *more: str, start: Path | None = None) -> Run:
        """The settings of `regard train classify --data … --from … --set …`."""
        source = [] if start is None else [f"train.init_from={start}"]
        shape = TINY if start is None else TINY[4:]
        paths = [] if data is None else [data]
        return settled("classify", paths, None, None, None, [*shape, *self.settings, *source, *more])

    @abstractmethod
    def write(self, folder: Path, labels: Sequence[Sequence[str]], *, name: str = "train") -> Path:
        """Data with an input for each of these, which shows or names all its labels."""

    @abstractmethod
    def made(self, folder: Path, *colours: str, number: int = 1000) -> Any:
        """An input to answer."""

    @abstractmethod
    def add(self, predictor: Predictor, split: str, folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """A split of inputs of the first colour that are labelled as the second."""

    @abstractmethod
    def logits(self, predictor: Predictor, batch: Any) -> Tensor:
        """Of each row by itself, without padding or empty rows."""


class Texts(Kind):
    name = "texts"
    settings = ("tokens.vocabulary=300", "train.batch_tokens=512", "data.max_tokens=16")
    checks = frozenset({"batch = single", "padded = unpadded", "fused = explicit", "equivariant without positions"})
    shift, first = "length", "<s>"

    def write(self, folder: Path, labels: Sequence[Sequence[str]], *, name: str = "train") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.jsonl"
        texts = [self.made(folder, *has, number=number) for number, has in enumerate(labels)]
        file.write_text("".join(json.dumps({"text": text, **shown(has, labels)}) + "\n"
                                for text, has in zip(texts, labels, strict=True)))
        return file

    def made(self, folder: Path, *colours: str, number: int = 1000) -> str:
        return f"{' and '.join(colours) or 'some'} things number {number}"

    def add(self, predictor: Predictor, split: str, folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
        predictor.task.data.add(split, [Sample(self.made(folder, colour), (label,)) for colour, label in pairs])

    def logits(self, predictor: Predictor, batch: Any) -> Tensor:
        pad = predictor.task.data.tokens.pad
        return torch.cat([predictor.model(row[row != pad][None]) for row in batch.tokens if (row != pad).any()])


class Images(Kind):
    name = "images"
    settings = ("model.image.size=12", "model.image.patch=4", "train.batch_tokens=160", "train.augment.crop=1")
    checks = frozenset({"batch = single", "fused = explicit", "equivariant without positions"})
    shift, first = "noise", "[CLS]"

    def write(self, folder: Path, labels: Sequence[Sequence[str]], *, name: str = "train") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for number, has in enumerate(labels):
            path = self.made(folder / name, *has, number=number)
            lines.append(json.dumps({"path": f"{name}/{path.name}", **shown(has, labels)}) + "\n")
        file = folder / f"{name}.jsonl"
        file.write_text("".join(lines))
        return file

    def made(self, folder: Path, *colours: str, number: int = 1000) -> Path:
        """A stripe of each colour on grey, with noise."""
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(number)
        pixels = np.full((12, 15, 3), 128.0)
        for place, colour in enumerate(colours):
            pixels[12 * place // len(colours) : 12 * (place + 1) // len(colours)] = COLOURS[colour]
        pixels += random.normal(0, 20, pixels.shape)
        file = folder / f"{'-'.join(colours) or 'none'}-{number}.png"
        pillow.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file)
        return file

    def add(self, predictor: Predictor, split: str, folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
        files = [self.made(folder, colour, number=number) for number, (colour, _) in enumerate(pairs)]
        table = folder / "added.tsv"
        table.write_text("path\tlabel\n" + "".join(
            f"{file.name}\t{label}\n" for file, (_, label) in zip(files, pairs, strict=True)))
        data = predictor.task.data
        [name] = data.add_test_data([table])
        data.add(split, data.pixels[name], data.of(name))

    def logits(self, predictor: Predictor, batch: Any) -> Tensor:
        pixels = normalized(batch.pixels, predictor.run.model.image)
        return torch.cat([predictor.model(row[None]) for row, target in zip(pixels, batch.targets, strict=True)
                          if target[0] >= 0])


def shown(has: Sequence[str], every: Sequence[Sequence[str]]) -> dict[str, Any]:
    """One label, or a list of them where some inputs have more or fewer."""
    return {"label": has[0]} if all(len(each) == 1 for each in every) else {"labels": list(has)}


KINDS = (Texts(), Images())
