"""How long another checkout of regard takes for the same work, divided by the time that this one takes.

    git worktree add --detach ../before COMMIT
    python benchmarks/against.py ../before
    python benchmarks/against.py ../before --only "int8, 1 row" --starts 3 --threads 1
    python benchmarks/against.py ../before --device cuda --starts 1

Both have the same random weights. Each checkout runs in processes of its own, and the two take turns: A B, B A, A B.
What a process finds in memory can be worth a few per cent, so that each piece of work is begun several times. With one
thread the clock is the processor's: other processes then disturb it little. The work of a GPU is that of each
checkout's own benchmarks, with GPT-2 (124M) and the base model of 2017.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VOCABULARY, PROMPT = 50_257, 16  # of the language model; no token ends it
WORDS, SENTENCE, END = 8_000, 24, 1  # of the translator
HERE = Path(__file__).resolve().parent.parent
Work = Callable[[], object]


def newest(name: str, *modules: str) -> Any:
    """What lies under this name in the first of these modules that the checkout has: some have moved."""
    for module in modules:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:  # not even its package
            found = None
        if found is not None and hasattr(loaded := import_module(module), name):
            return getattr(loaded, name)
    raise SystemExit(f"{name} is in none of {', '.join(modules)}")


# The work. Each function prepares it and gives what is timed.


def decode(kind: str, rows: int, tokens: int = 64) -> Work:
    """The likeliest tokens, by a model of GPT-2's shape (124M)."""
    import torch

    from regard.generate.sampler import Sampling, sample
    from regard.models.decoder import Decoder
    from regard.nn.init import initialize
    from regard.settings.presets import PRESETS

    newest("large_pages", "regard.device", "regard.tasks.device")(2 << 30)
    model = Decoder(PRESETS["gpt2"](), vocabulary=VOCABULARY)
    initialize(model, seed=0)
    model.requires_grad_(False).eval()
    if kind != "float32":
        newest("quantize", "regard.kernels.quantize", "regard.nn.narrow")(model, kind)
    prompt = torch.randint(VOCABULARY, (rows, PROMPT), generator=torch.Generator().manual_seed(rows))
    how = Sampling(end=VOCABULARY, longest=tokens, temperature=0)

    def work() -> None:
        with torch.inference_mode():
            for _ in sample(model, prompt, how=how):
                pass

    return work


def translator() -> Any:
    from regard.nn.init import initialize
    from regard.settings.schema import Tower

    tower = Tower(width=256, depth=3, heads=8, norm_place="post", dropout=0.1)
    try:
        made = newest("translator", "regard.models.build")
    except SystemExit:  # an older checkout
        made = newest("EncoderDecoder", "regard.models.encoder_decoder")
    model = made(tower, sources=WORDS, targets=WORDS)
    initialize(model, seed=0)
    return model


def search(sentences: int) -> Work:
    """Beam search with 5 beams."""
    import torch

    from regard.generate.beam import Beam, beam

    model = translator().eval()
    source = torch.randint(END + 1, WORDS, (sentences, SENTENCE), generator=torch.Generator().manual_seed(0))
    how = Beam(end=WORDS, longest=SENTENCE, size=5)  # an end that no model says

    def work() -> None:
        with torch.inference_mode():
            beam(model, source.new_zeros(sentences, 1), how=how, memory=model.encode(source))

    return work


def learn() -> Work:
    """A training step: forward, loss, backward, AdamW."""
    import torch

    from regard.nn.loss import cross_entropy

    model = translator().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    source, target = torch.randint(END + 1, WORDS, (2, 16, SENTENCE), generator=torch.Generator().manual_seed(0))

    def work() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            states = model(source, target)
            loss, _ = cross_entropy(states.flatten(0, 1), model.decoder.output.weight, target.flatten(), ignore=0,
                                    smoothing=0.1)
            (loss / target.numel()).backward()
            optimizer.step()

    return work


WORK: dict[str, Callable[[], Work]] = {
    "decode float32, 1 row": lambda: decode("float32", 1),
    "decode float32, 8 rows": lambda: decode("float32", 8),
    "decode int8, 1 row": lambda: decode("int8", 1),
    "decode int8, 8 rows": lambda: decode("int8", 8),
    "beam 5, 1 sentence": lambda: search(1),
    "beam 5, 8 sentences": lambda: search(8),
    "training step": learn,
}


# The work of a GPU, as the benchmarks of either checkout prepare it.


def decode_on_gpu(rows: int, tokens: int = 256) -> Work:
    import torch

    from regard.generate.sampler import Sampling
    from regard.models.decoder import Decoder
    from regard.nn.init import initialize
    from regard.settings.presets import PRESETS

    model = Decoder(PRESETS["gpt2"](), vocabulary=VOCABULARY)
    initialize(model, seed=0)
    model.requires_grad_(False).to("cuda", torch.bfloat16).eval()
    prompt = torch.randint(VOCABULARY, (rows, PROMPT), generator=torch.Generator().manual_seed(rows)).cuda()
    how = Sampling(end=VOCABULARY, longest=tokens, temperature=1.0, top_k=50)
    write: Any = import_module("decode").our_way(model, how)
    return lambda: write(prompt)


def learn_language_on_gpu(updates: int = 10) -> Work:
    benchmark: Any = import_module("language")
    update = benchmark.ours("bfloat16", *benchmark.SIZES["124m"], bias=False)
    return lambda: [update() for _ in range(updates)]


def learn_to_translate_on_gpu(updates: int = 40) -> Work:
    benchmark: Any = import_module("train_step")
    update = benchmark.ours(benchmark.BASE, "cuda", "bfloat16")
    return lambda: [update() for _ in range(updates)]


def search_on_gpu(sentences: int = 64) -> Work:
    import torch

    benchmark: Any = import_module("beam")
    shape = replace(benchmark.BASE, rows=sentences)
    model, _ = benchmark.models(shape, "cuda")
    source = torch.randint(2, shape.vocabulary, (sentences, shape.length), generator=torch.Generator().manual_seed(0))
    forbid = benchmark.Forbid([benchmark.END], vocabulary=shape.vocabulary, device=torch.device("cuda"))
    captures, on_device = benchmark.Captures(), source.cuda()
    return lambda: benchmark.ours(model, on_device, forbid, captures)


GPU_WORK: dict[str, Callable[[], Work]] = {
    "decode bfloat16, 1 row": lambda: decode_on_gpu(1),
    "decode bfloat16, 64 rows": lambda: decode_on_gpu(64),
    "training step, GPT-2": learn_language_on_gpu,
    "training step, translator": learn_to_translate_on_gpu,
    "beam 5, 64 sentences": search_on_gpu,
}
ALL_WORK = {"cpu": WORK, "cuda": GPU_WORK}
WARM = {"cpu": 1, "cuda": 4}  # a GPU compiles at first, then records graphs


# The race.


class Checkout:
    """A process that works with the sources of one checkout, and waits for its turn."""

    def __init__(self, root: Path, name: str, threads: int, device: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(root), "--work", name, "--threads", str(threads), "--device", device],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.communicate()


def contestant(root: Path, name: str, threads: int, device: str) -> None:
    """In the process: a line in, the work is done, its seconds out."""
    import torch

    import regard

    assert Path(regard.__file__).is_relative_to(root.resolve()), f"{regard.__file__} is not of {root}"
    torch.set_num_threads(threads)
    newest("choose_device", "regard.device", "regard.tasks.device")(device)
    torch.manual_seed(0)
    clock = time.process_time if threads == 1 and device == "cpu" else time.perf_counter
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    sys.path.insert(0, str(root / "benchmarks"))
    out, sys.stdout = sys.stdout, sys.stderr  # what the work prints is no time
    work = ALL_WORK[device][name]()
    for _ in range(WARM[device]):
        work()
    for _ in sys.stdin:
        wait()
        start = clock()
        work()
        wait()
        print(json.dumps(clock() - start), file=out, flush=True)


def race(name: str, roots: tuple[Path, Path], *, starts: int, rounds: int, threads: int,
         device: str) -> tuple[list[float], ...]:
    """The seconds of the one and of the other, round by round."""
    took: tuple[list[float], ...] = ([], [])
    for start in range(starts):
        order = (0, 1) if start % 2 == 0 else (1, 0)  # the first to begin has the first choice of memory
        running = {place: Checkout(roots[place], name, threads, device) for place in order}
        for number in range(rounds):
            for place in order if number % 2 == 0 else order[::-1]:
                took[place].append(running[place].seconds())
        for one in running.values():
            one.end()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="parts of names, such as beam")
    parser.add_argument("--device", choices=[*ALL_WORK], default="cpu")
    parser.add_argument("--starts", type=int, default=3, help="how often the processes of each piece of work begin")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each in a start")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        contestant(args.other, args.work, args.threads, args.device)
        return
    print(f"{args.threads} threads, load {os.getloadavg()[0]:.1f}; medians of {args.starts} × {args.rounds} runs in ms")
    print(f"{'':24} {'other':>9} {'this':>9} {'other/this':>11} {'by rounds':>10} {'of the fastest':>15}")
    for name in (name for name in ALL_WORK[args.device] if any(part in name for part in args.only)):
        other, this = race(name, (args.other.resolve(), HERE), starts=args.starts, rounds=args.rounds,
                           threads=args.threads, device=args.device)
        pairs = statistics.median(a / b for a, b in zip(other, this, strict=True))
        print(f"{name:24} {1000 * statistics.median(other):9.1f} {1000 * statistics.median(this):9.1f} "
              f"{statistics.median(other) / statistics.median(this):11.3f} {pairs:10.3f} "
              f"{min(other) / min(this):15.3f}", flush=True)


if __name__ == "__main__":
    main()
