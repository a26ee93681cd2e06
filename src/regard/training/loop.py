"""The loop that trains. It reads from top to bottom."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.checkpoint import (
    Checkpoint,
    average,
    load_weights,
    named_tensors,
    prune,
    save_checkpoint,
    write_json,
    write_model,
    write_tensors,
)
from regard.data.batch import Batch, Plan
from regard.data.loader import ahead
from regard.nn.init import initialize
from regard.settings.errors import NotFinite
from regard.settings.load import refuse_another, to_json
from regard.settings.schema import Run, Train
from regard.tasks import make
from regard.tasks.base import Sizes, Task
from regard.tasks.device import choose_device, fast_bfloat16
from regard.training.evaluate import validation_loss
from regard.training.log import Log
from regard.training.optimizer import adamw
from regard.training.parallel import World
from regard.training.update import make_update

__all__ = ["train"]


def train(run: Run, folder: str | Path, *, quiet: bool = False, world: World = World()) -> dict[str, Any]:
    """Train until the last step, write the model into `folder`, and give the scores of its tests.

    A folder that already holds a part of this very run is gone on with.
    """
    folder = Path(folder)
    refuse_another(folder / "run.json", run)
    device = choose_device(run.device)
    task: Task[Any] = make(run)
    if not quiet and sys.stderr.isatty():
        print("reading the data and learning its tokens …", file=sys.stderr, flush=True)
    sizes = task.prepare(folder)
    write_json(folder / "run.json", to_json(run))  # after the data: what cannot be read leaves no run behind

    model: nn.Module = task.build(sizes)
    initialize(model, seed=run.seed)
    model.to(device).train()
    optimizer = adamw(model, run.train, device=device)
    progress = _resume(folder, model, optimizer)
    with Log(folder, steps=run.train.steps, start=progress.step, quiet=quiet) as log, _deterministic(run.train):
        began = time.monotonic()
        _learn(run, folder, task, model, optimizer, progress, log, world)
        log.write("trained", seconds=round(time.monotonic() - began, 2))
        _finish(folder, model, run, sizes)
        log.say("scoring the answers to the validation and test data …")
        scores = _scores(task, model, log)
        write_json(folder / "scores.json", scores)
        log.say(f"trained in {time.monotonic() - began:.0f} s; the run is in {folder}")
    return scores


@dataclass
class Progress:
    """Where a run stands: all that decides how it goes on, besides the weights and the optimiser."""

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    waited: int = 0
    """Evaluations since the best."""

    def judge(self, loss: float) -> bool:
        """Take in a validation loss; whether it is the best so far."""
        if loss < self.best:
            self.best, self.best_step, self.waited = loss, self.step, 0
            return True
        self.waited += 1
        return False


def _learn(run: Run, folder: Path, task: Task[Any], model: nn.Module, optimizer: torch.optim.AdamW,
           progress: Progress, log: Log, world: World) -> None:
    """Batch after batch, with an evaluation and a checkpoint now and then."""
    how, device = run.train, next(model.parameters()).device
    precision = _precision(how, device)
    plan = Plan(task.lengths("train"), tokens=how.batch_tokens, seed=run.seed, shapes=how.shapes)
    evaluate_every, save_every = _intervals(how)
    update = make_update(model, task, optimizer, how, device=device, precision=precision, world=world)
    _introduce(log, task, model, plan, device, precision)
    if progress.step:
        log.say(f"going on from step {progress.step:,} of {how.steps:,}")

    def out_of_patience() -> bool:
        return how.patience is not None and progress.waited >= how.patience

    def make(step: int) -> Batch:
        return task.collate("train", plan[step].share(world.rank, world.size)).ready(device)  # type: ignore[no-any-return]

    for step, batch in ahead(make, progress.step, progress.step if out_of_patience() else how.steps):
        # The randomness of a step depends on nothing before it: a run that goes on draws what it would have drawn.
        torch.manual_seed(int(np.random.SeedSequence([run.seed, step, world.rank]).generate_state(1)[0]))
        report = update(batch, step)
        progress.step = step + 1
        log.count(progress.step, batch.counts["nll"])
        last = progress.step == how.steps
        if log.is_due(progress.step):
            log.step(progress.step, loss=float(report.totals["nll"]) / batch.counts["nll"], norm=float(report.norm))
        if progress.step % evaluate_every == 0 or last:
            loss = validation_loss(model, task, "val", tokens=how.batch_tokens, precision=precision)
            if progress.judge(loss):
                write_tensors(folder / "best.safetensors", named_tensors(model))
            log.evaluation(progress.step, loss, best=progress.best_step == progress.step)
            last = last or out_of_patience()
        if progress.step % save_every == 0 or last:
            save_checkpoint(folder, progress.step, weights=named_tensors(model), optimizer=_tensors(optimizer),
                            state=asdict(progress))
            prune(folder, max(how.keep, how.average))
        if last and progress.step < how.steps:
            log.say(f"stopped: no better validation loss in {how.patience} evaluations")
            break


def _intervals(how: Train) -> tuple[int, int]:
    """Steps between evaluations, and between checkpoints."""
    evaluate = how.evaluate_every or max(1, how.steps // 10)
    return evaluate, how.save_every or evaluate


def _precision(how: Train, device: torch.device) -> torch.dtype:
    if how.precision == "auto":
        return torch.bfloat16 if fast_bfloat16(device) else torch.float32
    return torch.bfloat16 if how.precision == "bfloat16" else torch.float32


@contextmanager
def _deterministic(how: Train) -> Iterator[None]:
    """The same bits in every run on a GPU; a CPU at an equal number of threads gives them anyway."""
    before = torch.are_deterministic_algorithms_enabled()
    if how.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _resume(folder: Path, model: nn.Module, optimizer: torch.optim.AdamW) -> Progress:
    """Go on from the newest whole checkpoint, if there is one."""
    for checkpoint in Checkpoint.all(folder):
        if checkpoint.verify() is None:
            load_weights(model, checkpoint.weights(), origin=str(checkpoint.folder))
            _restore(optimizer, checkpoint.optimizer())
            return Progress(**checkpoint.state())
    return Progress()


def _tensors(optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """The optimiser's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor.detach().cpu().contiguous()
            for number, values in state.items() for name, tensor in values.items()}


def _restore(optimizer: torch.optim.AdamW, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _introduce(log: Log, task: Task[Any], model: nn.Module, plan: Plan, device: torch.device,
               precision: torch.dtype) -> None:
    parameters = sum(p.numel() for p in model.parameters())
    log.say(f"{len(task.lengths('train')):,} examples, {plan.steps_per_epoch:,} steps per epoch; "
            f"{parameters:,} parameters; {device.type}, {str(precision).removeprefix('torch.')}")
    for note in task.notes:
        log.say(f"note: {note}")


def _finish(folder: Path, model: nn.Module, run: Run, sizes: Sizes) -> None:
    """The mean of the newest checkpoints, or the best by the validation loss, is the model."""
    best = folder / "best.safetensors"
    if not best.exists():
        raise NotFinite("the validation loss was never a number; a lower train.rate may help")
    newest = [checkpoint for checkpoint in Checkpoint.all(folder) if checkpoint.verify() is None][: run.train.average]
    weights = average(newest) if run.train.average > 1 else load_file(best)
    load_weights(model, weights, origin=str(folder))
    model.eval()
    write_model(folder, weights, {"model_type": "regard", "task": run.task, "sizes": dict(sizes), **asdict(run.model)})


def _scores(task: Task[Any], model: nn.Module, log: Log) -> dict[str, Any]:
    scores = {}
    for split in [split for split in task.splits() if split != "train"]:
        scores[split] = task.score(model, split)
        log.write("score", split=split, **scores[split])
    return scores
