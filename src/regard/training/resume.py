"""The progress of a run, and how to resume it."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import Checkpoint, load_weights, named_tensors, newest, refuse_misfits, versions
from regard.cores import choose_threads, is_chosen
from regard.settings.errors import Failure, UserError
from regard.settings.load import conflicts, from_json, to_json
from regard.settings.schema import Run
from regard.training.muon import Muon
from regard.training.parallel import World
from regard.training.sgd import SGD

__all__ = ["Progress", "refuse_foreign", "resume", "room_for", "state_of", "tensors_of"]

MOST_THREADS = 1024  # a larger number in a checkpoint is not believed
MOST_STEPS = 2**53  # every count in a checkpoint must be below: a float holds it exactly


@dataclass
class Progress:
    """The state of a run, in addition to the weights and the optimizer.

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
    """Updates that were skipped because their gradient was not finite; and how many of them at the end."""
    skipped_in_row: int = 0
    goal: int = 0
    """The step at which the run was to end when this was written."""

    def wrong(self, step: int, steps: int) -> str | None:
        """An inconsistency for a checkpoint of this step in a run of `steps` steps, or None."""
        if self.step != step:
            return f"step={self.step}: in the folder of step {step}"
        for name, most, of in (("goal", steps, "the run's steps"), ("step", self.goal, "goal"),
                               ("evaluated", self.step, "step"), ("best_step", self.evaluated, "evaluated"),
                               ("skipped", self.step, "step"), ("skipped_in_row", self.skipped, "skipped"),
                               ("waited", self.step, "step")):
            if getattr(self, name) > most:
                return f"{name}={getattr(self, name)}: more than {of}, {most}"
        if (self.best is None) != (self.best_step == 0):
            return f"best_step={self.best_step}: with a best loss of {self.best}"
        return None

    def judge(self, loss: float) -> bool:
        """Record a validation loss; true if it is the best so far."""
        self.evaluated = self.step
        if loss < (float("inf") if self.best is None else self.best):
            self.best, self.best_step, self.waited = loss, self.step, 0
            return True
        self.waited += 1
        return False


def resume(folder: Path, run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, world: World, *,
           say: Callable[[str], None]) -> Progress:
    """Resume from the newest whole checkpoint, if there is one. All processes take the same one."""
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
                      "resumes from: all machines need the same folder, on a file system they share")
    state = refuse_foreign(checkpoint, run)
    place = checkpoint.folder / "state.json"
    if on_cpu and not is_chosen():
        _take_threads(state)
    try:
        _refuse_kinds(state["progress"], place)
        progress, changes = Progress(**state["progress"]), _changes(state, world, on_cpu=on_cpu)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # undamaged, but of another format
        raise UserError(f"{place}: written by another version of regard ({error}); start a new run with --out "
                        "DIR") from error
    if wrong := progress.wrong(checkpoint.step, run.train.steps):
        raise UserError(f"{place}: progress.{wrong}: the checkpoint is damaged; delete {checkpoint.folder} to resume "
                        "from an older one")
    weights, averages = checkpoint.weights(), checkpoint.optimizer()
    refuse_unusable(named_tensors(model), weights, origin=checkpoint.folder / "model.safetensors")
    refuse_unusable(_begun(layout(optimizer), averages), averages,
                    origin=checkpoint.folder / "optimizer.safetensors", most=progress.step)
    load_weights(model, world.spread(weights, named_tensors(model)), origin=str(checkpoint.folder))
    _restore(optimizer, averages, world)
    for sentence in changes:
        say(f"note: {sentence}")
    if progress.goal != run.train.steps:  # lengthened: its patience restarts
        progress.goal, progress.waited = run.train.steps, 0
    return progress


def _take_threads(state: Mapping[str, Any]) -> None:
    """Use as many threads as before, regardless of free cores: sums on a CPU depend on it."""
    recorded = state.get("threads")
    if isinstance(recorded, int) and 1 <= recorded <= MOST_THREADS:
        torch.set_num_threads(recorded)


def _refuse_kinds(kept: Any, place: Path) -> None:
    """Refuse progress that contains anything but numbers."""
    for name, value in dict(kept).items():
        is_loss = value is None or (type(value) is float and math.isfinite(value))
        if not (is_loss if name == "best" else type(value) is int and 0 <= value < MOST_STEPS):
            raise UserError(f"{place}: progress.{name}={value!r}: must be a {'loss' if name == 'best' else 'number'}; "
                            f"delete {place.parent} to resume from an older one")


def refuse_foreign(checkpoint: Checkpoint, run: Run) -> dict[str, Any]:
    """The state of a checkpoint; refuse one of a run with other settings.

    The number of steps may have grown. A checkpoint holds the same tensors whether the run is sharded or not.
    """
    state, place = checkpoint.state(), checkpoint.folder / "state.json"
    settings = state.get("settings")
    if isinstance(settings, str) and re.fullmatch(r"[0-9a-f]{64}", settings):
        return state  # of an older version, which kept only their digest
    try:
        other = from_json(settings)
    except UserError as error:
        raise UserError(f"{place}: settings: {error}; delete {checkpoint.folder} to resume from an older one") from None
    same = replace(other, train=replace(other.train, steps=run.train.steps, fsdp=run.train.fsdp))
    if changed := conflicts(same, run):
        raise UserError(f"{checkpoint.folder} is of a run with other settings:\n  " + "\n  ".join(changed)
                        + "\nDelete it to resume from an older one, or put this run's own checkpoint there.")
    return state


def layout(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state after a step, by number and name; each value has the tensor's shape."""
    found: dict[str, Tensor] = {}
    of_groups = ((p, group["momentum"] if isinstance(optimizer, SGD) else None)
                 for group in optimizer.param_groups for p in group["params"])
    for number, (p, momentum) in enumerate(of_groups):
        if momentum is not None or (isinstance(optimizer, Muon) and p in optimizer.parts):
            names: tuple[str, ...] = () if momentum == 0 else ("momentum",)
        else:
            names = "exp_avg", "exp_avg_sq"
            found[f"{number}.step"] = torch.zeros((), dtype=torch.float32)
        found |= {f"{number}.{name}": p for name in names}
    return found


def _begun(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The expected tensors of the parameters that have state: one that never had a gradient has none."""
    numbers = {name.partition(".")[0] for name in tensors}
    return {name: tensor for name, tensor in wanted.items() if name.partition(".")[0] in numbers}


def refuse_unusable(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], *, origin: Path,
                    most: int | None = None) -> None:
    """Refuse tensors that do not match the model or the optimizer in name, shape, type or range."""
    refuse_misfits(wanted, tensors, origin=str(origin))
    wrong = [f"{name}: {tensor.dtype} instead of {wanted[name].dtype}" for name, tensor in tensors.items()
             if tensor.dtype != wanted[name].dtype]
    wrong += [f"{name}: {reason}" for name, tensor in tensors.items() if (reason := _unusable(name, tensor, most))]
    if wrong:
        named = "; ".join(sorted(wrong)[:8]).replace("torch.", "")
        raise UserError(f"{origin} is damaged: {named}; delete {origin.parent} to resume from an older one")


def _unusable(name: str, tensor: Tensor, most: int | None) -> str | None:
    if not tensor.is_floating_point():
        return None
    if name.endswith(".exp_avg_sq"):  # a mean of squares may overflow: its weight then stays the same
        return None if bool((tensor >= 0).all()) else "not all of it is at least 0"
    if most is not None and name.endswith(".step"):
        step = float(tensor)  # 0 if every update was skipped
        return None if 0 <= step <= most and step.is_integer() else f"{step} of {most} steps"
    return None if bool(tensor.isfinite().all()) else "not all of it is finite"


def state_of(progress: Progress, run: Run, world: World) -> dict[str, Any]:
    """The content of a checkpoint's state.json."""
    return {"progress": asdict(progress), "settings": to_json(run), **_surroundings(world)}


def _surroundings(world: World) -> dict[str, Any]:
    return {"versions": versions(), "threads": torch.get_num_threads(), "processes": world.size}


def _changes(state: Mapping[str, Any], world: World, *, on_cpu: bool) -> list[str]:
    """Changes that prevent the run from being bit for bit that of an uninterrupted one."""
    now = _surroundings(world)
    sentences = []
    if state["threads"] != now["threads"] and on_cpu:
        sentences.append(f"the number of threads was {state['threads']} and is now {now['threads']}: sums on a CPU "
                         "differ in their last bits (OMP_NUM_THREADS sets the number)")
    if state["processes"] != now["processes"]:
        sentences.append(f"the number of processes was {state['processes']} and is now {now['processes']}: the same "
                         "data in other shares; sums differ in their last bits")
    for name, version in now["versions"].items():
        if state["versions"].get(name) != version:
            sentences.append(f"{name} was {state['versions'].get(name)} and is now {version}: numbers may differ")
    return sentences


def tensors_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor for number, values in state.items() for name, tensor in values.items()}


def room_for(model: nn.Module) -> int:
    """Bytes of a checkpoint that come from a GPU: each weight and, if it learns, its two moments, and a little more."""
    return sum((3 if p.requires_grad else 1) * p.nbytes + 1024 for p in model.parameters() if p.is_cuda)


def _restore(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], world: World) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    like = {key: parameters[int(key.split(".")[0])] for key in tensors if not key.endswith(".step")}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in world.spread(tensors, like).items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
