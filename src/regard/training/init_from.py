"""Initialize a model with the weights of a trained one, all but the head."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.checkpoint import named_tensors, refuse_misfits
from regard.convert.backbone import backbone_of
from regard.nn.lora import INSIDE
from regard.settings.schema import Run
from regard.tasks.base import Sizes
from regard.tasks.traits import traits_of
from regard.training.parallel import World
from regard.training.trainable import INPUT, OVER

__all__ = ["is_new", "take_over", "taken"]

MAY_LACK = ("head.", "pool.", "words.", "generator.", OVER)  # parts on top of a backbone, which may be new
ROUND = 64  # vocabularies are rounded up to multiples of this


def take_over(model: nn.Module, run: Run, sizes: Sizes, world: World, *, say: Callable[[str], None]) -> None:
    """Copy every weight that the model of `train.init_from` also has."""
    own, found = named_tensors(model), taken(model, run, sizes)
    model.load_state_dict(world.spread(found, own), strict=False)
    say(_report(str(run.train.init_from), own, found))


def taken(model: nn.Module, run: Run, sizes: Sizes) -> dict[str, Tensor]:
    """The weights that a model takes over. The backbone must be complete; an error names misfits."""
    assert run.train.init_from is not None
    backbone, own = backbone_of(Path(run.train.init_from)), named_tensors(model)
    # A language model is all backbone: for another task, it is the encoder.
    weights = backbone.weights_for(run.model)
    if traits_of(backbone.task).decoder_only and not traits_of(run.task).decoder_only:
        weights = {_in_encoder(name): tensor for name, tensor in weights.items()}
    theirs = {name: _filled(tensor, sizes["vocabulary"]) if name in own and _is_longer(own[name], tensor, sizes)
              else tensor for name, tensor in weights.items()}
    new = {name for name in own if is_new(name, task=run.task, before=backbone.task, sizes=sizes)}
    found = {name: theirs[name] for name, tensor in own.items()
             if name in theirs and name not in new and theirs[name].shape == tensor.shape}
    missing = [name for name in own if name not in found and name not in new and not name.startswith(MAY_LACK)]
    refuse_misfits({name: own[name] for name in missing},
                   {name: theirs[name] for name in missing if name in theirs}, origin=run.train.init_from)
    return found


def is_new(name: str, *, task: str, before: str, sizes: Sizes) -> bool:
    """Whether a weight is new, even if the source has one of its name.

    Each run has its own labels, even if the source had as many; and a head that reads single tokens
    cannot read whole texts.

    >>> how = {"task": "classify", "sizes": {"labels": 2}}
    >>> is_new("head.output.bias", before="classify", **how)
    True
    >>> is_new("head.hidden.bias", before="mask", **how), is_new("head.hidden.bias", before="detect", **how)
    (False, True)
    """
    if name.startswith("head."):
        is_other = traits_of(task).reads_each_token != traits_of(before).reads_each_token
        return is_other or ("labels" in sizes and name.startswith("head.output."))
    return INSIDE in name


def _in_encoder(name: str) -> str:
    """The name of a language model's tensor in an encoder.

    >>> [_in_encoder(name) for name in ("tokens.table.weight", "blocks.0.self.out.bias")]
    ['encoder.inputs.tokens.table.weight', 'encoder.blocks.0.self.out.bias']
    """
    return ("encoder.inputs." if name.split(".")[0] in INPUT else "encoder.") + name


def _is_longer(own: Tensor, theirs: Tensor, sizes: Sizes) -> bool:
    """Whether ours has a row for every token, and theirs lacks only the rows that round the vocabulary up."""
    return len(own) == sizes.get("vocabulary") and 0 < len(own) - len(theirs) < ROUND


def _filled(table: Tensor, rows: int) -> Tensor:
    """The table extended to this many rows: unused ids get the mean of all rows, and so no higher probability."""
    mean = table.mean(0, keepdim=True)
    return torch.cat([table, mean.expand(rows - len(table), *table.shape[1:])])


def _report(origin: str, own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """
    >>> three, four = torch.ones(3), torch.ones(4)
    >>> own = {"encoder.norm.weight": three, "head.output.weight": four, "head.output.bias": torch.ones(2)}
    >>> _report("runs/mask", own, {"encoder.norm.weight": three})
    '3 of 9 weights from runs/mask; new: head.output (6)'
    """
    new = Counter[str]()
    for name, tensor in own.items():
        if name not in found:
            new[_part(name)] += tensor.numel()
    taken, all_of_them = (sum(own[name].numel() for name in names) for names in (found, own))
    named = ", ".join(f"{name} ({count:,})" for name, count in new.items())
    return f"{taken:,} of {all_of_them:,} weights from {origin}; new: {named or 'none'}"


def _part(name: str) -> str:
    """The part of the model that a new weight counts as."""
    if INSIDE in name:
        return "adapters"
    if name.startswith(OVER):
        return OVER.removesuffix(".")
    return name.rpartition(".")[0] if name.startswith("head.") else name.partition(".")[0]
