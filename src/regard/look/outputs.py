"""A model's outputs with their words, their alternatives and their attention."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.look.axes import AxisPair
from regard.look.choices import Choice
from regard.look.record import Record
from regard.look.watch import Seen

__all__ = ["records", "token_alternatives"]


def records(seen: Seen, axes: Sequence[Mapping[str, AxisPair]]) -> Iterator[Record]:
    """A record of each row of a batch; its axes, by site, say how much of the row is real."""
    weights = {site: seen[site].float().cpu().numpy() for site in seen}
    for row, of_row in enumerate(axes):
        own = {site: array[row, :, : len(of_row[site].targets), : len(of_row[site].sources)].copy()  # not all the batch
               for site, array in weights.items()}
        yield Record(own, dict(of_row), dict(seen.heads))


def token_alternatives(tokens: Tokenizer, logits: Float[Tensor, "places vocabulary"], written: Sequence[int], *,
            never: Sequence[int], best: int) -> tuple[Choice, ...]:
    """The written token at each place, and the most likely tokens there, without those in `never`."""
    chances = logits.float().index_fill(1, torch.tensor(never, device=logits.device), -math.inf).softmax(-1).cpu()
    top = chances.topk(min(best, chances.shape[1] - len(never)))
    taken = chances[torch.arange(len(written)), list(written)]
    return tuple(Choice(word, chance, tuple(zip(tokens.pieces(ids), values, strict=True)))
                 for word, chance, ids, values in zip(tokens.pieces(written), taken.tolist(), top.indices.tolist(),
                                                      top.values.tolist(), strict=True))
