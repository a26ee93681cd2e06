"""Loads the newest checkpoint of each run, whole and in parts, puts it together again and compares every bit.

    torchrun … reshard.py RUN…
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoint import Checkpoint, named_tensors
from regard.nn.init import initialize
from regard.settings.load import load
from regard.tasks import make
from regard.training.optimizer import make_optimizer
from regard.training.parallel import Processes, World, join
from regard.training.resume import resume, tensors_of

CPU = torch.device("cpu")


def main() -> None:
    with join(CPU, timeout=60) as world:
        for folder in map(Path, sys.argv[1:]):
            for shard in (False, True):
                wrong = world.sum([not is_the_same(folder, world, shard=shard)])[0]
                if world.rank == 0:
                    print(f"{folder} {'in parts' if shard else 'whole'}: {'something else' if wrong else 'the same'}")


def is_the_same(folder: Path, joined: World, *, shard: bool) -> bool:
    world = Processes(joined.rank, joined.size) if joined.size > 1 else World()  # which knows no model yet
    run = load(folder / "run.json")
    run = replace(run, train=replace(run.train, fsdp=shard))
    task = make(run)
    model = task.build(task.data.restore(folder))
    initialize(model, seed=run.seed + 1)  # anything but what was saved
    world.parallelize(model, run.train, precision=torch.float32)
    optimizer = make_optimizer(model, run.train, device=CPU)
    resume(folder, run, model, optimizer, world, say=lambda _: None)
    weights, averages = world.collect(named_tensors(model)), world.collect(tensors_of(optimizer))
    if shard and world.rank:  # the first has it all
        return True
    saved = Checkpoint.all(folder)[0]
    return identical(weights, saved.weights()) and identical(averages, saved.optimizer())


def identical(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        a.dtype == expected[name].dtype and a.shape == expected[name].shape and raw(a) == raw(expected[name])
        for name, a in found.items())


def raw(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


if __name__ == "__main__":
    main()
