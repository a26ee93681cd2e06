"""The arithmetic of larger runs: the tables of docs/scale.md, from the estimate that `regard plan` prints.

    python benchmarks/scale.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.models.decoder import Decoder
from regard.nn.loss import cross_entropy
from regard.settings.schema import Embedding, Tower, Train
from regard.training.estimate import Parameters, bytes_sent, memory
from regard.training.meta_trace import Trace, trace

GPUS = (8, 64, 512)
TOKENS = 8_192  # on each GPU in a step


@dataclass(frozen=True)
class Size:
    """A language model, and how many tokens of text it sees at a time."""

    name: str
    tower: Tower
    vocabulary: int
    length: int


def gpt(width: int, depth: int, heads: int, longest: int) -> Tower:
    """Radford et al. 2019, Brown et al. 2020."""
    return Tower(width=width, depth=depth, heads=heads, activation="gelu-tanh", positions="learned",
                 max_positions=longest, tied="output", embedding=Embedding(scaled=False))


SIZES = (
    Size("GPT-2 small", gpt(768, 12, 12, 1024), 50_304, 1024),
    Size("GPT-2 XL", gpt(1600, 48, 25, 1024), 50_304, 1024),
    # Touvron et al. 2023, table 2
    Size("7B", Tower(width=4096, depth=32, heads=32, ffn_width=11_008, activation="swiglu", norm="rms", bias=False,
                     positions="rotary", tied="none", dropout=0.0, embedding=Embedding(scaled=False)), 32_000, 2048),
    Size("GPT-3", gpt(12_288, 96, 96, 2048), 50_304, 2048),
)


def traced(size: Size) -> tuple[Parameters, Trace]:
    with torch.device("meta"):
        model = Decoder(size.tower, vocabulary=size.vocabulary)
        tokens = torch.empty(TOKENS // size.length, size.length, dtype=torch.long)

    def loss() -> Tensor:
        states = model(model.embed(tokens)).flatten(0, 1)
        return cross_entropy(states, model.output.weight, tokens.flatten(), ignore=-1)[0]

    return Parameters.of(model), trace(model, loss, device="cuda", precision=torch.bfloat16)


def rows(sizes: Sequence[Size] = SIZES) -> Iterator[str]:
    yield (f"| {TOKENS:,} tokens on each GPU | parameters | data parallel | " +
           " | ".join(f"sharded over {count}" for count in GPUS) + " | sent by each GPU |")
    yield "|---|" + "---:|" * (3 + len(GPUS))
    for size in sizes:
        parameters, found = traced(size)
        how = {fsdp: Train(activation_checkpointing=True, fsdp=fsdp, compile="on", length_buckets=1)
               for fsdp in (False, True)}
        needs = [memory(parameters, found, how[False], device="cuda", gpus=GPUS[0]).total]
        needs += [memory(parameters, found, how[True], device="cuda", gpus=count).total for count in GPUS]
        sent = " · ".join(f"{bytes_sent(parameters.total, how[False], count) / 1e9:,.1f}" for count in GPUS)
        cells = [f"{parameters.total / 1e9:,.3f} B", *(f"{need / 2**30:,.1f} GiB" for need in needs), f"{sent} GB"]
        yield f"| {size.name} ({size.tower.width:,} × {size.tower.depth}) | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print("\n".join(rows()))
