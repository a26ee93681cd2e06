"""A two-way table of tensor names: theirs ↔ ours.

A rule says which of their tensors make up one of ours: laid under each other (three projections are our `qkv`) and
turned where they keep a matrix as (in, out). Read from right to left it takes ours apart again. A `TensorTable` is made
of rules for one shape of model and proves itself when it is made: every tensor of either side is in one rule, once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.checkpoint import named_tensors, refuse_misfits

__all__ = ["Rule", "TensorTable", "each_layer", "linear", "norm"]


@dataclass(frozen=True)
class Rule:
    """One tensor of ours, and theirs that it is made of."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] | None = None
    """How many of our rows come from each of theirs; absent: all from the one there is."""
    turned: bool = False
    """Whether theirs is the transpose."""
    unread: int = 0
    """The number of unused rows that theirs has before ours."""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The shape of each part here, and there, where the same numbers have another."""

    def joined(self, theirs: Mapping[str, Tensor]) -> Tensor:
        parts = [theirs[name].T if self.turned else theirs[name][self.unread :] for name in self.theirs]
        if self.shapes is not None:
            parts = [part.reshape(self.shapes[0]) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def parted(self, ours: Tensor) -> dict[str, Tensor]:
        if self.unread:
            ours = torch.cat([ours.new_zeros(self.unread, *ours.shape[1:]), ours])
        parts = (ours,) if self.rows is None else ours.split(self.rows)
        if self.shapes is not None:
            parts = tuple(part.reshape(self.shapes[1]) for part in parts)
        return {name: part.T if self.turned else part for name, part in zip(self.theirs, parts, strict=True)}


def linear(ours: str, *theirs: str, bias: bool, rows: tuple[int, ...] | None = None,
           turned: bool = False) -> list[Rule]:
    """Of a linear layer: the matrix, and the bias, which has nothing to turn."""
    weight = Rule(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), rows, turned)
    return [weight, Rule(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), rows)] if bias else [weight]


def norm(ours: str, theirs: str, *, bias: bool) -> list[Rule]:
    return linear(ours, theirs, bias=bias)


def each_layer(rules: Sequence[Rule], depth: int) -> Iterator[Rule]:
    """The rules of a block for every block: `{}` in a name is its number."""
    for layer in range(depth):
        for rule in rules:
            theirs = tuple(name.format(layer) for name in rule.theirs)
            yield replace(rule, ours=rule.ours.format(layer), theirs=theirs)


class TensorTable:
    """The rules for a model of one shape; of its tensors only the shapes are asked for."""

    def __init__(self, rules: Sequence[Rule], model: nn.Module) -> None:
        self.our_shapes = named_tensors(model)
        self.rules = {rule.ours: rule for rule in rules}
        assert len(self.rules) == len(rules), "a tensor of ours is in two rules"
        unmatched = self.rules.keys() ^ self.our_shapes.keys()
        assert not unmatched, f"only in the rules or only in the model: {unmatched}"
        # Splitting ours fails if the rows do not add up.
        parts = [part for name, rule in self.rules.items() for part in rule.parted(self.our_shapes[name]).items()]
        self.their_shapes = dict(parts)
        assert len(self.their_shapes) == len(parts), "a tensor of theirs is in two rules"

    def ours(self, theirs: Mapping[str, Tensor], *, origin: str) -> dict[str, Tensor]:
        """Their tensors under our names; what is missing, left over or of another shape is named."""
        refuse_misfits(self.their_shapes, theirs, origin=origin)
        return {name: rule.joined(theirs) for name, rule in self.rules.items()}

    def theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors under their names."""
        refuse_misfits(self.our_shapes, ours, origin="the model")
        return {name: part for rule in self.rules.values() for name, part in rule.parted(ours[rule.ours]).items()}
