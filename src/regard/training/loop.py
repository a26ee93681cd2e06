"""The loop that trains. It reads from top to bottom."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
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
)
from regard.data.batch import Plan
from regard.data.loader import ahead
from regard.nn.init import initialize
from regard.settings.load import to_json
from regard.settings.schema import Run, Train
from regard.tasks import make
from regard.tasks.base import Sizes, Task
from regard.tasks.device import choose_device
from regard.training.evaluate import validation_loss
from regard.training.log import Log
from regard.training.optimizer import adamw
from regard.training.parallel import World
from regard.training.update import make_update

__all__ = ["train"]

SAY_EVERY = 50  # steps between two lines of the log


def train(run: Run, folder: Path, *, quiet: bool = False, world: World = World()) -> dict[str, Any]:
    """Train until the last step, write the model into `folder`, and give the scores of its tests."""
    device = choose_device(run.device)
    precision = _precision(run.train, device)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "run.json", to_json(run))

    task = make(run)
    sizes = task.prepare(folder)
    model: nn.Module = task.build(sizes)
    initialize(model, depth=run.model.depth, seed=run.seed)
    model.to(device).train()
    optimizer = adamw(model, run.train, device=device)
    progress = _resume(folder, model, optimizer)
    plan = Plan(task.lengths("train"), tokens=run.train.batch_tokens, seed=run.seed)
    how = run.train
    evaluate_every, save_every = _intervals(how)
    update = make_update(model, task, optimizer, how, device=device, precision=precision, world=world)

    log = Log(folder, steps=how.steps, start=progress["step"], quiet=quiet)
    _introduce(log, task, model, plan, how, device, precision)
    began = time.monotonic()
    batches = ahead(lambda step: task.collate("train", plan[step].share(world.rank, world.size)).ready(device),
                    progress["step"], how.steps)
    for step, batch in batches:
        # The randomness of a step depends on nothing before it: a run that goes on draws what it would have drawn.
        torch.manual_seed(hash((run.seed, step, world.rank)))
        report = update(batch, step)
        log.count(batch.counts["loss"])
        done = step + 1
        if done % SAY_EVERY == 0 or done == how.steps:
            log.step(done, loss=float(report.totals["nll"]) / batch.counts["nll"], norm=float(report.norm))
        if done % evaluate_every == 0 or done == how.steps:
            loss = validation_loss(model, task, "val", tokens=how.batch_tokens, precision=precision)
            log.write("evaluation", step=done, loss=loss)
            log.say(f"step {done:>6,}/{how.steps:,}  validation loss {loss:.4f}"
                    + ("  (the best so far)" if loss < progress["best"] else ""))
            if loss < progress["best"]:
                progress.update(best=loss, best_step=done, waited=0)
                save_file(named_tensors(model), folder / "best.safetensors")
            else:
                progress["waited"] += 1
        progress["step"] = done
        stop = how.patience is not None and progress["waited"] >= how.patience
        if done % save_every == 0 or done == how.steps or stop:
            save_checkpoint(folder, done, weights=named_tensors(model), optimizer=_tensors(optimizer), state=progress)
            prune(folder, max(how.keep, how.average))
        if stop:
            log.say(f"stopped: no better validation loss in {how.patience} evaluations")
            break

    log.write("trained", seconds=round(time.monotonic() - began, 2))
    _finish(folder, model, run, sizes, how)
    scores = _scores(task, model, log)
    write_json(folder / "scores.json", scores)
    log.say(f"trained in {time.monotonic() - began:.0f} s; the run is in {folder}")
    log.close()
    return scores


def _intervals(how: Train) -> tuple[int, int]:
    """Steps between evaluations, and between checkpoints."""
    evaluate = how.evaluate_every or max(1, how.steps // 10)
    return evaluate, how.save_every or evaluate


def _precision(how: Train, device: torch.device) -> torch.dtype:
    if how.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if how.precision == "bfloat16" else torch.float32


def _resume(folder: Path, model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Any]:
    """Go on from the newest whole checkpoint, if there is one."""
    for checkpoint in Checkpoint.all(folder):
        if checkpoint.verify() is None:
            load_weights(model, checkpoint.weights(), origin=str(checkpoint.folder))
            _restore(optimizer, checkpoint.optimizer())
            return checkpoint.state()
    return {"step": 0, "best": float("inf"), "best_step": 0, "waited": 0}


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


def _introduce(log: Log, task: Task[Any], model: nn.Module, plan: Plan, how: Train, device: torch.device,
               precision: torch.dtype) -> None:
    parameters = sum(p.numel() for p in model.parameters())
    log.say(f"{len(task.lengths('train')):,} examples, {plan.steps_per_epoch:,} steps per epoch; "
            f"{parameters:,} parameters; {device.type}, {str(precision).removeprefix('torch.')}")
    for note in task.notes:
        log.say(f"note: {note}")


def _finish(folder: Path, model: nn.Module, run: Run, sizes: Sizes, how: Train) -> None:
    """The mean of the newest checkpoints, or the best by the validation loss, is the model."""
    newest = Checkpoint.all(folder)[: how.average]
    weights = average(newest) if how.average > 1 else load_file(folder / "best.safetensors")
    load_weights(model, weights, origin=str(folder))
    model.eval()
    write_model(folder, weights, {"model_type": "regard", "task": run.task, "sizes": dict(sizes), **asdict(run.model)})


def _scores(task: Task[Any], model: nn.Module, log: Log) -> dict[str, Any]:
    scores = {}
    for split in [split for split in task.splits() if split != "train"]:
        scores[split] = task.score(model, split)
        log.write("score", split=split, **scores[split])
    return scores
