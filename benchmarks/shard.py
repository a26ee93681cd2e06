"""One GPU, the same model twice: as a plain process and sharded by FSDP2. The same loss, and how long a step takes.

    torchrun --nproc-per-node 1 benchmarks/shard.py             # 1.5 billion parameters, bfloat16, recomputation
    torchrun --nproc-per-node 1 benchmarks/shard.py --tiny      # on a CPU, to see that it runs

Both recompute their activations. With one process nothing is sent: what is left is the cost of the machinery.
"""

import argparse
import gc
import statistics
import time
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from regard.data.batch import Batch
from regard.device import choose_device
from regard.nn.init import initialize
from regard.settings.schema import Run, Tokens, Tower, Train
from regard.training.dry_run import DryRun, make_dry_run
from regard.training.optimizer import adamw
from regard.training.parallel import World, join
from regard.training.update import Update, make_update

LARGE = Tower(width=2048, depth=12, heads=16, dropout=0.0)
TINY = Tower(width=64, depth=2, heads=2, dropout=0.0)


class Trainer:
    """A copy of the model with its own optimizer, in one of the two worlds."""

    def __init__(self, dry_run: DryRun, model: nn.Module, how: Train, world: World, device: torch.device) -> None:
        precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.model = deepcopy(model).to(device).train()
        world.parallelize(self.model, how, precision=precision)
        self.update: Update = make_update(self.model, dry_run.task, adamw(self.model, how, device=device), how,
                                          device=device, precision=precision, world=world)
        self.device = device

    def losses(self, batch: Batch, steps: int) -> list[float]:
        return [float(self.update(batch, step).totals["nll"]) / batch.counts["nll"] for step in range(steps)]

    def seconds(self, batch: Batch, steps: int) -> list[float]:
        took = []
        for step in range(steps):
            start = time.perf_counter()
            self.update(batch, step)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    device = choose_device("cpu" if args.tiny else "cuda")
    how = Train(batch_tokens=128 if args.tiny else 16_384, learning_rate=1e-4, schedule="constant",
                activation_checkpointing=True)
    run = Run(model=TINY if args.tiny else LARGE, tokens=Tokens(vocabulary=640 if args.tiny else 32_000), train=how)
    dry_run = make_dry_run(run, length=16 if args.tiny else 128)
    with join(device) as world:
        model = dry_run.model("cpu")
        initialize(model, seed=0)
        batch = dry_run.batch()
        count = sum(p.numel() for p in model.parameters())
        print(f"{count:,} parameters, {' × '.join(map(str, dry_run.shape))} tokens, {device.type}", flush=True)
        found: dict[str, tuple[list[float], float]] = {}
        for name, settings, place in (("plain", how, World()), ("sharded", replace(how, fsdp=True), world)):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            trainer = Trainer(dry_run, model, settings, place, device)
            losses = trainer.losses(batch, 5)
            found[name] = losses, statistics.median(trainer.seconds(batch, 3 if args.tiny else 12))
            most = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
            print(f"{name:8} {1000 * found[name][1]:8.1f} ms a step, at most {most:6.2f} GiB, losses "
                  + " ".join(f"{loss:.6f}" for loss in losses), flush=True)
            del trainer
            gc.collect()
            torch.cuda.empty_cache()
        apart = max(abs(a - b) / a for a, b in zip(found["plain"][0], found["sharded"][0], strict=True))
        print(f"sharded: {found['plain'][1] / found['sharded'][1]:.3f} of the plain speed; losses apart {apart:.1e}")


if __name__ == "__main__":
    main()
