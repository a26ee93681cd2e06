"""`regard plan`: estimate a run before it starts."""

import json as jsons
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from regard.settings.errors import UserError, count
from regard.settings.schema import Run, Train
from regard.settings.setting import SETTINGS, of, written
from regard.stdio import print_message, print_result
from regard.tasks.traits import traits_of
from regard.verbs.train import settled

if TYPE_CHECKING:  # torch takes seconds to import: report errors in the options first
    import torch

    from regard.training.dry_run import DryRun
    from regard.training.estimate import Estimate, Machine

__all__ = ["main", "work"]

DEFAULT_GPU = "h200"  # for --gpus on a machine without a GPU
MAX_SPREAD = 2  # a slowest step that takes more times as long as the fastest: other programs use the machine
MAX_TIMED_SECONDS = 20.0  # seconds: a step that would take longer is computed
PETAFLOP_DAY = 1e15 * 86_400  # operations
MOST_GPUS = 1024  # where the search for something that fits ends


def main(task: str | None, data: Sequence[Path], source: str | None, target: str | None, recipe: Path | None,
         overrides: Sequence[str], length: int | None, tokens: float | None, gpus: int, on: str | None,
         memory: float | None, json: bool) -> None:
    run = settled(task, data, source, target, recipe, overrides)
    if tokens is not None and not math.isfinite(tokens):
        raise UserError(f"--tokens {tokens}: not a number of tokens")
    from regard.training.dry_run import make_dry_run
    from regard.training.memory_check import refuse_uncountable

    refuse_uncountable(run)
    place = _place(run, gpus, on, memory)
    dry_run = make_dry_run(run, length=length)
    if tokens is not None:
        run = replace(run, train=replace(run.train, steps=math.ceil(tokens / math.prod(dry_run.shape))))
    plan = Planned(run, dry_run, place)
    about = plan.about()
    if json:
        print_result(jsons.dumps(about, ensure_ascii=False))
    else:
        print_result(_table(about))


@dataclass(frozen=True)
class Place:
    """The devices of the run: those of this machine, or GPUs from a data sheet."""

    device: "torch.device"
    here: bool
    machine: "Machine | None"
    name: str
    memory: int
    gpus: int


def _place(run: Run, gpus: int, on: str | None, memory: float | None) -> Place:
    import torch

    from regard.device import available, choose_device
    from regard.training.estimate import MACHINES

    if memory is not None and not math.isfinite(memory):
        raise UserError(f"--memory {memory}: not a number of GiB")
    given = None if memory is None else round(memory * 2**30)
    if on is None and gpus > 1 and not torch.cuda.is_available():
        on = DEFAULT_GPU
    if on is not None:
        there = MACHINES[on].memory if given is None else given
        return Place(torch.device("cuda"), False, MACHINES[on], on.upper(), there, gpus)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device=cuda: not available here; plan for another GPU, as in --on {DEFAULT_GPU}")
    device = choose_device(run.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    machine = next((MACHINES[word] for word in re.findall(r"\w+", name.lower()) if word in MACHINES), None)
    found = available(device) if given is None else given
    if found is None:
        raise UserError("the memory of this machine is unknown; give it with --memory GIB")
    return Place(device, True, machine, name, found, gpus)


class Planned:
    """A run, its estimate, and the nearest settings that fit if it does not."""

    def __init__(self, run: Run, dry_run: "DryRun", place: Place) -> None:
        from regard.training.estimate import precision_of

        self.run, self.dry_run, self.place = run, dry_run, place
        self.precision = precision_of(run.train, place.device if place.here else None)
        self.estimate = self.estimated(run.train, place.gpus)
        self.fits = self.estimate.memory.reserved <= place.memory

    def estimated(self, how: Train, gpus: int) -> "Estimate":
        from regard.training.estimate import estimate

        dry_run = self.dry_run
        return estimate(dry_run.task, dry_run.sizes, dry_run.outline(gpus), how, device=self.place.device.type,
                        precision=self.precision, gpus=gpus, shapes=dry_run.shapes)

    def about(self) -> dict[str, Any]:
        """Everything, for JSON."""
        from regard.training.update import is_compiled

        found, rows, length = self.estimate, *self.dry_run.shape
        step, how, threads = self.seconds()
        parameters = self.dry_run.parameters()
        return {
            "task": self.run.task, "device": self.place.name, "gpus": self.place.gpus,
            "precision": str(self.precision).removeprefix("torch."),
            "compiled": is_compiled(self.run.train, self.place.device.type), "batch": {"rows": rows, "length": length},
            "parameters": parameters.total, "parts": parameters.parts,
            "learning": parameters.learning, "frozen": parameters.frozen,
            "work": work(self.dry_run, parameters.total, steps=self.run.train.steps),
            "memory": {**asdict(found.memory), "available": self.place.memory}, "fits": self.fits,
            "instead": None if self.fits else self.instead(),
            "seconds": {"step": step, "run": step * self.run.train.steps, "how": how,
                        "threads": threads},
            "steps": self.run.train.steps, "assumed": self.assumed()}

    def assumed(self) -> list[str]:
        """The assumptions about data that was not read."""
        from regard.training.dry_run import VOCABULARIES

        if traits_of(self.run.task).built_in_of(self.run) is None:
            return []
        assumed = {name: size for name, size in self.dry_run.sizes.items() if name not in self.dry_run.counted}
        sizes = ", ".join(f"{name} {size:,}" for name, size in assumed.items())
        learned = set(VOCABULARIES) & set(assumed)
        said = [f"{sizes} (tokens.vocabulary={self.run.tokens.vocabulary})" if learned else sizes] * bool(assumed)
        return [*said, f"{self.dry_run.shape[1]} tokens an example (--length)"] if self.dry_run.may_differ else said

    def seconds(self) -> tuple[float, str, int | None]:
        """Seconds of a step; whether they were measured; and on a CPU, with how many threads."""
        import torch

        from regard.cores import Waiting, choose_threads, threads_kept
        from regard.training.dry_run import measure, speed
        from regard.training.estimate import bytes_sent, seconds

        found, place, how = self.estimate, self.place, self.run.train
        if not place.here or (place.machine is not None and not self.fits):
            assert place.machine is not None
            return seconds(found.parameters, found.traced, how, place.machine, precision=self.precision,
                           gpus=place.gpus), "computed", None
        guess = found.traced.operations * how.accumulate / speed(place.device, self.precision)
        if guess > MAX_TIMED_SECONDS or not self.fits:
            return guess, "computed", None
        with threads_kept():
            if place.device.type == "cpu":  # as many as a run would have that began now
                torch.set_num_threads(choose_threads(torch.get_num_threads()))
            threads = torch.get_num_threads() if place.device.type == "cpu" else None
            print_message("timing a few steps …")
            with Waiting(threads or 1):  # as in a run: beside other processes, spinning threads take ten times as long
                took = measure(self.dry_run, self.run, device=place.device, precision=self.precision,
                               processes=place.gpus)
            step = median(took)
            if max(took) > MAX_SPREAD * min(took):
                print_message(f"note: a step took from {min(took):.2f} s to {max(took):.2f} s: other programs use this "
                              "machine; without them, expect the smaller number")
        if place.machine is not None:  # one GPU was measured; the others are heard meanwhile
            step = max(step, bytes_sent(found.parameters.sent(how), how, place.gpus) / place.machine.link)
        return step, "measured", threads

    def instead(self) -> str | None:
        """The nearest settings that would fit, as options."""
        for family in self._others():
            if family and self._would_fit(*family[-1]):  # the last needs the least
                how, gpus = next(one for one in family if self._would_fit(*one))
                other = replace(self.run, train=how)
                changed = [f"--set {path}={written(of(other, path))}" for path in SETTINGS
                           if of(other, path) != of(self.run, path)]
                return " ".join([*changed, *[f"--gpus {gpus}"] * (gpus != self.place.gpus)])
        return None

    def _would_fit(self, how: Train, gpus: int) -> bool:
        return self.estimated(how, gpus).memory.reserved <= self.place.memory

    def _others(self) -> Iterator[list[tuple[Train, int]]]:
        """Other ways to the same model, the cheapest first: smaller pieces, recomputation, shards, more GPUs."""
        how, gpus = self.run.train, self.place.gpus
        rows = -(-self.dry_run.shape[0] // gpus)
        pieces = [2**i for i in range(1, rows.bit_length() + 1) if how.accumulate < 2**i <= rows]
        yield [(replace(how, accumulate=count), gpus) for count in pieces]
        yield [(replace(how, activation_checkpointing=True, accumulate=count), gpus)
               for count in [how.accumulate, *pieces]]
        if self.place.device.type == "cuda":
            yield [(replace(how, fsdp=True), gpus)] if gpus > 1 else []
            counts = [gpus * 2**i for i in range(11) if 1 < gpus * 2**i <= MOST_GPUS]
            yield [(replace(how, activation_checkpointing=True, fsdp=True), count) for count in counts]


def work(dry_run: "DryRun", parameters: int, *, steps: int) -> dict[str, float]:
    """Floating-point operations of a whole run: in the products with the weights, and between queries and keys."""
    from regard.training.estimate import attention_operations

    tokens = steps * math.prod(dry_run.shape)
    weights = 6.0 * parameters * tokens
    each = attention_operations(dry_run.model(), dry_run.shape[1], dry_run.task.run.model.window)
    return {"tokens": tokens, "weights": weights, "attention": float(each * tokens),
            "petaflop_days": weights / PETAFLOP_DAY, "petaflop_days_attention": each * tokens / PETAFLOP_DAY}


def _table(about: dict[str, Any]) -> str:
    from regard.device import size_in_words

    memory, batch, time = about["memory"], about["batch"], about["seconds"]
    lines = [f"{'parameters':<16}{about['parameters']:>16,}"]
    frozen = about["frozen"]
    lines += [f"  {name:<14}{count:>16,}{_stays(frozen.get(name, 0), count)}" for name, count in about["parts"].items()]
    if frozen:
        lines += [f"{'learning':<16}{about['learning']:>16,}  ({about['learning'] / about['parameters']:.2%})"]
    where = f"{about['gpus']} × {about['device']}" if about["gpus"] > 1 else about["device"]
    kind = about["precision"] + ", compiled" * about["compiled"]
    lines += ["", f"memory of a step of {batch['rows']:,} × {batch['length']} tokens on {where}, {kind}"]
    lines += [f"  {name:<14}{size_in_words(memory[kind]):>16}" for kind, name in MEMORY_NAMES.items() if memory[kind]]
    lines += [f"{'peak':<16}{size_in_words(memory['total']):>16}  (gradients replace activations)"]
    if memory["reserved"] > memory["total"]:
        lines += [f"{'reserved':<16}{size_in_words(memory['reserved']):>16}  (with graphs of other shapes)"]
    lines += [f"{'available':<16}{size_in_words(memory['available']):>16}"]
    if not about["fits"]:
        lines += [f"does not fit; {about['instead']} would" if about["instead"] else
                  "does not fit with any of these settings; take a smaller model, or more GPUs"]
    how = time["how"] if time["threads"] is None else f"{time['how']}, {count(time['threads'], 'thread')}"
    lines += ["", f"{'a step':<16}{_duration(time['step']):>16}  ({how})",
              count(about["steps"], "step").ljust(16) + f"{_duration(time['run']):>16}  (without evaluations)"]
    work = about["work"]
    lines += ["", count(work["tokens"], "token"),
              f"{'  weights':<16}{work['weights']:>16.3g}  FLOP (6 × parameters × tokens)",
              f"{'  ':<16}{work['petaflop_days']:>16,.4g}  petaflop/s-days",
              f"{'  attention':<16}{work['attention']:>16.3g}  FLOP (every query with every key of its row)",
              f"{'  ':<16}{work['petaflop_days_attention']:>16,.4g}  petaflop/s-days"]
    if about["assumed"]:
        lines += ["", f"assumed, as the data was not read: {'; '.join(about['assumed'])}"]
    return "\n".join(lines)


def _stays(frozen: int, count: int) -> str:
    return "" if not frozen else "  frozen" if frozen == count else f"  {frozen:,} frozen"


MEMORY_NAMES = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer", "copies": "cast weights",
         "activations": "activations", "logits": "logits", "workspace": "workspace"}


def _duration(seconds: float) -> str:
    """
    >>> [_duration(seconds) for seconds in (0.0123, 7.5, 400, 419.7, 200_000)]
    ['12.3 ms', '7.5 s', '6:40 min', '7:00 min', '55.6 h']
    """
    if seconds < 60:
        return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:,.1f} ms"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
