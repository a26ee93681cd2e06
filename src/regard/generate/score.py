"""How likely given texts are: the log-probability of every token after those before it."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.generate.prefill import CHUNK, prefill, read
from regard.generate.sampler import padded
from regard.generate.steps import Steps

__all__ = ["compare", "scores"]

MAX_TOKENS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 16}  # tokens, padding included, that are read at once
LOGITS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 26}  # logits held at once


@torch.no_grad()
def scores(model: Steps, rows: Sequence[Sequence[int]], *, chunk: int = CHUNK) -> list[NDArray[np.float32]]:
    """For each row the log-probabilities of its tokens but the first, which is only read.

    Rows of like lengths are read together, long ones in chunks, and their logits made a piece at a time.
    """
    device = next(model.parameters()).device
    found: dict[int, NDArray[np.float32]] = {}
    for places in _alike([len(row) for row in rows], MAX_TOKENS_AT_ONCE.get(device.type, 1 << 14)):
        tokens = padded([rows[place] for place in places], device=device)
        chances = _chances(model, tokens, chunk).cpu().numpy()
        found |= {place: line[: max(0, len(rows[place]) - 1)] for place, line in zip(places, chances, strict=True)}
    return [found[place] for place in range(len(rows))]


@torch.no_grad()
def compare(model: Steps, prompts: Sequence[Sequence[int]],
            endings: Sequence[Sequence[Sequence[int]]]) -> Float[np.ndarray, "prompts endings"]:
    """The log-probability of each ending of each prompt, all having equally many. A prompt is read once for all."""
    device, count = next(model.parameters()).device, len(endings[0]) if endings else 0
    totals = np.zeros((len(prompts), count))
    together = MAX_TOKENS_AT_ONCE.get(device.type, 1 << 14) // max(1, count)
    for places in _alike([len(prompt) for prompt in prompts], together):
        begun = [prompts[place] for place in places]
        ends = [ending for place in places for ending in endings[place]]
        lasts = [prompt[-1] for prompt in begun for _ in range(count)]
        targets = padded(ends, device=device)
        tokens = padded(begun, device=device)
        state = model.begin(len(begun), capacity=tokens.shape[1] + targets.shape[1])
        prefill(model, tokens[:, :-1], state)
        state.truncate(torch.tensor([[len(prompt) - 1] for prompt in begun], device=device))
        state.reorder(torch.arange(len(begun), device=device).repeat_interleave(count))
        step = padded([[last, *ending[:-1]] for last, ending in zip(lasts, ends, strict=True)], device=device)
        chances = _of_targets(model, model.step(step, state).flatten(0, 1), targets.flatten()).view(targets.shape)
        real = torch.arange(targets.shape[1]) < torch.tensor([[len(ending)] for ending in ends])
        totals[places] = chances.cpu().where(real, 0.0).sum(1).view(-1, count).numpy()
    return totals


def _alike(lengths: Sequence[int], together: int) -> Iterator[list[int]]:
    """The places of rows of like lengths, the longest first."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    while order:
        count = max(1, together // max(1, lengths[order[0]]))
        yield order[:count]
        order = order[count:]


def _chances(model: Steps, tokens: Int[Tensor, "rows n"], chunk: int) -> Float[Tensor, "rows n-1"]:
    rows, length = tokens.shape
    state = model.begin(rows, capacity=length)
    out = torch.zeros(rows, max(0, length - 1), device=tokens.device)
    start = 0
    for states in read(model, tokens[:, :-1], state, chunk=chunk):
        stop = start + states.shape[1]
        flat = _of_targets(model, states.flatten(0, 1), tokens[:, start + 1 : stop + 1].flatten())
        out[:, start:stop] = flat.view(rows, -1)
        start = stop
    return out


def _of_targets(model: Steps, states: Float[Tensor, "n width"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    vocabulary = model.logits(states[:1, None]).shape[-1]
    piece = max(1, LOGITS_AT_ONCE.get(states.device.type, 1 << 24) // vocabulary)
    parts = []
    for some, wanted in zip(states.split(piece), targets.split(piece), strict=True):
        chances = model.logits(some[:, None])[:, 0].log_softmax(-1, dtype=torch.float32)
        parts.append(chances.gather(1, wanted[:, None])[:, 0])
    return torch.cat(parts)
