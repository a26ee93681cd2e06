"""How fast a language model learns, beside nanoGPT and in turns with it, on one GPU.

    python benchmarks/language.py --nanogpt PATH                    # PATH: a checkout of github.com/karpathy/nanoGPT
    python benchmarks/language.py --nanogpt PATH --parts 124m --only nanogpt bfloat16
    python benchmarks/language.py --nanogpt PATH --clip 1           # gradients clipped, as both do when they train

Both are compiled, in bfloat16, without dropout or biases, with a vocabulary of 50,304: what nanoGPT's own bench.py
measures; its train.py clips besides. Ours is the update that `regard train` makes.
"""

import argparse
import gc
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from regard.device import choose_device
from regard.nn.init import initialize
from regard.settings.presets import PRESETS
from regard.settings.schema import Data, Run, Tower, Train
from regard.tasks.language import Language, PackedBatch
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World
from regard.training.update import make_update

VOCABULARY, LENGTH = 50_304, 1024
SIZES = {"124m": ("gpt2", 32), "1.5b": ("gpt2-xl", 8)}  # the shape, and rows of a batch
OURS = {
    "bfloat16": Train(precision="bfloat16"),
    "muon": Train(precision="bfloat16", optimizer="muon"),
}
WARM = 4  # updates before the clock runs: compiling, choosing kernels, recording the graph
SEED = 1337

Step = Callable[[], object]


def tower(preset: str, *, bias: bool) -> Tower:
    return replace(PRESETS[preset](), bias=bias, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0,
                   activation="gelu")  # nanoGPT's is the exact one


def random_batch(rows: int) -> PackedBatch:
    generator = torch.Generator().manual_seed(SEED)
    read, write = (torch.randint(VOCABULARY, (rows, LENGTH), generator=generator).pin_memory() for _ in range(2))
    return PackedBatch({"loss": rows * LENGTH, "nll": rows * LENGTH}, read, write)


def ours(name: str, preset: str, rows: int, *, bias: bool, clip: float | None = None) -> Step:
    """A new model's update, as `regard train` would make it."""
    how = replace(OURS[name], learning_rate=1e-4, beta2=0.95, grad_clip=clip, label_smoothing=0.0, schedule="constant",
                  compile="on", length_buckets=1)
    run = Run(task="language", data=Data(max_tokens=LENGTH), model=tower(preset, bias=bias), train=how)
    device, task = choose_device("cuda"), Language(run)
    model = task.build({"vocabulary": VOCABULARY})
    initialize(model, seed=run.seed)
    model.to(device).train()
    optimizer = make_optimizer(model, how, device=device)
    update = make_update(model, task, optimizer, how, device=device, precision=torch.bfloat16, world=World())
    batch = random_batch(rows)
    return lambda: update(batch, 10**6)


def nanogpt(path: Path, preset: str, rows: int, *, bias: bool, clip: float | None = None) -> Step:
    """A step of nanoGPT's bench.py, with its own model and optimizer; with a clip, of its train.py."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", path / "model.py")
    assert spec
    assert spec.loader
    theirs = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = theirs  # its dataclasses look themselves up
    spec.loader.exec_module(theirs)
    shape = tower(preset, bias=bias)
    config = theirs.GPTConfig(block_size=LENGTH, vocab_size=VOCABULARY, n_layer=shape.depth, n_head=shape.heads,
                              n_embd=shape.width, dropout=0.0, bias=bias)
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = theirs.GPT(config).to("cuda")
    optimizer = model.configure_optimizers(weight_decay=1e-2, learning_rate=1e-4, betas=(0.9, 0.95),
                                           device_type="cuda")
    compiled = torch.compile(model)
    batch = random_batch(rows)

    def step() -> None:
        read, write = batch.read.to("cuda", non_blocking=True), batch.write.to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            _, loss = compiled(read, write)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return step


@dataclass
class Contender:
    """Its step, what it took to warm up, and its times."""

    name: str
    step: Step
    seconds_to_warm: float
    peak: int  # bytes that were allocated at the fullest moment of its first steps
    reserved: int  # bytes that it keeps from the GPU: graphs hold on to theirs
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)


def ready(name: str, build: Callable[[], Step]) -> Contender | None:
    """Built and warm; or None where there is not memory enough for it."""
    clear()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    try:
        step = build()
        for _ in range(WARM):
            step()
    except torch.OutOfMemoryError as error:
        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    torch.cuda.synchronize()
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() - before
    clear()
    print(f"{name}: warm after {seconds:.0f} s", file=sys.stderr)
    return Contender(name, step, seconds, peak, torch.cuda.memory_reserved() - reserved)


def measure(contenders: list[Contender], *, rounds: int, steps: int) -> None:
    """A few updates of each in turn, so that whatever else the machine does falls on all alike."""
    for _ in range(rounds):
        for one in contenders:
            one.step()  # whoever came before left the caches full of something else
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                one.step()
            torch.cuda.synchronize()
            one.times.append((time.perf_counter() - start) / steps)


def table(title: str, contenders: list[Contender], tokens: int) -> None:
    print(f"\n{title}, {tokens:,} tokens a step; {torch.cuda.get_device_name()}, torch {torch.__version__}")
    first = contenders[0]
    print(f"{'':12} {'ms/step':>9} {'fastest':>9} {'tokens/s':>10} {'speed':>7} {'peak GiB':>9} {'memory':>7} "
          f"{'reserved':>9} {'warm s':>7}")
    for one in contenders:
        print(f"{one.name:12} {1000 * one.seconds:9.2f} {1000 * min(one.times):9.2f} {tokens / one.seconds:10,.0f} "
              f"{first.seconds / one.seconds:7.2f} {one.peak / 2**30:9.2f} {one.peak / first.peak:7.2f} "
              f"{one.reserved / 2**30:9.2f} {one.seconds_to_warm:7.0f}")
    print(f"speed and memory are those of {first.name} taken as 1")


def clear() -> None:
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def on_its_own(part: str) -> Iterator[None]:
    """One part that does not fit into memory does not end the others."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        print(f"{part}: {str(error).splitlines()[0]}", file=sys.stderr)
    torch._dynamo.reset()
    clear()


def speeds(size: str, args: argparse.Namespace) -> None:
    preset, rows = SIZES[size]
    builders: dict[str, Callable[[], Step]] = {
        name: lambda name=name: ours(name, preset, rows, bias=args.bias, clip=args.clip) for name in OURS}
    if args.nanogpt:
        theirs = {"nanogpt": lambda: nanogpt(args.nanogpt, preset, rows, bias=args.bias, clip=args.clip)}
        builders = {**theirs, **builders}
    made = [ready(name, build) for name, build in builders.items() if not args.only or name in args.only]
    contenders = [one for one in made if one is not None]
    if contenders:
        measure(contenders, rounds=args.rounds, steps=args.steps)
        table(f"{preset}, {rows}×{LENGTH}", contenders, rows * LENGTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a checkout of nanoGPT, as the one to beat")
    parser.add_argument("--parts", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--only", nargs="+", choices=["nanogpt", *OURS], help="contenders; default: all")
    parser.add_argument("--bias", action="store_true", help="biases in all layers, on both sides")
    parser.add_argument("--clip", type=float, metavar="NORM", help="the longest gradient, on both sides; any if absent")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="updates of each in a round")
    args = parser.parse_args()
    for part in args.parts:
        with on_its_own(part):
            speeds(part, args)


if __name__ == "__main__":
    main()
