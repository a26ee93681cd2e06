"""Beam search of one translator, by us and by transformers' generate: the same answers, and how long they take.

    python benchmarks/beam.py --device cuda
    python benchmarks/beam.py --device cpu --sentences 8

Both have the same weights and write exactly as many tokens as the source has. First the answers are compared, in
float32; then both are timed in turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from elsewhere import elsewhere
from peers import BASE, END, PAD, SMALL, Shape, copy_marian, marian
from torch import Tensor

from regard.device import choose_device
from regard.generate.beam import Beam, Hypothesis, Search, beam
from regard.generate.filters import Forbid
from regard.kernels.cuda_graphs import Captures, weights_key
from regard.models.build import translator
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory

BEAMS = 5


@dataclass(frozen=True)
class Answers:
    """The hypotheses of each sentence, the best first."""

    tokens: Tensor  # (sentences, beams, length)
    scores: Tensor  # (sentences, beams)


def ours(model: EncoderDecoder, source: Tensor, forbid: Forbid, captures: Captures[Search]) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        states = captures.call(lambda source: model.encode(source).states, source, key=weights_key(model))
        return beam(
            model, source.new_full((len(source), 1), PAD), how=Beam(end=END, longest=source.shape[1], size=BEAMS),
            memory=Memory(states), filters=[forbid], captures=captures)


def as_tensors(found: list[list[Hypothesis]]) -> Answers:
    return Answers(torch.tensor([[one.tokens for one in row] for row in found]),
                   torch.tensor([[one.score for one in row] for row in found]))


def theirs(model: Any, source: Tensor, **more: Any) -> Any:
    length = source.shape[1]
    return model.generate(source, num_beams=BEAMS, length_penalty=1.0, min_new_tokens=length, max_new_tokens=length,
                          do_sample=False, **more)


def their_answers(model: Any, source: Tensor) -> Answers:
    found = theirs(
        model, source, num_return_sequences=BEAMS, output_scores=True, return_dict_in_generate=True,
        renormalize_logits=True)  # without it, the forbidden end keeps its share of the probability
    return Answers(found.sequences[:, 1:].view(len(source), BEAMS, -1).cpu(),
                   found.sequences_scores.view(len(source), BEAMS).cpu())


def models(shape: Shape, device: str) -> tuple[EncoderDecoder, Any]:
    torch.manual_seed(0)
    # Larger weights than Marian begins with: there each token just repeats itself, and a search has nothing to do.
    peer = marian(shape, std=1.5 * shape.width**-0.5)
    model = translator(shape.tower, sources=shape.vocabulary, targets=shape.vocabulary)
    copy_marian(model, peer)
    return model.to(device).eval(), peer.to(device).eval()


def peer(shape: Shape, device: str) -> dict[str, Callable[..., Any]]:
    """What it says to a source; and how it is made to have, and to search with, numbers of another kind."""
    _, other = models(shape, device)

    def become(precision: str) -> None:
        other.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)

    return {"answer": lambda source: their_answers(other, source), "become": become,
            "search": lambda source: theirs(other, source)}


def compare(mine: Answers, other: Answers) -> None:
    """A random model likes to repeat itself: hypotheses past the best come close to ties, which rounding decides.

    Where they differ, the scores, rank by rank, tell a tie from a mistake.
    """
    same = (mine.tokens == other.tokens).all(-1)
    print(f"best answers that are the same: {int(same[:, 0].sum())} of {len(same)}; "
          f"all {BEAMS} of each sentence: {int(same.sum())} of {same.numel()}")
    apart = (mine.scores - other.scores).abs().max()
    print(f"largest difference of a score: {apart:.1e}, of {mine.scores.min():.3f} to {mine.scores.max():.3f}")


def timed(run: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", nargs="+", choices=["float32", "tf32", "bfloat16"], default=["float32"],
                        help="of the weights, for the times alone")
    parser.add_argument("--small", action="store_true", help="the small model of train_step instead of the base one")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--repeats", type=int, help="timed runs of each (7 on a GPU, 3 on a CPU)")
    args = parser.parse_args()

    shape = replace(SMALL if args.small else BASE, rows=args.sentences)
    # On a CPU in a process of its own, where the C library's memory is as it comes.
    other = peer(shape, "cuda") if args.device == "cuda" else elsewhere(peer, shape, "cpu")
    choose_device(args.device)
    mine, _ = models(shape, args.device)
    source = torch.randint(END + 1, shape.vocabulary, (shape.rows, shape.length), device=args.device)
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}: beam {BEAMS}, {shape.rows} sentences of {shape.length} tokens, "
          f"{shape.depth}+{shape.depth} blocks, width {shape.width}, vocabulary {shape.vocabulary:,}")
    forbid = Forbid([END], vocabulary=shape.vocabulary, device=source.device)
    captures: Captures[Search] = Captures()
    torch.set_float32_matmul_precision("highest")  # regard allows TF32 on a GPU
    compare(as_tensors(ours(mine, source, forbid, captures)), other["answer"](source))

    repeats = args.repeats or (7 if args.device == "cuda" else 3)
    print(f"\n{'':10} {'':10} {'seconds':>9} {'fastest':>9} {'sentences/s':>12} {'tokens/s':>10} {'time/ours':>10}")
    for precision in args.precision:
        mine.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        other["become"](precision)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        runs = {"ours": lambda: ours(mine, source, forbid, captures), "marian": lambda: other["search"](source)}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run()
        for _ in range(repeats):
            for name, run in runs.items():
                times[name].append(timed(run, args.device))
        for name, seconds in times.items():
            median = statistics.median(seconds)
            print(f"{name:10} {precision:10} {median:9.3f} {min(seconds):9.3f} {shape.rows / median:12.1f} "
                  f"{shape.rows * shape.length / median:10,.0f} {median / statistics.median(times['ours']):10.2f}")


if __name__ == "__main__":
    main()
