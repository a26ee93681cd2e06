"""Vectors of 2,000 sentences of mixed lengths on a CPU: ours in float32, bfloat16 and int8, and sentence-transformers.

    python benchmarks/embed.py MODEL                        # a folder with all-MiniLM-L6-v2, or any such encoder
    python benchmarks/embed.py MODEL --save reference.npy   # their vectors, for where their library is not
    python benchmarks/embed.py MODEL --threads 1 --cpu-time # on a machine that has other work, too

Each library has a process of its own. All read the same texts in turns, from text to vector; the best of several
rounds counts. Where sentence-transformers is not installed, its loop stands here: transformers' model, batches of 32
sorted by length, and the mean.
"""

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from elsewhere import elsewhere
from numpy.typing import NDArray

import regard
from regard.convert.import_export import import_run
from regard.data.builtin import phrasebook

COUNT = 2_000
JOINED = (1, 1, 1, 1, 2, 2, 4)  # sentences of a text, in turns
BATCH = 32  # what sentence-transformers takes if it is not told
REST = 0.3  # seconds in which the threads of one library, which wait by turning, give way to those of the next
SENTENCES = Path(__file__).parents[2] / "shared" / "data" / "sst2" / "stsa.binary.train.gz"

Vectors = NDArray[np.float32]


Embed = Callable[[Sequence[str]], Vectors]
Timed = Callable[[Sequence[str], bool], tuple[Vectors, float]]


@dataclass
class Contestant:
    name: str
    embed: Timed
    seconds: list[float] = field(default_factory=list)
    found: Vectors | None = None


def timed(embed: Embed, some: Sequence[str], cpu_time: bool) -> tuple[Vectors, float]:
    clock = time.process_time if cpu_time else time.perf_counter
    began = clock()
    return embed(some), clock() - began


def texts(count: int) -> list[str]:
    """One sentence, two or four of film reviews; without these, of the phrase book."""
    if SENTENCES.is_file():
        with gzip.open(SENTENCES, "rt", encoding="utf-8") as file:
            lines = [line.partition(" ")[2].strip() for line in file]
    else:
        lines = [phrase.target for phrase in phrasebook.phrases("train", 2 * count)]
    sizes = [JOINED[number % len(JOINED)] for number in range(count)]
    ends = np.cumsum(sizes)
    return [" ".join(lines[place % len(lines)] for place in range(end - size, end))
            for size, end in zip(sizes, ends.tolist(), strict=True)]


def library(model: Path, threads: int) -> dict[str, Timed]:
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    theirs = SentenceTransformer(str(model), device="cpu")
    return {"sentence-transformers": partial(timed, lambda some: theirs.encode(
        list(some), batch_size=BATCH, show_progress_bar=False))}


def loop(model: Path, threads: int) -> dict[str, Timed]:
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(threads)
    theirs, tokens = AutoModel.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)

    @torch.inference_mode()
    def embed(some: Sequence[str]) -> Vectors:
        order, found = sorted(range(len(some)), key=lambda i: -len(some[i])), list[Vectors]()
        for start in range(0, len(order), BATCH):
            chosen = [some[i] for i in order[start : start + BATCH]]
            read = tokens(chosen, padding=True, truncation=True, max_length=256, return_tensors="pt")
            states, real = theirs(**read).last_hidden_state, read["attention_mask"][..., None]
            found.append(torch.nn.functional.normalize((states * real).sum(1) / real.sum(1)).numpy())
        return np.concatenate(found)[np.argsort(order)]

    return {"transformers, in their loop": partial(timed, embed)}


def ours(run: Path, threads: int) -> dict[str, Timed]:
    torch.set_num_threads(threads)
    kinds: dict[str, dict[str, Any]] = {
        "float32": {}, "bfloat16": {"precision": "bfloat16"}, "int8": {"quantize": "int8"}}
    found = {}
    for name, options in kinds.items():
        predictor = regard.load(run, device="cpu", **options)
        found[f"regard {name}"] = partial(timed, predictor.embed)
    return found


def measure(contestants: list[Contestant], some: Sequence[str], rounds: int, *, cpu_time: bool) -> None:
    for _ in range(rounds):
        for contestant in contestants:
            time.sleep(REST)
            contestant.found, seconds = contestant.embed(some, cpu_time)
            contestant.seconds.append(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="of this process, whatever else runs")
    parser.add_argument("--save", type=Path, help="write the vectors of the reference as a .npy")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    some = texts(asked.count)
    with tempfile.TemporaryDirectory() as folder:
        import_run(asked.model, run := Path(folder) / "run")
        peer = library if find_spec("sentence_transformers") else loop
        functions = elsewhere(peer, asked.model, asked.threads) | elsewhere(ours, run, asked.threads)
        contestants = [Contestant(name, embed) for name, embed in functions.items()]
        measure(contestants, some, asked.rounds, cpu_time=asked.cpu_time)
    reference = contestants[0]
    exact = contestants[1].found
    assert exact is not None
    assert reference.found is not None
    if asked.save:
        np.save(asked.save, reference.found)
    print(f"{asked.count} texts, {asked.threads} threads, best of {asked.rounds}; largest difference in float32: "
          f"{np.abs(exact - reference.found).max():.1e}")
    best = min(reference.seconds)
    for each in contestants:
        assert each.found is not None
        cosine = (each.found * exact).sum(1) / np.linalg.norm(each.found, axis=1) / np.linalg.norm(exact, axis=1)
        print(f"{each.name:28}{min(each.seconds):8.2f} s {asked.count / min(each.seconds):8.0f} texts/s "
              f"{best / min(each.seconds):6.2f}×   least cosine to float32 {cosine.min():.4f}")


if __name__ == "__main__":
    main()
