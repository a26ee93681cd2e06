"""Numbers about attention: how spread out it is, how far it reaches, how it moves a word."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.tokenizer import Tokenizer
from regard.look.hooks import in_this_thread
from regard.look.record import Record
from regard.look.wordpieces import words
from regard.settings.errors import UserError

__all__ = ["MEASURES", "by_head", "distance", "entropy", "first", "moved"]


def entropy(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """In bits: 0 where all goes to one token, log₂ n where it is spread evenly over n.

    >>> entropy(np.array([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]))
    array([0., 2.])
    """
    logarithms = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(0.0 - (weights * logarithms).sum(-1))


def distance(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """How many places away the weight lies on average; between two sentences, how far from the diagonal."""
    targets, sources = weights.shape[-2:]
    return np.asarray((weights * np.abs(np.arange(targets)[:, None] - np.arange(sources))).sum(-1))


def first(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """The share of the first token, where heads look that find nothing (Xiao et al. 2024)."""
    return weights[..., 0]


MEASURES: dict[str, Callable[[Float[np.ndarray, "*heads targets sources"]], Float[np.ndarray, "*heads targets"]]] = {
    "entropy": entropy, "distance": distance, "first": first}


def by_head(records: Sequence[Record], measure: Callable[[np.ndarray], np.ndarray]) -> dict[tuple[str, int], float]:
    """The mean of a measure over all rows of all records, for each site and head."""
    rows: dict[tuple[str, int], list[np.ndarray]] = {}
    for record in records:
        for site, weights in record.items():
            for number, row in zip(record.heads[site], measure(weights), strict=True):
                rows.setdefault((site, number), []).append(row)
    return {head: float(np.concatenate(its).mean()) for head, its in rows.items()}


@torch.no_grad()
def moved(tower: nn.Module, tokens: Tokenizer, word: str, one: str, other: str) -> list[float]:
    """The similarity of a word's vectors in two texts: their cosine on entering the tower, and after each block.

    A word that means what its neighbours make of it, as "bank" beside "river" or "street", begins near 1 and moves
    away. The tower is an encoder or a decoder; a word in several pieces is their mean.
    """
    pairs = zip(_states(tower, tokens, word, one), _states(tower, tokens, word, other), strict=True)
    return [float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs]


def _states(tower: nn.Module, tokens: Tokenizer, word: str, text: str) -> list[Float[Tensor, " width"]]:
    if word not in text.split():
        raise UserError(f"{word}: no word of {text!r}")
    [ids] = tokens.encode([text])
    pieces = words(tokens.pieces(ids))[text.split().index(word)]
    found: list[Tensor] = []
    blocks: Sequence[nn.Module] = tower.blocks  # type: ignore[assignment]
    keep = in_this_thread(lambda block, inputs, output: found.append(output))
    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        device = next(tower.parameters()).device
        found.append(tower.embed(torch.tensor([[*ids, tokens.end]], device=device)))  # type: ignore[operator]
        tower(found[0])
    finally:
        for hook in hooks:
            hook.remove()
    return [states[0, pieces].float().mean(0) for states in found]
