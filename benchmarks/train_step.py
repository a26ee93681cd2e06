"""How long one update of a translator takes, beside the peers and in turns with them.

    python benchmarks/train_step.py --device cuda
    python benchmarks/train_step.py --device cpu --only ours torch marian

On a GPU: the base model of Vaswani et al. 2017, 8,192 tokens on either side. On a CPU: a small one, 1,024 tokens, each
contender in a process of its own.
"""

import argparse
import functools
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from peers import BASE, PAD, RATE, SMALL, SMOOTHING, VARIANTS, Shape, Update, batches, peer

from regard.data.text.parallel_corpus import ParallelBatch
from regard.device import choose_device
from regard.nn.init import initialize
from regard.settings.schema import Run, Train
from regard.tasks.translate import Translate
from regard.training.optimizer import adamw
from regard.training.parallel import World
from regard.training.update import make_update

OURS = "ours"
WARM = 4  # updates before the clock runs: compiling, choosing kernels, filling the allocator


def ours(shape: Shape, device: str, precision: str, *, padded: bool = False) -> Update:
    """What `regard train` does with a batch: the task's loss and the training loop's update."""
    compiled = "on" if device == "cuda" else "off"
    how = Train(grad_clip=None, label_smoothing=SMOOTHING, learning_rate=RATE, schedule="constant", compile=compiled)
    task = Translate(Run(model=shape.tower, train=how))
    task.data.source_tokens = task.data.target_tokens = SimpleNamespace(pad=PAD)
    model = task.build({"sources": shape.vocabulary, "targets": shape.vocabulary})
    initialize(model, seed=0)
    model.to(device).train()
    where = choose_device(device)
    update = make_update(model, task, adamw(model, how, device=where), how,
                         device=where, precision=getattr(torch, precision), world=World())
    data = batches(shape, device, padded=padded)

    def step() -> None:
        batch = next(data)
        count = int((batch.labels != PAD).sum()) if padded else batch.labels.numel()
        update(ParallelBatch({"loss": count, "nll": count}, batch.source, batch.target, batch.labels), 10**6)

    return step


@dataclass
class Contender:
    """One variant, its times and its memory."""

    name: str
    update: Update
    seconds_to_warm: float
    own: int  # bytes it holds between updates
    times: list[float] = field(default_factory=list)
    peak: int = 0

    @property
    def milliseconds(self) -> float:
        return 1000 * statistics.median(self.times)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def held(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


class Worker:
    """A contender in a process of its own: regard sets up the C library's memory for itself, which is its own gain.

    Only one works at a time; the others wait for their turn.
    """

    def __init__(self, name: str, shape: Shape, precision: str, padded: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, name, shape, precision, padded), daemon=True)
        self.process.start()

    def __call__(self) -> None:
        self.pipe.send("update")
        self.pipe.recv()


def serve(pipe: Any, name: str, shape: Shape, precision: str, padded: bool) -> None:
    make = ours if name == OURS else functools.partial(peer, name)
    step = make(shape, "cpu", precision, padded=padded)
    while True:
        try:
            pipe.recv()
        except EOFError:  # the benchmark has ended
            return
        step()
        pipe.send("done")


def ready(name: str, build: Callable[[], Update], device: str) -> Contender | None:
    """Built and warm; or None, with the reason printed, where a peer does not get that far."""
    before, start = held(device), time.perf_counter()
    try:
        step = build()
        for _ in range(WARM):
            step()
    except Exception as error:
        if name == OURS:  # a peer that fails is a line on stderr; we are a bug
            raise
        print(f"{name}: does not run: {type(error).__name__}: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return None
    wait(device)
    gc.collect()
    seconds = time.perf_counter() - start
    print(f"{name}: warm after {seconds:.0f} s", file=sys.stderr)
    return Contender(name, step, seconds, held(device) - before)


def measure(contenders: list[Contender], device: str, *, rounds: int, steps: int) -> None:
    """A few updates of each in turn, so that whatever else the machine does falls on all alike."""
    for _ in range(rounds):
        for one in contenders:
            one.update()  # whoever came before left the caches full of something else
            wait(device)
            others = held(device) - one.own
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            for _ in range(steps):
                one.update()
            wait(device)
            one.times.append((time.perf_counter() - start) / steps)
            if device == "cuda":
                one.peak = max(one.peak, torch.cuda.max_memory_allocated() - others)


def table(contenders: list[Contender], shape: Shape, device: str, precision: str) -> None:
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"\n{where}, torch {torch.__version__}, {precision}: {shape.depth}+{shape.depth} blocks, "
          f"width {shape.width}, vocabulary {shape.vocabulary:,}, {shape.rows}×{shape.length} tokens on either side")
    reference = next((one for one in contenders if one.name == OURS), contenders[0])
    print(f"{'':16} {'ms/step':>9} {'fastest':>9} {'target tokens/s':>16} {'/' + reference.name:>8} {'peak GiB':>9}")
    for one in sorted(contenders, key=lambda one: one.milliseconds):
        ratio = one.milliseconds / reference.milliseconds
        peak = f"{one.peak / 2**30:9.2f}" if one.peak else f"{'':9}"
        print(f"{one.name:16} {one.milliseconds:9.2f} {1000 * min(one.times):9.2f} "
              f"{1000 * shape.rows * shape.length / one.milliseconds:16,.0f} {ratio:8.2f} {peak}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"],
                        help="default: bfloat16 on a GPU, both on a CPU")
    parser.add_argument("--only", nargs="+", metavar="NAME",
                        help=f"variants, by their whole name or its first word: {', '.join([OURS, *VARIANTS])}")
    parser.add_argument("--padded", action="store_true", help="sentences of unequal lengths, with masks for all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, help="updates of each variant in a round (20 on a GPU, 2 on a CPU)")
    args = parser.parse_args()

    cuda = args.device == "cuda"
    shape, steps = (BASE, args.steps or 20) if cuda else (SMALL, args.steps or 2)
    # A CPU has no graphs to launch; compiling there takes minutes, so it has to be asked for.
    known = [OURS, *VARIANTS] if cuda or args.only else [OURS, *(name for name in VARIANTS if "eager" in name)]
    names = [name for name in known if not args.only or {name, name.split()[0]} & set(args.only)]
    if not names:
        parser.error(f"--only: no such variant; there are {', '.join(known)}")
    for precision in args.precision or (["bfloat16"] if cuda else ["float32", "bfloat16"]):
        def build(name: str, precision: str = precision) -> Update:
            if not cuda:
                return Worker(name, shape, precision, args.padded)
            make = ours if name == OURS else functools.partial(peer, name)
            return make(shape, args.device, precision, padded=args.padded)

        made = [ready(name, lambda name=name: build(name), args.device) for name in names]
        contenders = [one for one in made if one is not None]
        measure(contenders, args.device, rounds=args.rounds, steps=steps)
        table(contenders, shape, args.device, precision)


if __name__ == "__main__":
    main()
