"""What it costs to watch an attention, beside transformers asked for its attentions.

    python benchmarks/watch.py --device cuda
    python benchmarks/watch.py --rows 2 --length 64 --width 64 --depth 2 --heads 4 --vocabulary 512 --long 512

The shape is GPT-2's smallest; the forward ends with the states, as transformers' GPT2Model does. First the bits of
watched and unwatched passes are compared, then all are timed in turns. Memory is known on a GPU alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.device import choose_device
from regard.look.watch import LIMIT, Seen, sites, watch
from regard.models.build import text_encoder, translator
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Embedding, Tower

Call = Callable[[], Any]
WARM = 3  # calls before the clock runs
STEPS = 8  # tokens of a prompt, and as many steps with a cache after it


@dataclass(frozen=True)
class Size:
    rows: int
    length: int
    width: int
    depth: int
    heads: int
    vocabulary: int

    def tower(self, longest: int) -> Tower:
        return Tower(width=self.width, depth=self.depth, heads=self.heads, max_positions=longest, positions="learned",
                     activation="gelu-tanh", embedding=Embedding(scaled=False), dropout=0.0)


def ready(model: Any, device: torch.device, precision: torch.dtype) -> Any:
    initialize(model, seed=0)
    return model.to(device, precision).eval()


# The same bits.


def passes(size: Size, device: torch.device, precision: torch.dtype) -> Iterator[tuple[str, nn.Module, Call]]:
    """Every shape of model, whole and step by step: each with what is to be run twice."""
    tower, draw = size.tower(size.length), torch.Generator(device).manual_seed(0)
    source, target = (torch.randint(size.vocabulary, (2, size.length), generator=draw, device=device) for _ in range(2))
    encoder = ready(text_encoder(tower, vocabulary=size.vocabulary), device, precision)
    yield "encoder", encoder, lambda: encoder(encoder.embed(source))
    decoder = ready(Decoder(tower, vocabulary=size.vocabulary), device, precision)
    yield "decoder", decoder, lambda: decoder(decoder.embed(target))
    both = ready(translator(tower, sources=size.vocabulary, targets=size.vocabulary), device, precision)
    yield "encoder-decoder", both, lambda: both(source, target)
    for kind, capacity in (("growing", None), ("fixed", 2 * STEPS)):
        yield f"decoder, {kind} cache", decoder, lambda capacity=capacity: stepped(decoder, target, capacity)
        yield f"encoder-decoder, {kind} cache", both, lambda capacity=capacity: stepped(both, target, capacity, source)


def stepped(model: Any, target: Tensor, capacity: int | None, source: Tensor | None = None) -> Tensor:
    state = model.begin(len(target), None if source is None else model.encode(source), capacity=capacity)
    calls = [target[:, :STEPS], *target[:, STEPS: 2 * STEPS].split(1, dim=1)]
    return torch.cat([model.step(tokens, state) for tokens in calls], dim=1)


def compare(size: Size, device: torch.device, precision: torch.dtype) -> None:
    for name, model, call in passes(size, device, precision):
        plain = call()
        with watch(model, heads=[0], limit=8 * LIMIT) as seen:
            watched = call()
        assert len(seen) == len(sites(model))
        print(f"{name:32} {bits(plain, watched)}")


def compare_compiled(size: Size, device: torch.device, precision: torch.dtype) -> None:
    [(model, call)] = [(model, call) for name, model, call in passes(size, device, precision) if name == "decoder"]
    plain = call()
    model.compile()
    fast = call()
    with watch(model, heads=[0]):
        watched = call()
    print(f"{'decoder, compiled, then watched':32} {bits(plain, watched)} as eager; compiled it differs by "
          f"{(fast.float() - plain.float()).abs().max():.2g}, where states reach {plain.abs().max():.2g}")


def bits(one: Tensor, other: Tensor) -> str:
    return "same bits" if torch.equal(one, other) else "OTHER BITS"


# Time and memory.


@dataclass
class Contender:
    name: str
    call: Call
    record: Callable[[Any], int] = lambda given: 0
    """Bytes of the weights in what a call gives."""
    times: list[float] = field(default_factory=list)
    peak: int = 0
    """Bytes above what was held before the call."""
    recorded: int = 0

    @property
    def milliseconds(self) -> float:
        return 1000 * statistics.median(self.times)


def measure(contenders: list[Contender], device: torch.device, rounds: int) -> None:
    """One call of each in turn, so that whatever else the machine does falls on all alike."""
    cuda = device.type == "cuda"
    for turn in range(-WARM, rounds):
        for one in contenders:
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            held, start = torch.cuda.memory_allocated() if cuda else 0, time.perf_counter()
            given = one.call()
            if cuda:
                torch.cuda.synchronize()
                one.peak = torch.cuda.max_memory_allocated() - held
            if turn >= 0:
                one.times.append(time.perf_counter() - start)
            one.recorded = one.record(given)
            del given


def ours(model: Any, tokens: Tensor, site: str, what: str, **chosen: Any) -> list[Contender]:
    def plain() -> Tensor:
        return model(model.embed(tokens))

    def watched() -> tuple[Tensor, Seen]:
        with watch(model, site, **chosen) as seen:
            states = plain()
        return states, seen

    return [Contender("regard", plain), Contender(f"regard, watching {what}", watched, lambda given: given[1].nbytes)]


def theirs(size: Size, tokens: Tensor, precision: torch.dtype) -> list[Contender]:
    from transformers import GPT2Config, GPT2Model

    def model(kind: str) -> Any:
        shape = GPT2Config(
            vocab_size=size.vocabulary, n_positions=size.length, n_embd=size.width, n_layer=size.depth,
            n_head=size.heads, use_cache=False, attn_implementation=kind, bos_token_id=None, eos_token_id=None)
        return GPT2Model(shape).to(tokens.device, precision).eval()

    fused, explicit = model("sdpa"), model("eager")
    return [Contender("transformers, sdpa", lambda: fused(tokens)),
            Contender("transformers, eager, output_attentions=True", lambda: explicit(tokens, output_attentions=True),
                      lambda given: sum(each.nbytes for each in given.attentions))]


def table(base: Contender, other: Contender, cuda: bool) -> None:
    """Two of a kind, the second compared with the first."""
    for one in (base, other):
        memory = f"{one.peak / 1e6:9.1f} {(one.peak - base.peak) / 1e6:9.1f}" if cuda else f"{'–':>9} {'–':>9}"
        record = f"{one.recorded / 1e6:10.2f}" if one.recorded else ""
        ratio = one.milliseconds / base.milliseconds
        print(f"{one.name:44} {one.milliseconds:8.2f} {ratio:6.3f} {memory} {record}")


def at_the_site(model: nn.Module, site: str, call: Call, **chosen: Any) -> int:
    """Bytes that watching takes at the moment it does: where the pass needs more elsewhere, its peak hides them."""
    taken: list[int] = []

    def before(*_: object) -> None:
        torch.cuda.reset_peak_memory_stats()
        taken.append(torch.cuda.memory_allocated())

    def after(*_: object) -> None:
        taken.append(torch.cuda.max_memory_allocated() - taken.pop())

    hooks = [sites(model)[site].register_forward_pre_hook(before)]
    with watch(model, site, **chosen):
        hooks.append(sites(model)[site].register_forward_pre_hook(after))
        call()
    for hook in hooks:
        hook.remove()
    return taken[0]


def run(size: Size, long: int, device: torch.device, precision: torch.dtype, rounds: int) -> None:
    """One head of one layer, beside all of them by transformers; and one row of one layer of a long text."""
    cuda, site = device.type == "cuda", f"blocks.{size.depth // 2}.self"

    def decoder(length: int) -> Any:
        return ready(Decoder(size.tower(length), vocabulary=size.vocabulary), device, precision)

    print(f"\n{'':44} {'ms':>8} {'ratio':>6} {'peak MB':>9} {'extra MB':>9} {'record MB':>10}")
    print(f"{size.rows}×{size.length} tokens, {size.depth} blocks, width {size.width}, {size.heads} heads, {precision}")
    tokens = torch.randint(size.vocabulary, (size.rows, size.length), device=device)
    model = decoder(size.length)
    mine, peers = ours(model, tokens, site, "one head of one layer", heads=[0]), theirs(size, tokens, precision)
    measure(mine + peers, device, rounds)
    table(*mine, cuda)
    table(*peers, cuda)
    if cuda:
        print(f"at the site itself watching takes {at_the_site(model, site, mine[0].call, heads=[0]) / 1e6:.1f} MB")

    print(f"1×{long:,} tokens, all heads")
    tokens, row = torch.randint(size.vocabulary, (1, long), device=device), [long - 1]
    model = decoder(long)
    mine = ours(model, tokens, site, "one row of one layer", rows=row)
    measure(mine, device, rounds)
    table(*mine, cuda)
    if cuda:
        print(f"at the site itself watching takes {at_the_site(model, site, mine[0].call, rows=row) / 1e6:.1f} MB")
    plain, (watched, seen) = (one.call() for one in mine)
    print(f"{bits(plain, watched)}; weights sum to {seen[site].sum(-1).min():.6f} or more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="default: bfloat16 on a GPU")
    for name, value in (("rows", 8), ("length", 1024), ("width", 768), ("depth", 12), ("heads", 12),
                        ("vocabulary", 50_304)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--long", type=int, default=16_384, help="tokens of the long text")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="compare compiled code, too; "
                        "default: on a GPU")
    args = parser.parse_args()
    device, cuda = choose_device(args.device), args.device == "cuda"
    precision = getattr(torch, args.precision or ("bfloat16" if cuda else "float32"))
    size = Size(args.rows, args.length, args.width, args.depth, args.heads, args.vocabulary)
    where = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}\n")
    with torch.inference_mode():
        compare(size, device, precision)
        if cuda if args.compile is None else args.compile:
            compare_compiled(size, device, precision)
        run(size, args.long, device, precision, args.rounds)


if __name__ == "__main__":
    main()
