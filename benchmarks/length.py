"""What a longer text costs a decoder: time and memory against length, of full and of windowed attention.

    python benchmarks/length.py --plot docs/pictures/length.png         # a minute on one core
    python benchmarks/length.py --device cuda --width 768 --depth 12 --heads 12
    python benchmarks/length.py --lengths 64 128 256 --prompt 256       # to see that it runs

Full attention compares every token with all before it: the work grows with the square of the length, the rest of a
block with the length itself. With a window both are linear. What does not grow is the number of steps that wait for
each other: a recurrent network needs one for each token, attention the same few for any length.

Then a long prompt is read in chunks into a cache, as `regard predict` does, and the memory that this takes is held
against the bound that `generate/prefill.py` states.
"""

import argparse
import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.device import choose_device
from regard.generate.prefill import CHUNK, prefill
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Tower

VOCABULARY = 256
LENGTHS = tuple(2**power for power in range(9, 16))
LONGEST = 3  # lengths, the longest ones, to which an exponent is fitted: on short texts the rest of a block weighs more
MIB = 2**20


class Live(TorchDispatchMode):
    """Counts the bytes of all tensors made inside that are alive at once, and of the largest one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = self.largest = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and not func._schema.is_mutable:
            for made in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(made, torch.Tensor):
                    self.born(made.untyped_storage())
        return out

    def born(self, storage: torch.UntypedStorage) -> None:
        place, size = id(storage), storage.nbytes()
        if place not in self.known:
            self.known.add(place)
            weakref.finalize(storage, self.gone, place, size)
            self.now += size
            self.peak, self.largest = max(self.peak, self.now), max(self.largest, size)

    def gone(self, place: int, size: int) -> None:
        self.known.discard(place)
        self.now -= size


@dataclass
class Curve:
    """Seconds and bytes by length."""

    seconds: dict[int, float] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)


def exponent(measured: Mapping[int, float]) -> float:
    """p, where the figures of the longest texts go as length ** p: the slope of the least squares in logarithms."""
    points = [(math.log(length), math.log(figure)) for length, figure in list(measured.items())[-LONGEST:]]
    x, y = sum(a for a, _ in points) / len(points), sum(b for _, b in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) * (a - x) for a, _ in points)


def seconds(call: Callable[[], Any], device: torch.device, *, patience: float = 1.0) -> float:
    """The least of several calls, or of one that takes longer than the patience.

    On a CPU those of the processor, all threads together: what else the machine does is not counted.
    """
    clock, took = time.process_time if device.type == "cpu" else time.perf_counter, list[float]()
    while sum(took) < patience:
        start = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(clock() - start)
    return min(took)


def most_bytes(call: Callable[[], Any], device: torch.device) -> tuple[int, int | None]:
    """(Of all tensors alive at once, of the largest): beside those that were there before. A GPU counts by itself."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() - before, None
    with Live() as live:
        call()
    return live.peak, live.largest


def decoder(tower: Tower, device: torch.device) -> Decoder:
    model = Decoder(tower, vocabulary=VOCABULARY)
    initialize(model, seed=0)
    return model.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32).eval()


def texts(length: int, device: torch.device) -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(0)).to(device)


def whole(model: Decoder, lengths: Sequence[int], device: torch.device) -> Curve:
    """One pass over the whole text at once, as in training, without the logits."""
    curve = Curve()
    for length in lengths:
        tokens = texts(length, device)

        def call(tokens: torch.Tensor = tokens) -> torch.Tensor:
            return model(model.embed(tokens))  # type: ignore[no-any-return]

        if length == lengths[0]:
            call()  # the first call sets things up
        curve.seconds[length] = seconds(call, device)
        curve.bytes[length], _ = most_bytes(call, device)
        print(f"    {length:7,} tokens {1000 * curve.seconds[length]:10.1f} ms {curve.bytes[length] / MIB:9.1f} MiB",
              flush=True)
    return curve


def in_chunks(model: Decoder, length: int, chunk: int, device: torch.device) -> None:
    """A prompt into a cache, whose own memory is there before anything is counted."""
    tokens, state = texts(length, device), model.begin(1, capacity=length)

    def call() -> None:
        state.truncate(0)
        prefill(model, tokens, state, chunk=chunk)

    took, (peak, largest) = seconds(call, device), most_bytes(call, device)
    cache = sum(tensor.nbytes for kept in state.caches for tensor in kept.own.tensors())
    keys = length if model.window is None else min(length, chunk + model.window)
    widest = max(parameter.shape[0] for block in model.blocks for parameter in block.parameters())
    # Scores and features have 4 bytes; how far apart two positions are, which a window asks for, is a number of 8.
    bound = chunk * max(4 * widest, keys * (4 if model.window is None else 8))
    print(f"    {length:7,} tokens {1000 * took:10.1f} ms {peak / MIB:9.1f} MiB beside the cache's {cache / MIB:.1f}; "
          + (f"the largest tensor {largest / MIB:.2f}, " if largest is not None else "")
          + f"stated {bound / MIB:.2f} for each", flush=True)


def draw(curves: Mapping[str, Curve], file: str, *, title: str) -> None:
    """Time on the left, memory on the right, both axes logarithmic: a power of the length is a straight line."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from regard.look.plots.loss_curves import COLOURS, FAINT, GREY, INK

    figure = Figure(figsize=(10, 4.4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
    figure.suptitle(f"A pass over a longer text · {title}", x=0.02, ha="left", color=INK, fontsize=12,
                    fontweight="bold")
    for axes, name, unit in zip(figure.subplots(1, 2), ("seconds", "bytes"), (0.001, MIB), strict=True):
        for colour, (kind, curve) in zip(COLOURS, curves.items(), strict=False):
            measured: dict[int, float] = getattr(curve, name)
            axes.loglog(list(measured), [figure / unit for figure in measured.values()], color=colour, marker="o",
                        markersize=4, linewidth=1.8, base=2, label=f"{kind}: length ** {exponent(measured):.2f}")
        axes.set_xticks(lengths := list(next(iter(curves.values())).seconds), [f"{n:,}" for n in lengths], fontsize=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_title({"seconds": "milliseconds", "bytes": "MiB of tensors alive at once"}[name], loc="left",
                       color=INK, fontsize=10)
        axes.set_xlabel("tokens", color=GREY, loc="right")
        axes.grid(color=FAINT, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["bottom", "left"]].set_color(GREY)
        axes.tick_params(which="both", color=GREY, labelcolor=GREY)
        axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    figure.savefig(file, dpi=110)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--prompt", type=int, default=32_768)
    parser.add_argument("--chunk", type=int, default=CHUNK)
    parser.add_argument("--plot", help="a PNG")
    args = parser.parse_args()
    device = choose_device(args.device)
    torch.set_num_threads(args.threads)
    title = f"width {args.width}, depth {args.depth}, heads {args.heads}, {device.type}"
    print(title + (f", {args.threads} thread" + "s" * (args.threads > 1) if device.type == "cpu" else ""))
    curves: dict[str, Curve] = {}
    for kind, window in (("full", None), (f"window {args.window}", args.window)):
        model = decoder(Tower(width=args.width, depth=args.depth, heads=args.heads, positions="rotary", dropout=0.0,
                              window=window), device)
        print(f"{kind}, at once")
        curves[kind] = whole(model, args.lengths, device)
        print(f"    time ~ length ** {exponent(curves[kind].seconds):.2f}, "
              f"memory ~ length ** {exponent(curves[kind].bytes):.2f}, over the longest {LONGEST}")
        print(f"{kind}, in chunks of {args.chunk:,} into a cache")
        in_chunks(model, args.prompt, args.chunk, device)
    if args.plot:
        draw(curves, args.plot, title=title)


if __name__ == "__main__":
    main()
