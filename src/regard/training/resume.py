"""Where a run stands, and how it goes on from there."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import Checkpoint, load_weights, named_tensors, newest, versions
from regard.settings.errors import Failure, UserError
from regard.settings.load import to_json
from regard.settings.schema import Run
from regard.tasks.cores import choose_threads, is_chosen
from regard.training.parallel import World

__all__ = ["Progress", "resume", "room_for", "state_of", "tensors_of"]

MOST_THREADS = 1024  # that a checkpoint is believed to have been trained with


@dataclass
class Progress:
    """All that decides how a run goes on, besides the weights and the optimiser.

    The place in the data, the learning rate and all randomness follow from the settings and the step.
    """

    step: int = 0
    evaluated: int = 0
    """The step of the last evaluation."""
    best: float | None = None
    """The lowest validation loss, and its step."""
    best_step: int = 0
    waited: int = 0
    """Evaluations since the best."""
    skipped: int = 0
    """Updates that were not applied, their gradient not being finite; and how many of them came last."""
    skipped_in_row: int = 0
    goal: int = 0
    """The step at which the run was to end when this was written."""

    def judge(self, loss: float) -> bool:
        """Take in a validation loss; whether it is the best so far."""
        self.evaluated = self.step
        if loss < (float("inf") if self.best is None else self.best):
            self.best, self.best_step, self.waited = loss, self.step, 0
            return True
        self.waited += 1
        return False


def resume(folder: Path, run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, world: World, *,
           say: Callable[[str], None]) -> Progress:
    """Go on from the newest whole checkpoint, if there is one. All processes from the same."""
    found = newest(folder, say=say) if world.rank == 0 else None
    step = int(world.sum([found.step if found else 0])[0])
    on_cpu = next(model.parameters()).device.type == "cpu"
    if not step:
        if on_cpu and world.size == 1:
            torch.set_num_threads(choose_threads(torch.get_num_threads()))
        return Progress(goal=run.train.steps)
    checkpoint = found or next((c for c in Checkpoint.all(folder) if c.step == step), None)
    if checkpoint is None:
        raise Failure(f"{folder}: process {world.rank} does not see the checkpoint of step {step:,} that the first one "
                      "goes on from: all machines need the same folder, on a file system they share")
    load_weights(model, world.spread(checkpoint.weights(), named_tensors(model)), origin=str(checkpoint.folder))
    _restore(optimizer, checkpoint.optimizer(), world)
    state = checkpoint.state()
    if on_cpu and not is_chosen():
        _take_threads(state)
    try:
        progress, changes = Progress(**state["progress"]), _changes(state, world)
    except (KeyError, TypeError) as error:  # whole, but not of this kind
        raise UserError(f"{checkpoint.folder / 'state.json'}: written by another version of regard ({error}); train "
                        "anew with --out DIR") from error
    for sentence in changes:
        say(f"note: {sentence}")
    if progress.goal != run.train.steps:  # lengthened: its patience begins anew
        progress.goal, progress.waited = run.train.steps, 0
    return progress


def _take_threads(state: Mapping[str, Any]) -> None:
    """As many as there were, however many cores are free now: sums on a CPU depend on it."""
    recorded = state.get("threads")
    if isinstance(recorded, int) and 1 <= recorded <= MOST_THREADS:
        torch.set_num_threads(recorded)


def state_of(progress: Progress, run: Run, world: World) -> dict[str, Any]:
    """What a checkpoint says besides its tensors."""
    digest = hashlib.sha256(json.dumps(to_json(run), sort_keys=True).encode()).hexdigest()
    return {"progress": asdict(progress), "seed": run.seed, "settings": digest, **_surroundings(world)}


def _surroundings(world: World) -> dict[str, Any]:
    return {"versions": versions(), "threads": torch.get_num_threads(), "processes": world.size}


def _changes(state: Mapping[str, Any], world: World) -> list[str]:
    """What is not as it was, and keeps the run from ending bit for bit as if it had not been interrupted."""
    now = _surroundings(world)
    sentences = []
    if state["threads"] != now["threads"] and not torch.cuda.is_available():
        sentences.append(f"the number of threads was {state['threads']} and is now {now['threads']}: sums on a CPU "
                         "differ in their last bits (OMP_NUM_THREADS sets the number)")
    if state["processes"] != now["processes"]:
        sentences.append(f"the number of processes was {state['processes']} and is now {now['processes']}: the same "
                         "data, shared otherwise; sums differ in their last bits")
    for name, version in now["versions"].items():
        if state["versions"].get(name) != version:
            sentences.append(f"{name} was {state['versions'].get(name)} and is now {version}: numbers may differ")
    return sentences


def tensors_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor for number, values in state.items() for name, tensor in values.items()}


def room_for(model: nn.Module) -> int:
    """Bytes of a checkpoint that come from a GPU: a weight and, if it learns, its two averages, and a little beside."""
    return sum((3 if p.requires_grad else 1) * p.nbytes + 1024 for p in model.parameters() if p.is_cuda)


def _restore(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], world: World) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    like = {key: parameters[int(key.split(".")[0])] for key in tensors if not key.endswith(".step")}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in world.spread(tensors, like).items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
