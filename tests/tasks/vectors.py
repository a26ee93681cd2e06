"""vectors: a path of vectors, such as that of a pen, to its label. A task of a package of one's own, in one file.

Its data are lines of JSON, `{"path": [[0.1, -0.4], …], "label": "ring"}`; an input is such a path.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.check.probe import Probe, of_encoder
from regard.data.batch import IGNORED, Batch, BatchSpec
from regard.data.dataset import Dataset, Example
from regard.data.reader import Reader
from regard.look.axes import AxisPair, Time
from regard.look.watch import Seen
from regard.models.classifier import Classifier
from regard.models.encoder import Encoder
from regard.models.inputs import Inputs
from regard.nn.mask import Mask
from regard.settings.errors import UserError
from regard.settings.schema import Run, Search
from regard.tasks.base import Answer, Loss, Sizes, Task, Term
from regard.tasks.traits import Traits
from regard.tasks.traits.encoders import small_encoder

RATE, HELD_OUT = 50, 8  # vectors a second; of so many examples, one is for validation

TRAITS = Traits(name="vectors", code="vectors:VectorTask", defaults=lambda built_in: small_encoder("vectors"),
                encoder_only=True, pools=True)


class PathReader(Reader[np.ndarray]):
    noun = "path"

    def parse(self, text: str, *, origin: str) -> np.ndarray:
        try:
            return np.array([[*map(float, vector)] for vector in json.loads(text)], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"{origin}: {text[:40]}: must be lists of numbers in JSON: {error}") from None

    def show(self, given: np.ndarray) -> str:
        return json.dumps([[round(number, 3) for number in vector] for vector in given.tolist()])


@dataclass(frozen=True)
class PathBatch(Batch):
    paths: Tensor
    real: Tensor
    labels: Tensor


class Paths(Dataset[np.ndarray, PathBatch]):
    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.by_split: dict[str, list[Example[np.ndarray]]] = {}

    def make_data(self, folder: Path) -> dict[str, Any]:
        lines = [line for file in self.files() for line in file.read_text().splitlines()]
        splits = {"val": lines[::HELD_OUT], "train": [line for i, line in enumerate(lines) if i % HELD_OUT]}
        for split, some in splits.items():
            (folder / "data" / f"{split}.jsonl").write_text("\n".join(some))
        train = read(folder / "data" / "train.jsonl")
        (folder / "labels.json").write_text(json.dumps([sorted({e.wanted for e in train}), train[0].input.shape[1]]))
        return {"splits": list(splits), "notes": []}

    def restore(self, folder: Path) -> Sizes:
        self.labels, features = json.loads((folder / "labels.json").read_text())
        return {"features": features, "labels": len(self.labels)}

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.by_split = {split: read(folder / "data" / f"{split}.jsonl") for split in about["splits"]}

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        self.by_split |= {str(path): read(path) for path in paths}
        return list(map(str, paths))

    def splits(self) -> Sequence[str]:
        return list(self.by_split)

    def lengths(self, split: str) -> np.ndarray:
        return np.array([len(one.input) for one in self.by_split[split]])

    def examples(self, split: str, limit: int | None = None) -> list[Example[np.ndarray]]:
        return self.by_split[split][:limit]

    def collate(self, split: str, chosen: BatchSpec) -> PathBatch:
        return self.batch([self.by_split[split][i] for i in chosen.indices], chosen.rows, chosen.length)

    def batch(self, some: Sequence[Example[np.ndarray]], rows: int, length: int) -> PathBatch:
        paths = torch.zeros(rows, length, some[0].input.shape[1])
        real, labels = torch.zeros(rows, length, dtype=torch.bool), torch.full((rows,), IGNORED)
        for row, one in enumerate(some):
            paths[row, : len(one.input)], real[row, : len(one.input)] = torch.from_numpy(one.input), True
            labels[row] = self.labels.index(one.wanted)
        return PathBatch({"nll": len(some)}, paths, real, labels)


def read(file: Path) -> list[Example[np.ndarray]]:
    found = map(json.loads, file.read_text().splitlines())
    return [Example(np.array(one["path"], dtype=np.float32), one["label"]) for one in found]


class VectorTask(Task[np.ndarray, PathBatch]):
    inputs = PathReader()

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: Paths = Paths(run)

    def build(self, sizes: Sizes) -> Classifier:
        tower = self.run.model
        return Classifier(Encoder(tower, Project(sizes["features"], tower.width)), tower, labels=sizes["labels"])

    def loss(self, model: nn.Module, batch: PathBatch) -> Loss:
        logits = model(batch.paths, mask=Mask(keys=batch.real)).float()
        return (Term("nll", F.cross_entropy(logits, batch.labels, ignore_index=IGNORED, reduction="sum")),)

    @torch.no_grad()
    def predict(self, model: nn.Module, inputs: Sequence[np.ndarray], *, search: Search | None = None) -> list[Answer]:
        device = next(model.parameters()).device
        logs = [model(torch.from_numpy(path)[None].to(device))[0].float().log_softmax(-1) for path in inputs]
        return [Answer(self.data.labels[int(row.argmax())], float(row.max())) for row in logs]

    def batches(self, inputs: Sequence[np.ndarray], outputs: Sequence[str]) -> Iterator[PathBatch]:
        return (self.data.batch([Example(path, out)], 1, len(path)) for path, out in zip(inputs, outputs, strict=True))

    def axes(self, batch: PathBatch, seen: Seen) -> list[Mapping[str, AxisPair]]:
        times = [Time(tuple(place / RATE for place in range(count))) for count in batch.real.sum(1).tolist()]
        return [dict.fromkeys(seen, AxisPair(time, time)) for time in times]

    def probe(self, model: Any) -> Probe:
        paths = [torch.from_numpy(one.input) for one in self.data.examples("val", 8)]
        return of_encoder(model, model.encoder, paths, pad=0.0,
                          logits=lambda read: model(read.values, mask=Mask(keys=read.real))[:, None])


class Project(nn.Linear, Inputs):
    width = property(lambda self: self.out_features)

    def forward(self, paths: Tensor, positions: Tensor | None = None) -> Tensor:
        return super().forward(paths)
