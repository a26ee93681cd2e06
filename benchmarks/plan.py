"""How right `regard plan` is: memory and time of a step, foretold and measured.

    python benchmarks/plan.py                       # on a GPU: three sizes, compiled and not; under four minutes
    python benchmarks/plan.py --device cpu --tiny   # everything but the GPU's memory, in seconds
    python benchmarks/plan.py --kept                # what a compiled forward pass keeps; needs no GPU

The shape of the batch is drawn at random; --seed draws the same one again. The constants that this is there to
correct stand at the top of src/regard/training/estimate.py.
"""

import argparse
import gc
import random
import statistics
import time
from dataclasses import asdict, replace

import torch

from regard.device import choose_device
from regard.settings.schema import Run, Tokens, Tower, Train
from regard.training.dry_run import DryRun, make_dry_run, measure
from regard.training.estimate import MACHINES, MemoryUse, estimate, seconds

SIZES = {
    "small": Tower(width=256, depth=3, heads=8),
    "base": Tower(width=512, depth=6, heads=8, norm_place="post"),
    "big": Tower(width=2048, depth=4, heads=16),
}
TINY = {"tiny": Tower(width=32, depth=1, heads=2), "post": Tower(width=64, depth=2, heads=2, norm_place="post")}
FEW = 5  # steps that the plan itself takes
STEPS = 20  # steps that tell how long one takes


def draw(tower: Tower, dice: random.Random, *, tiny: bool) -> tuple[Run, int]:
    """A run and the length of its sentences."""
    length = 2 * dice.randint(4, 10 if tiny else 100)
    tokens = dice.choice([64, 128] if tiny else [4096, 8192, 16384])
    vocabulary = dice.choice([320, 640] if tiny else [8000, 16000, 32000])
    how = Train(batch_tokens=tokens, schedule="constant", learning_rate=1e-4)
    return Run(model=tower, tokens=Tokens(vocabulary=vocabulary), train=how), length


def foretold(dry_run: DryRun, run: Run, device: torch.device, precision: torch.dtype) -> tuple[MemoryUse, float]:
    found = estimate(dry_run.task, dry_run.sizes, dry_run.outline(), run.train, device=device.type,
                     precision=precision)
    return found.memory, seconds(found.parameters, found.traced, run.train, MACHINES["h200"], precision=precision)


def fresh(device: torch.device) -> None:
    """Forget what was, and count from here."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def most(device: torch.device) -> tuple[int, int]:
    """Bytes of GPU memory: the most that was allocated, and the most that was reserved for it."""
    if device.type != "cuda":
        return 0, 0
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def ratio(foretold: float, real: float) -> str:
    return f"{foretold / real:7.3f}" if real else f"{'':7}"


def row(name: str, compiled: str, run: Run, length: int, device: torch.device, precision: torch.dtype) -> None:
    run = replace(run, train=replace(run.train, compile=compiled))
    dry_run = make_dry_run(run, length=length)
    start = time.perf_counter()
    needed, computed = foretold(dry_run, run, device, precision)
    thought = time.perf_counter() - start
    fresh(device)
    took = measure(dry_run, run, device=device, precision=precision, steps=FEW + STEPS)
    allocated, _ = most(device)
    few, real = statistics.median(took[:FEW]), statistics.median(took[FEW:] or took)
    rows, length = dry_run.shape
    print(f"{name:6} {compiled:8} {rows:5}×{length:<4} {run.tokens.vocabulary:>6} {needed.total / 2**30:9.3f} "
          f"{allocated / 2**30:9.3f} {ratio(needed.total, allocated)} {1000 * computed:9.2f} {1000 * few:9.2f} "
          f"{1000 * real:9.2f} {ratio(computed, real)} {ratio(few, real)} {thought:6.1f}", flush=True)
    kinds = "  ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in asdict(needed).items())
    print(f"       MiB: {kinds}", flush=True)


def two_shapes(run: Run, lengths: tuple[int, int], device: torch.device, precision: torch.dtype) -> None:
    """Batches of two shapes in turn: each shape has its graph, and the second begins beside the first's memory."""
    run = replace(run, train=replace(run.train, compile="off", length_buckets=2))
    short, long = (make_dry_run(run, length=length) for length in lengths)
    needed, _ = foretold(long, run, device, precision)
    fresh(device)
    update = short.update(run, device, precision)
    for step, batch in enumerate([short.batch(), long.batch()] * 3):
        update(batch.ready(device), step)
    for kind, told, real in zip(("allocated", "reserved"), (needed.total, needed.reserved), most(device), strict=True):
        print(f"two shapes, {short.shape} and {long.shape}: {kind} {told / 2**30:.3f} foretold, {real / 2**30:.3f} "
              f"measured {ratio(told, real)}", flush=True)


KEPT = {
    "pre-norm": Tower(),
    "post-norm": Tower(norm_place="post"),
    "no dropout": Tower(dropout=0.0),
    "ffn dropout": Tower(ffn_dropout=0.1),
    "gelu": Tower(activation="gelu"),
    "swiglu": Tower(activation="swiglu"),
    "rms, rotary": Tower(norm="rms", positions="rotary", bias=False),
}


def kept(tower: Tower) -> tuple[int, int]:
    """Bytes that a compiled forward pass keeps: foretold, and as torch's compiler decides for a CPU.

    The examples are long, so that a CPU takes fused attention as a GPU would.
    """
    dry_run = make_dry_run(Run(model=replace(tower, depth=2), train=Train(batch_tokens=640)), length=160)
    model, batch = dry_run.model("cpu").train(), dry_run.batch()
    loss = torch.compile(dry_run.task.loss, backend="aot_eager_decomp_partition", dynamic=False)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        terms = loss(model, batch)
    assert terms[0].total.requires_grad
    torch.compiler.reset()
    traced = estimate(dry_run.task, dry_run.sizes, batch, Train(), device="cuda", precision=torch.bfloat16).traced
    return traced.compiled + traced.copies, sum(s.nbytes() for key, s in found.items() if key not in weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="models and batches that take no time")
    parser.add_argument("--only", nargs="+", choices=list(SIZES), help="sizes; all if not given")
    parser.add_argument("--compile", nargs="+", choices=["off", "on"], help="default: both on a GPU, off on a CPU")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--kept", action="store_true", help="only what a compiled forward pass keeps")
    args = parser.parse_args()
    if args.kept:
        print(f"{'MiB':16} {'foretold':>9} {'kept':>9} {'ratio':>7}")
        for name, tower in KEPT.items():
            expected, real = kept(tower)
            print(f"{name:16} {expected / 2**20:9.2f} {real / 2**20:9.2f} {expected / real:7.3f}", flush=True)
        return

    device = choose_device(args.device)
    dice = random.Random(args.seed)
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"seed {args.seed}; {where}, torch {torch.__version__}, bfloat16; times in ms, memory in GiB")
    print(f"{'size':6} {'compile':8} {'batch':>10} {'tokens':>6} {'foretold':>9} {'measured':>9} {'ratio':>7} "
          f"{'computed':>9} {'plan':>9} {'measured':>9} {'comp/m':>7} {'plan/m':>7} {'s':>6}", flush=True)
    for name, tower in (TINY if args.tiny else SIZES).items():
        run, length = draw(tower, dice, tiny=args.tiny)  # drawn even where it is left out: a seed gives the same shapes
        if args.only and name not in args.only:
            continue
        for compiled in args.compile or (["off", "on"] if device.type == "cuda" else ["off"]):
            row(name, compiled, run, length, device, torch.bfloat16)
    tower = TINY["tiny"] if args.tiny else SIZES["base"]
    two_shapes(draw(tower, dice, tiny=args.tiny)[0], (16, 24) if args.tiny else (32, 48), device, torch.bfloat16)


if __name__ == "__main__":
    main()
