"""Attention rollout: how much of each input reaches each place through all layers (Abnar and Zuidema 2020, section 3).

Each layer counts with the mean of its heads. `identity` is the share of the residual path, which carries a place to
itself: 0.5 in the paper; 0 multiplies the attention of the layers and nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.record import Record
from regard.look.watch import Seen
from regard.settings.errors import UserError

__all__ = ["rollout", "rollout_of_record", "rollout_of_seen", "stacks"]


def rollout(layers: Sequence[Float[np.ndarray, "heads n n"]], *, identity: float = 0.5) -> Float[np.ndarray, "n n"]:
    """Through all layers, the first layer first.

    >>> layer = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    >>> rollout([layer, layer]).tolist(), rollout([layer, layer], identity=0).tolist()
    ([[1.0, 0.0], [0.4375, 0.5625]], [[1.0, 0.0], [0.75, 0.25]])
    """
    *_, last = _after_each_layer([torch.from_numpy(layer.mean(0, dtype=np.float64)) for layer in layers], identity)
    return last.numpy()


def rollout_of_record(record: Record, *, identity: float = 0.5) -> Record:
    """At each self-attention, the rollout from the first layer of its stack through it; other sites are left out."""
    own = [site for site, axes in record.axes.items()
           if axes.one_sequence and record[site].shape[1] == record[site].shape[2]]
    weights = {}
    for stack in _whole_stacks(own):
        # In float64: twelve products of float32 would lose digits that a temperature of the page shows.
        means = [torch.from_numpy(record[site].mean(0, dtype=np.float64)) for site in stack]
        for site, through in zip(stack, _after_each_layer(means, identity), strict=True):
            weights[site] = through.numpy().astype(np.float32)[None]
    return replace(record.only(list(weights)), weights=weights, heads=dict.fromkeys(weights, (-1,)))


def rollout_of_seen(seen: Seen, *, identity: float = 0.5) -> dict[str, Float[Tensor, "batch n n"]]:
    """The same for weights from `watch`, on their device.

    Watch self-attentions only: `with watch(model, "*.self") as seen`. Padding must have no weight, as it has after a
    mask.
    """
    found: dict[str, Tensor] = {}
    for stack in _whole_stacks(seen):
        means = [seen[site].mean(1) for site in stack]
        if means[0].shape[1] != means[0].shape[2]:
            raise UserError(f"{stack[0]}: {means[0].shape[1]} rows and {means[0].shape[2]} columns; rollout needs "
                            "self-attention with all its rows: watch only='*.self', without rows= or reduce=")
        found |= dict(zip(stack, _after_each_layer(means, identity), strict=True))
    return found


def stacks(sites: Sequence[str]) -> dict[str, dict[int, str]]:
    """Sites that differ in their layer only, by that layer.

    >>> stacks(["encoder.blocks.0.self", "encoder.blocks.1.self"])
    {'encoder.blocks.*.self': {0: 'encoder.blocks.0.self', 1: 'encoder.blocks.1.self'}}
    """
    found: dict[str, dict[int, str]] = {}
    for site in sites:
        path = site.split(".")
        place = max((i for i, part in enumerate(path) if part.isdecimal()), default=None)
        if place is not None:
            found.setdefault(".".join([*path[:place], "*", *path[place + 1 :]]), {})[int(path[place])] = site
    return found


def _whole_stacks(sites: Mapping[str, object] | Sequence[str]) -> Iterator[list[str]]:
    """The sites of each stack in order. Every layer has to be there."""
    known = stacks(list(sites))
    if not known:
        raise UserError("rollout needs the self-attention of a stack of layers, and none was recorded")
    for name, layers in known.items():
        if missing := set(range(max(layers) + 1)) - set(layers):
            raise UserError(f"{name}: layer {min(missing)} was not recorded; rollout needs every layer from the first")
        yield [layers[number] for number in sorted(layers)]


def _after_each_layer(means: Sequence[Float[Tensor, "*batch n n"]],
                      identity: float) -> Iterator[Float[Tensor, "*batch n n"]]:
    through = own = torch.eye(means[0].shape[-1], dtype=means[0].dtype, device=means[0].device)
    for mean in means:
        mixed = (1 - identity) * mean + identity * own
        total = mixed.sum(-1, keepdim=True)
        # A row that sees nothing has no weights: it stays zero, and is not divided by it.
        through = (mixed / total.masked_fill(total == 0, 1)) @ through
        yield through
