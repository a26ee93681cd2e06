"""What a longer text costs an attention layer that has a window and a global token, beside one that sees all.

    python benchmarks/window.py --device cuda --plot docs/pictures/window.png
    python benchmarks/window.py --device cuda --rows 1      # one text, however short: the GPU is not full before 8k
    python benchmarks/window.py --longest 4096              # a minute on one core
    python benchmarks/window.py --device cuda --classify    # one long document through twelve layers
    python benchmarks/window.py --device cuda --tiles       # which tiles of the kernel suit this GPU

The layer is BERT's and Longformer's (width 768, 12 heads, 256 tokens to either side), with its projections, forth and
back; full attention is torch's own fused kernel. Every pass has the same number of tokens, in as many rows as that
makes, unless --rows says otherwise: a cost that is linear in the length is then the same time in every line.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from length import most_bytes, seconds
from torch import Tensor

from regard.device import choose_device
from regard.kernels import attention_sliding_window as near
from regard.models.build import text_encoder
from regard.nn.attention import Attention
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Tower

WIDTH, HEADS, DEPTH, WINDOW, VOCABULARY = 768, 12, 12, 256, 50_265
SHORTEST = 1_024
MIB = 2**20
TRIED = {  # (queries, keys), warps and stages of a tile
    "FORTH": ([(128, 64), (128, 128), (64, 64)], [4, 8], [2, 3, 4]),
    "BACK_TO_QUERIES": ([(128, 64), (64, 64), (128, 32), (64, 32)], [4, 8], [2, 3]),
    "BACK_TO_KEYS": ([(64, 128), (64, 64), (32, 128), (32, 64)], [4, 8], [2, 3]),
}


@dataclass(frozen=True)
class Point:
    """What one pass took."""

    length: int
    rows: int
    seconds: float
    bytes: int

    @property
    def per_token(self) -> float:
        """Microseconds."""
        return 1e6 * self.seconds / (self.rows * self.length)

    @property
    def kib_per_token(self) -> float:
        return self.bytes / 1024 / (self.rows * self.length)


def with_first_global(rows: int, length: int, window: int | None, device: torch.device) -> Mask:
    chosen = (torch.arange(length, device=device) == 0).expand(rows, -1)
    return Mask(window=window, globals=chosen, most_globals=1)


def forth_and_back(layer: Attention, mask: Mask, rows: int, length: int, like: Tensor) -> Callable[[], Any]:
    x = torch.randn(rows, length, WIDTH, device=like.device, dtype=like.dtype, requires_grad=True)
    grad = torch.randn_like(x)

    def call() -> None:
        layer(x, mask=mask).backward(grad)
        layer.zero_grad()  # the gradients are part of what a pass takes
        x.grad = None

    return call


def curve(layer: Attention, window: int | None, lengths: list[int], rows: Callable[[int], int]) -> Iterator[Point]:
    like = layer.out.weight
    for length in lengths:
        mask = Mask() if window is None else with_first_global(rows(length), length, window, like.device)
        call = forth_and_back(layer, mask, rows(length), length, like)
        call()  # the first call sets things up
        held, _ = most_bytes(call, like.device)
        yield Point(length, rows(length), seconds(call, like.device), held)


def compare(layer: Attention, lengths: list[int], rows: Callable[[int], int], plot: str | None) -> None:
    kinds: dict[str, int | None] = {f"window {WINDOW} and a global token": WINDOW, "full": None}
    curves: dict[str, list[Point]] = {}
    for kind, window in kinds.items():
        print(f"\n{kind}")
        print(f"{'tokens':>8} {'rows':>5} {'ms':>10} {'µs/token':>9} {'to 1k':>6} {'MiB':>9} {'KiB/token':>10}")
        curves[kind] = []
        for point in curve(layer, window, lengths, rows):
            curves[kind].append(point)
            relative = point.per_token / curves[kind][0].per_token
            print(f"{point.length:8,} {point.rows:5} {1000 * point.seconds:10.2f} {point.per_token:9.4f} "
                  f"{relative:6.2f} {point.bytes / MIB:9.1f} {point.kib_per_token:10.2f}", flush=True)
    if plot:
        draw(curves, plot)


def draw(curves: dict[str, list[Point]], file: str) -> None:
    """Time and memory for each token, against the length: what is flat is linear."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from regard.look.plots.loss_curves import COLOURS, FAINT, GREY, INK

    figure = Figure(figsize=(10, 4.2), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
    figures: dict[str, Callable[[Point], float]] = {
        "µs per token, forth and back": lambda point: point.per_token,
        "KiB per token": lambda point: point.kib_per_token}
    for axes, (title, of) in zip(figure.subplots(1, 2), figures.items(), strict=True):
        for colour, (kind, points) in zip(COLOURS, curves.items(), strict=False):
            axes.plot([point.length for point in points], [of(point) for point in points], color=colour, marker="o",
                      markersize=4, linewidth=1.8, label=kind)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.1 * max(of(point) for points in curves.values() for point in points))
        lengths = [point.length for point in next(iter(curves.values()))]
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], fontsize=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_title(title, loc="left", color=INK, fontsize=10)
        axes.set_xlabel("tokens", color=GREY, loc="right")
        axes.grid(color=FAINT, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["bottom", "left"]].set_color(GREY)
        axes.tick_params(which="both", color=GREY, labelcolor=GREY)
        axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    figure.savefig(file, dpi=110)


@torch.inference_mode()
def classify(length: int, device: torch.device, dtype: torch.dtype) -> None:
    """The first token of a document, which sees all of it and which all see, is what a label is read from."""
    model = text_encoder(
        Tower(width=WIDTH, depth=DEPTH, heads=HEADS, positions="learned", max_positions=length, window=WINDOW,
              activation="gelu", norm_place="post", dropout=0.0, global_projections=True), vocabulary=VOCABULARY)
    initialize(model, seed=0)
    model.to(device, dtype).eval()
    tokens = torch.randint(VOCABULARY, (1, length), device=device)
    mask = with_first_global(1, length, None, device)

    def call() -> Tensor:
        return model(model.embed(tokens), mask=mask)[:, 0]  # type: ignore[no-any-return]

    assert call().isfinite().all()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    held, _ = most_bytes(call, device)
    print(f"{length:,} tokens through {DEPTH} layers: {1000 * seconds(call, device):.1f} ms, at most "
          f"{held / MIB:.0f} MiB beside {weights / MIB:.0f} MiB of weights")


def try_tiles(layer: Attention, length: int, rows: int) -> None:
    """Forth and back with each tile in turn, the other two kernels as they are."""
    like = layer.out.weight
    call = forth_and_back(layer, with_first_global(rows, length, WINDOW, like.device), rows, length, like)
    for name, tried in TRIED.items():
        tiles, found = getattr(near, name), list[tuple[float, near.Tile]]()
        usual = tiles[64]
        for (queries, keys), warps, stages in product(*tried):
            tiles[64] = near.Tile(queries, keys, warps, stages)
            try:
                call()
                found.append((seconds(call, like.device, patience=0.2), tiles[64]))
            except Exception as error:  # noqa: BLE001 Triton's own, of a tile that this GPU has no room for
                print(f"{name} {tiles[64]}: {type(error).__name__}")
        tiles[64] = usual
        for took, tile in sorted(found)[:5]:
            print(f"{name:16} {1000 * took:8.3f} ms  {tile}{'  (in use)' if tile == usual else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--longest", type=int, default=32_768)
    parser.add_argument("--rows", type=int, help="absent: as many as have the tokens of the longest text")
    parser.add_argument("--plot", help="a PNG")
    parser.add_argument("--classify", action="store_true")
    parser.add_argument("--tiles", action="store_true")
    args = parser.parse_args()
    device = choose_device(args.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.set_num_threads(args.threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {args.threads} thread(s)"
    print(f"{name}, torch {torch.__version__}, {dtype}")
    if args.classify:
        return classify(args.longest, device, dtype)
    layer = Attention(WIDTH, heads=HEADS)
    initialize(layer, seed=0)
    layer.to(device, dtype)
    if args.tiles:
        return try_tiles(layer, 8_192, 4)
    lengths = [SHORTEST << power for power in range((args.longest // SHORTEST).bit_length())]
    return compare(layer, lengths, lambda length: args.rows or lengths[-1] // length, args.plot)


if __name__ == "__main__":
    main()
