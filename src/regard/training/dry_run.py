"""A dry run: the task, its model and a batch of the right shape, from a few built-in examples instead of the data.

A task without built-in data reads its own.
"""

import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batch import Batch, BatchSampler, BatchSpec
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks import make
from regard.tasks.base import Sizes, Task
from regard.tasks.traits import traits_of
from regard.training.estimate import Parameters
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World
from regard.training.trainable import trainable_model
from regard.training.update import Update, is_compiled, make_update

__all__ = ["VOCABULARIES", "DryRun", "make_dry_run", "measure", "speed"]

EXAMPLES = 60  # enough to estimate their length
VOCABULARY = 320  # the most tokens to learn from these few examples
VOCABULARIES = ("sources", "targets", "vocabulary")  # the sizes that settings say
ROUND = 64  # they are rounded up to multiples of this
WARM = {"cuda": 3}  # warm-up steps before timing: on a GPU the first is captured, the second replays cold
STEPS = 5
MOST_TOKENS = 2**25  # of a batch; the largest language models are trained with a tenth of that
MAX_MEASURING_SECONDS = 8.0  # seconds after which no further step begins
PRODUCT = 1024  # rows and columns of the product that measures the speed of a machine
REACH = 0.6  # share of the speed of a large product that a whole step reaches


@dataclass(frozen=True)
class DryRun:
    """A task with the sizes of its model and of a batch."""

    task: Task[Any, Any]
    sizes: Sizes
    exact: Sizes
    """The same without the ids that only round the vocabulary up."""
    shape: tuple[int, int]
    """Rows and length of a batch, of all processes together."""
    counted: Sizes
    """The sizes that are those of the data, and not assumed."""

    @property
    def may_differ(self) -> bool:
        """Whether examples may be longer or shorter than those of the dry run."""
        return self.task.data.length is None

    @property
    def shapes(self) -> int | None:
        """Number of batch lengths, if it is known without the data: rows of text all have the same length."""
        return 1 if len(np.unique(self.task.data.lengths("train"))) == 1 else None

    def model(self, device: str = "meta") -> nn.Module:
        with torch.device(device):
            return trainable_model(self.task, self.sizes)

    def parameters(self) -> Parameters:
        with torch.device("meta"):
            return Parameters.of(trainable_model(self.task, self.exact))

    def batch(self, processes: int = 1) -> Batch:
        """One process's share of a batch."""
        return self._collated(*self.shape, processes)

    def outline(self, processes: int = 1) -> Batch:
        """The same on meta tensors: only shapes, of any size."""
        rows = -(-self.shape[0] // processes)
        one = self._collated(1, self.shape[1], 1)
        return one.map(lambda tensor: torch.empty(rows, *tensor.shape[1:], dtype=tensor.dtype, device="meta"))

    def _collated(self, rows: int, length: int, processes: int) -> Batch:
        fitting = np.flatnonzero(self.task.data.lengths("train") <= length)
        indices = np.resize(fitting, rows) if len(fitting) else fitting
        batch: Batch = self.task.data.collate("train", BatchSpec(indices, rows, length).share(0, processes))
        return replace(batch, counts={name: max(1, count) for name, count in batch.counts.items()})

    def update(self, run: Run, device: torch.device, precision: torch.dtype) -> Update:
        """The update that training would use, with a new model."""
        model = self.model("cpu")
        initialize(model, seed=run.seed, attention=run.model.init)
        model.to(device).train()
        optimizer = make_optimizer(model, run.train, device=device)
        return make_update(model, self.task, optimizer, run.train, device=device, precision=precision, world=World())


def make_dry_run(run: Run, *, length: int | None = None) -> DryRun:
    """`length`: tokens per example; absent: that of the examples that are read."""
    if (tokens := max(run.train.batch_tokens, length or 0)) > MOST_TOKENS:
        raise UserError(f"a batch of {tokens:,} tokens (train.batch_tokens, --length) is too large to plan; "
                        f"take at most {MOST_TOKENS:,}")
    data = run.data
    if traits_of(run.task).built_in_of(run) is not None:
        data = replace(data, paths=(), source=None, target=None, built_in_size=EXAMPLES)
    small = replace(run, data=data, tokens=replace(run.tokens, vocabulary=VOCABULARY))
    task: Task[Any, Any] = make(small)
    # Windows does not delete a file that is still mapped.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sizes = task.data.prepare(Path(folder))
    counted = task.data.stand_for(run.data) if data is not run.data and run.data.paths else {}
    sizes = {**sizes, **counted}
    task.run = run
    assumed = -(-run.tokens.vocabulary // ROUND) * ROUND
    # Bytes and published tokenizers have a fixed vocabulary, whatever the settings say.
    if run.tokens.kind != "bytes" and run.tokens.file is None:
        sizes = {name: assumed if name in VOCABULARIES and not size % ROUND else size for name, size in sizes.items()}
    exact = {name: run.tokens.vocabulary if name in VOCABULARIES and size == assumed else size
             for name, size in sizes.items()}
    if task.data.length is not None:
        if length is not None:
            raise UserError(f"--length {length}: every example of this run has {task.data.length} tokens; remove it")
        length = task.data.length
    elif length is None:
        length = 2 * math.ceil(np.median(task.data.lengths("train")) / 2)  # batches have even lengths
    tokens = run.train.batch_tokens  # a longer example is a batch of its own
    alike = np.full(max(1, tokens // length), length)  # as many as make up a batch
    return DryRun(task, sizes, exact, BatchSampler(alike, tokens=tokens, seed=run.seed).shapes[0], counted)


def measure(dry_run: DryRun, run: Run, *, device: torch.device, precision: torch.dtype, processes: int = 1,
            steps: int = STEPS) -> list[float]:
    """Seconds of each of a few real updates on this machine; fewer if they are slow."""
    update, batch = dry_run.update(run, device, precision), dry_run.batch(processes).ready(device)
    warm, took = WARM.get(device.type, 1), list[float]()
    for step in range(warm + steps):
        start = time.monotonic()
        update(batch, step)
        _wait(device)
        took.append(time.monotonic() - start)
        # The first step compiles, which says nothing about the others; otherwise one very slow step is enough.
        if sum(took[warm:] if is_compiled(run.train, device.type) else took) > MAX_MEASURING_SECONDS:
            break
    return took[warm:] or took


def speed(device: torch.device, precision: torch.dtype) -> float:
    """Operations per second of a training step on this machine, estimated from one large product."""
    a = torch.ones(PRODUCT, PRODUCT, device=device, dtype=precision)
    took = []
    for _ in range(3):
        start = time.monotonic()
        a @ a
        _wait(device)
        took.append(time.monotonic() - start)
    return REACH * 2 * PRODUCT**3 / min(took)


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
