"""The loop that trains. It reads from top to bottom."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import get_terminal_size
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard import manifest
from regard.checkpoint import Checkpoint, Saver, average, load_weights, named_tensors, read_json, write_json
from regard.convert.import_export import write_run_model
from regard.convert.peft import write_adapter
from regard.cores import Waiting, threads_kept
from regard.data.batch import Batch, BatchSampler
from regard.data.loader import prefetch
from regard.data.prepared import restored
from regard.data.visible import visible
from regard.device import choose_device, fits
from regard.nn.init import initialize
from regard.nn.lora import merged
from regard.runs.lock import hold
from regard.settings.errors import Failure, NotFinite, Stopped, UserError, count
from regard.settings.load import refuse_another, to_json
from regard.settings.schema import Run, Search, Train
from regard.stdio import is_terminal, print_message
from regard.tasks import make
from regard.tasks.base import Sizes, Task
from regard.training.dry_run import make_dry_run, measure
from regard.training.estimate import Parameters, outlook, precision_of
from regard.training.grad_monitor import GradMonitor
from regard.training.init_from import take_over, taken
from regard.training.log import Log, check_tracking
from regard.training.memory_check import refuse_too_large
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World, join
from regard.training.resume import Progress, refuse_foreign, resume, room_for, state_of, tensors_of
from regard.training.signals import Stop
from regard.training.trainable import scale_of, trainable_model
from regard.training.update import deterministic, make_update
from regard.training.validation import validation_loss

__all__ = ["train"]

# The tokenizer's file gets the length of the model's input.
WRITTEN_LAST = (*manifest.MODEL, *manifest.ADAPTER, "tokenizer_config.json")


def train(run: Run, folder: str | Path, *, quiet: bool = False) -> dict[str, Any]:
    """Train until the last step, write the model into `folder`, and return its test scores.

    If the folder already holds an unfinished run with the same settings, resume it. Among several processes, only the
    first returns the scores.
    """
    folder = Path(folder)
    if manifest.listed(folder, *manifest.SETTINGS) and (wrong := manifest.damage(folder, *manifest.SETTINGS)):
        raise UserError(f"{wrong}; start a new run with --out DIR, or put a copy of it there")
    refuse_another(folder / "run.json", run)
    check_tracking(run.train)
    device = choose_device(run.device)  # refuses a missing device before anything is written
    with (Stop("finishing the step; again to end at once") as stop, join(device, timeout=run.train.timeout) as world,
          threads_kept()):
        if world.rank:
            return _train(run, folder, stop, world, quiet=True)
        with hold(folder, _silent if quiet else print_message):
            return _train(run, folder, stop, world, quiet=quiet)


def _train(run: Run, folder: Path, stop: Stop, world: World, *, quiet: bool) -> dict[str, Any]:
    device = choose_device(run.device)
    task: Task[Any, Any] = make(run)
    refuse_too_large(run, device=device, processes=world.size)  # before the data is read, which may take long
    sizes = _prepare(task, folder, stop, world, quiet=quiet)
    refuse_too_large(run, sizes, device=device, processes=world.size)
    model = trainable_model(task, sizes)
    if world.rank == 0:  # unreadable or too large data must leave no run behind
        if run.train.init_from is not None and not (folder / "run.json").exists():
            taken(model, run, sizes)
        manifest.forget(folder, *manifest.SETTINGS)
        write_json(folder / "run.json", to_json(run))
        manifest.seal(folder, *manifest.SETTINGS)
    initialize(model, seed=run.seed, attention=run.model.init)
    model.to(device).train()
    world.parallelize(model, run.train, precision=precision_of(run.train, device))
    optimizer = make_optimizer(model, run.train, device=device)
    own = folder if world.rank == 0 else None
    with (Log(own, run.train, quiet=quiet, counted=task.counted) as log, deterministic(run.train),
          ExitStack() as waiting):
        progress = resume(folder, run, model, optimizer, world, say=log.say)
        if run.train.init_from is not None and not progress.step:
            take_over(model, run, sizes, world, say=log.say)
        waiting.enter_context(Waiting(torch.get_num_threads() if device.type == "cpu" else 1))
        log.begin(progress.step)
        began = time.monotonic()
        Learning(run, folder, task, model, optimizer, progress, log, stop, world).learn(sizes)
        log.write("trained", seconds=round(time.monotonic() - began, 2))
        if world.rank:
            return {}
        weights = _finish(folder, run, sizes, progress, log)
        if run.train.fsdp or run.train.trainable == "lora":
            del model, optimizer  # each may be a shard or have adapters; the scores need the whole model
            model = task.build(sizes).to(device)
        load_weights(model, weights, origin=str(folder))
        model.eval()
        log.say("scoring the answers to the validation and test data …")
        with stop.at_once("stopped before the scores were known; the same command resumes from there"):
            scores = _scores(task, model, log, run.search)
        manifest.forget(folder, *manifest.SCORES)
        write_json(folder / "scores.json", scores)
        manifest.seal(folder, *manifest.SCORES)
        log.say(f"trained in {time.monotonic() - began:.0f} s; the run is in {folder}")
    return scores


def _silent(text: str) -> None:
    pass


def _prepare(task: Task[Any, Any], folder: Path, stop: Stop, world: World, *, quiet: bool) -> Sizes:
    """The first process reads and prepares the data; the others open the result."""
    if not quiet and is_terminal(sys.stderr):
        print_message("reading the data and learning its tokens …")
    if world.rank:
        world.wait()
        return restored(task.data, folder)
    if world.size == 1:
        with stop.at_once("stopped before the first step; the same command starts again"):
            return task.data.prepare(folder)
    sizes = task.data.prepare(folder)  # to its end: the others are waiting
    world.wait()
    return sizes


@dataclass
class Learning:
    """A run in training: batch after batch, with an evaluation and a checkpoint at intervals.

    The state of the run decides what follows a step, so the run can stop in between.
    """

    run: Run
    folder: Path
    task: Task[Any, Any]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    progress: Progress
    log: Log
    stop: Stop
    world: World

    def __post_init__(self) -> None:
        how, progress = self.run.train, self.progress
        self.how, self.device = how, next(self.model.parameters()).device
        self.precision = precision_of(how, self.device)
        self.plan = BatchSampler(self.task.data.lengths("train"), tokens=how.batch_tokens, seed=self.run.seed,
                                 length_buckets=how.length_buckets)
        self.update = make_update(self.model, self.task, self.optimizer, how, device=self.device,
                                  precision=self.precision, world=self.world)
        self.grad_monitor = GradMonitor(self.log, most=how.max_skipped_updates, clip=how.grad_clip,
                                        skipped=progress.skipped, in_row=progress.skipped_in_row)
        self.saved, self.stopping, self.was_deleted = progress.step, False, False
        self.data_key = _data_key(self.folder)

    def learn(self, sizes: Sizes) -> None:
        how, progress, world = self.how, self.progress, self.world
        self.introduce(sizes)
        evaluate_every, save_every = _intervals(how)
        room = room_for(self.model) if world.rank == 0 and not how.fsdp else 0
        with Saver(self.folder, keep=how.keep_checkpoints, room=room) as saver:
            batches = prefetch(self.batch, progress.step, how.steps)
            while True:
                is_due = progress.step % evaluate_every == 0 or progress.step == how.steps
                is_best = is_due and progress.evaluated < progress.step and not self.stopping and self.evaluate()
                is_last = progress.step == how.steps or (how.patience is not None and progress.waited >= how.patience)
                if self.saved < progress.step and (
                        progress.step % save_every == 0 or is_best or is_last or self.stopping):
                    self.save(saver)
                if self.stopping or self.was_deleted or is_last:
                    break
                self.step(batches)
            batches.close()
            saver.wait()
            world.wait()  # a process that left now would look like a failure and end the first while it still writes
        if self.was_deleted:
            sentence = (f"{self.folder} was deleted or moved during the training; step {progress.step:,} of "
                        f"{how.steps:,} is saved there, and the same command resumes from it")
            raise Stopped(sentence, self.stop.exit_code if self.stop.asked else Failure.exit_code)
        if self.stopping:  # at the last step, too: its scores are not known yet
            raise Stopped(f"stopped after step {progress.step:,} of {how.steps:,}, which is saved in {self.folder}; "
                          "the same command resumes from there", self.stop.exit_code)
        if progress.step < how.steps:
            self.log.say(f"stopped: no better validation loss in {count(progress.waited, 'evaluation')}")

    def introduce(self, sizes: Sizes) -> None:
        log, how, world = self.log, self.how, self.world
        if not log.quiet:
            foretold = outlook(self.task, sizes, self.plan, how, device=self.device, precision=self.precision,
                               gpus=world.size)
            where = f"{world.size} processes on {self.device.type}" if world.size > 1 else self.device.type
            if self.device.type == "cpu":
                where += f" ({count(torch.get_num_threads(), 'thread')}{' each' * (world.size > 1)})"
            examples, steps = len(self.task.data.lengths("train")), self.plan.steps_per_epoch
            log.say(f"{count(examples, 'example')}, {count(steps, 'step')} per epoch; {foretold}; "
                    f"{where}, {str(self.precision).removeprefix('torch.')}")
            if how.init_from is not None or how.freeze_layers:
                log.say(Parameters.of(self.model).shares)
            for note in self.task.notes:
                log.say(f"note: {note}")
            if self.task.data.first:
                log.say(visible(f"first example: {self.task.data.first}", get_terminal_size((100, 24)).columns))
        if self.progress.step:
            log.say(f"resuming from step {self.progress.step:,} of {how.steps:,}")
        if how.deterministic and self.device.type == "cuda" and not log.quiet:
            log.say(_price(self.run, self.device, self.precision))

    def batch(self, step: int) -> Batch:
        chosen = self.plan[step].share(self.world.rank, self.world.size)
        return self.task.data.collate("train", chosen).ready(self.device)  # type: ignore[no-any-return]

    def step(self, batches: Iterator[tuple[int, Batch]]) -> None:
        """Update the weights with the next batch."""
        how, log, world = self.how, self.log, self.world
        waiting = time.monotonic()
        step, batch = next(batches)
        waited = time.monotonic() - waiting
        # The randomness of a step depends on nothing before it: a resumed run draws the same numbers.
        torch.manual_seed(int(np.random.SeedSequence([self.run.seed, step, world.rank]).generate_state(1)[0]))
        *counts, asked, due = world.sum([*batch.counts.values(), self.stop.asked, log.is_due(step + 1)])
        whole = dict(zip(batch.counts, counts, strict=True))
        with fits(f"a batch ({_shapes(batch)})", f"lower train.batch_tokens={how.batch_tokens}, raise "
                   f"train.accumulate={how.accumulate}, or set train.activation_checkpointing=true"):
            report = self.update(batch, step, whole)
        self.progress.step = step + 1
        self.grad_monitor.note(step + 1, report.norm)
        log.count(step + 1, int(whole["nll"]), waited)
        self.stopping = asked > 0 or (world.size == 1 and self.stop.asked)
        if due or self.stopping:
            loss = world.sum([float(report.totals["nll"])])[0] / max(1, whole["nll"])
            log.step(step + 1, loss=loss, norm=float(report.norm))

    def evaluate(self) -> bool:
        """Whether the validation loss is the best so far. A request to stop interrupts the evaluation."""
        tokens = self.how.batch_tokens
        with fits("a batch of the validation data", f"lower train.batch_tokens={tokens}"):
            loss = validation_loss(self.model, self.task, "val", tokens=tokens, precision=self.precision,
                                   world=self.world, stop=self.stop)
        self.stopping = loss is None
        if loss is None:
            return False
        is_best = self.progress.judge(loss)
        self.log.evaluation(self.progress.step, loss, best=is_best)
        return is_best

    def save(self, saver: Saver) -> None:
        """Keep the best checkpoint, the newest, and those for the final mean."""
        progress, world = self.progress, self.world
        self.grad_monitor.settle()
        progress.skipped, progress.skipped_in_row = self.grad_monitor.skipped, self.grad_monitor.in_row
        weights, averages = world.collect(named_tensors(self.model)), world.collect(tensors_of(self.optimizer))
        is_gone = world.rank == 0 and not (self.folder / "run.json").exists()
        self.was_deleted = world.sum([is_gone])[0] > 0
        if world.rank == 0:
            if is_gone:
                self.begin_folder_again()
            also = {progress.best_step, *_averaged(self.how, progress.step)}
            saver.save(progress.step, weights=weights, optimizer=averages, state=state_of(progress, self.run, world),
                       also=also)
        self.saved = progress.step
        self.log.write("saved", step=self.saved, stalled=round(saver.stalled, 3))

    def begin_folder_again(self) -> None:
        """Restore a deleted folder: with its data, run.json and a checkpoint, the run can be resumed."""
        progress = self.progress
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            make(self.run).data.prepare(self.folder)
        except UserError as error:
            raise Failure(f"{self.folder} was deleted or moved during the training, and it cannot be prepared again: "
                          f"{error}") from error
        if _data_key(self.folder) != self.data_key:
            raise Failure(f"{self.folder} was deleted or moved during the training, and its data has changed since "
                          "this run began: nothing more is saved")
        write_json(self.folder / "run.json", to_json(self.run))
        manifest.seal(self.folder, *manifest.SETTINGS)
        if progress.best_step != progress.step:  # the best checkpoint is gone: the next evaluation is the best so far
            progress.best, progress.best_step, progress.evaluated = None, 0, 0


def _data_key(folder: Path) -> Any:
    """The key that identifies the prepared data."""
    return read_json(folder / "data" / "key.json")["key"]


def _averaged(how: Train, step: int) -> list[int]:
    """The steps whose checkpoints would be averaged if the run ended at `step`."""
    _, every = _intervals(how)
    regular = range(step - step % every, 0, -every)
    return list(dict.fromkeys([step, *regular]))[: how.average_checkpoints] if how.average_checkpoints > 1 else []


def _intervals(how: Train) -> tuple[int, int]:
    """Steps between evaluations, and between checkpoints."""
    evaluate = how.evaluate_every or max(1, how.steps // 10)
    return evaluate, how.save_every or evaluate


def _price(run: Run, device: torch.device, precision: torch.dtype) -> str:
    """The cost of train.deterministic on this GPU, measured with a few steps of a model of this size."""
    def step(how: Train) -> float:
        with deterministic(how):
            return median(measure(dry_run, replace(run, train=how), device=device, precision=precision))

    dry_run, free = make_dry_run(run), replace(run.train, deterministic=False)
    strict, loose = step(run.train), step(free)
    more = strict / loose - 1
    return f"train.deterministic: {1000 * strict:.2f} ms a step instead of {1000 * loose:.2f} ({more:+.0%})"


def _shapes(batch: Batch) -> str:
    return ", ".join(f"{name} {'×'.join(map(str, tensor.shape))}" for name, tensor in batch.tensors().items())


def _finish(folder: Path, run: Run, sizes: Sizes, progress: Progress, log: Log) -> dict[str, Tensor]:
    """Write the model: the mean of the newest checkpoints, or the one with the best validation loss."""
    if progress.best is None:
        raise NotFinite("the validation loss was never finite; lower train.learning_rate")
    steps = _averaged(run.train, progress.step) or [progress.best_step]
    chosen = [checkpoint for checkpoint in Checkpoint.all(folder) if checkpoint.step in steps]
    whole = [checkpoint for checkpoint in chosen if checkpoint.verify() is None]
    if not whole:
        raise Failure(f"{folder / 'checkpoints'}: the checkpoint of step {steps[0]:,} is missing or damaged; it would "
                      "have been the model. Delete the newer ones and start the same command again")
    if len(whole) < len(steps):
        log.say(f"note: {len(steps) - len(whole)} of {len(steps)} checkpoints to be averaged are missing or damaged")
    if (made_of := _made_of(sorted(checkpoint.step for checkpoint in whole), progress.step)) is not None:
        log.say(made_of)
    for checkpoint in whole:
        refuse_foreign(checkpoint, run)
    weights = average(whole)
    manifest.forget(folder, *WRITTEN_LAST)
    if run.train.trainable == "lora":
        if not write_adapter(folder, run, sizes, weights):
            log.say("note: PEFT supports no model of this shape; the adapters are only in model.safetensors, merged")
        weights = merged(weights, scale=scale_of(run.train))
    write_run_model(folder, run, sizes, weights)
    manifest.seal(folder, *WRITTEN_LAST)
    return weights


def _made_of(steps: Sequence[int], last: int) -> str | None:
    """A sentence about the model's checkpoints, if it is not simply that of the last step.

    >>> _made_of([80, 90, 1_000], last=1_000)
    'the model is the mean of the checkpoints of steps 80, 90 and 1,000'
    >>> _made_of([80], last=100)
    'the model is the checkpoint of step 80, the best by its validation loss'
    """
    if steps == [last]:
        return None
    named = [f"{step:,}" for step in steps]
    if len(named) == 1:
        return f"the model is the checkpoint of step {named[0]}, the best by its validation loss"
    return f"the model is the mean of the checkpoints of steps {', '.join(named[:-1])} and {named[-1]}"


def _scores(task: Task[Any, Any], model: nn.Module, log: Log, how: Search) -> dict[str, Any]:
    scores = {}
    for split in [split for split in task.data.splits() if split != "train"]:
        with fits("answering the examples", f"lower search.batch={how.batch} or search.beam={how.beam}"):
            scores[split] = task.score(model, split)
        log.write("score", split=split, **scores[split])
    return scores
