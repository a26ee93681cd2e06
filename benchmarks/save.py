"""What a checkpoint costs the step that saves it, and how long the writing itself takes beside the training.

    python benchmarks/save.py                  # 124 million parameters on a GPU
    python benchmarks/save.py --device cpu --tiny

The model, its weights, gradients and both averages of AdamW, is as large as GPT-2's smallest. Memory of the
host is pinned before the first step, as in a run; how long that takes is printed apart.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from regard.checkpoint import Checkpoint, Saver, named_tensors
from regard.device import choose_device, fast_bfloat16
from regard.nn.init import initialize
from regard.settings.schema import Run, Tokens, Tower, Train
from regard.training.dry_run import make_dry_run
from regard.training.optimizer import adamw
from regard.training.parallel import World
from regard.training.resume import room_for, tensors_of
from regard.training.update import make_update

SMALLEST_GPT2 = Tower(width=768, depth=6, heads=12, dropout=0.0)
TINY = Tower(width=64, depth=2, heads=2, dropout=0.0)
STEPS_BETWEEN = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where to save; a temporary folder if not given")
    args = parser.parse_args()
    device = choose_device(args.device)
    how = Train(batch_tokens=128 if args.tiny else 16_384, learning_rate=1e-4, schedule="constant")
    run = Run(model=TINY if args.tiny else SMALLEST_GPT2, tokens=Tokens(vocabulary=640 if args.tiny else 32_000),
              train=how)
    dry_run = make_dry_run(run, length=16 if args.tiny else 64)
    model = dry_run.model("cpu")
    initialize(model, seed=0)
    model.to(device).train()
    optimizer = adamw(model, how, device=device)
    precision = torch.bfloat16 if fast_bfloat16(device) else torch.float32
    update = make_update(model, dry_run.task, optimizer, how, device=device, precision=precision, world=World())
    batch = dry_run.batch().ready(device)

    def step(number: int) -> float:
        start = time.perf_counter()
        update(batch, number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for number in range(5):
        step(number)
    usual = statistics.median(step(number) for number in range(STEPS_BETWEEN))
    size = sum(t.nbytes for t in (*named_tensors(model).values(), *tensors_of(optimizer).values()))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {size / 1e9:.2f} GB a checkpoint, "
          f"{1000 * usual:.2f} ms a step without saving", flush=True)
    print(f"{'save':>5} {'step that saves':>16} {'added':>9} {'steps meanwhile':>16} {'written in':>11}")
    start = time.perf_counter()
    with (tempfile.TemporaryDirectory(dir=args.folder) as place,
          Saver(Path(place), keep=2, room=room_for(model)) as saver):
        print(f"memory pinned in {time.perf_counter() - start:.2f} s", flush=True)
        for save in range(args.saves):
            start = time.perf_counter()
            saver.save(save + 1, weights=named_tensors(model), optimizer=tensors_of(optimizer), state={})
            held = time.perf_counter() - start
            first = held + step(0)
            beside = [step(number) for number in range(STEPS_BETWEEN)]
            saver.wait()
            print(f"{save + 1:>5} {1000 * first:>13.1f} ms {1000 * (first - usual):>6.1f} ms "
                  f"{1000 * statistics.median(beside):>13.2f} ms {saver.seconds:>9.2f} s", flush=True)
        assert all(checkpoint.verify() is None for checkpoint in Checkpoint.all(Path(place)))


if __name__ == "__main__":
    main()
