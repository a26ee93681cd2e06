"""Refuse a model that cannot fit before it takes any memory."""

from dataclasses import replace
from typing import Any

import torch

from regard.device import available, size_in_words
from regard.settings.errors import Failure
from regard.settings.growth import GROWTH
from regard.settings.schema import Run
from regard.settings.setting import of, written
from regard.tasks import make
from regard.tasks.base import Sizes
from regard.training.trainable import trainable_model

__all__ = ["refuse_too_large", "refuse_uncountable"]

FLOAT = 4  # bytes of a number
TRAINED = {"adamw": 3, "muon": 2, "sgd": 1}  # numbers per trainable weight, in addition to it: gradient and moments
DEEP = 64  # blocks: the parameters of more are extrapolated
BLOCK = 30_000  # bytes of a block's Python objects, at least
UNCOUNTABLE = 2**63  # bytes of a tensor that torch cannot even describe
BLAMED = 100  # times its usual value


class _Least(dict[str, int]):
    """The least that the sizes of data can be, before it is read."""

    def __missing__(self, name: str) -> int:
        return 1


MIN_SIZES: Sizes = _Least(sources=64, targets=64, vocabulary=64, labels=2)


def refuse_too_large(run: Run, sizes: Sizes = MIN_SIZES, *, device: torch.device, processes: int = 1) -> None:
    """Compare weights, gradients and optimizer state with the free memory. Activations come on top."""
    total, learning = _counted(run, sizes)
    needed = FLOAT * (total + TRAINED[run.train.optimizer] * learning) // (processes if run.train.fsdp else 1)
    # The whole model is first built on the CPU.
    for place, size in ((torch.device("cpu"), FLOAT * total + BLOCK * _blocks(run)), (device, needed)):
        there = available(place)
        if there is not None and size > there:
            raise Failure(f"{_largest_settings(run)}: a model of {total:,} parameters. Training it takes "
                          f"at least {size_in_words(max(size, needed))} of memory, and this machine has "
                          f"{size_in_words(there)} free ({place.type}); take a smaller model")


def refuse_uncountable(run: Run) -> None:
    """The same for a plan, which may be for another machine: refuse only a model that cannot even be described."""
    total, _ = _counted(run, MIN_SIZES)
    there = available(torch.device("cpu"))
    if there is not None and (size := BLOCK * _blocks(run)) > there:
        raise Failure(f"{_largest_settings(run)}: a model of {total:,} parameters: describing its blocks takes "
                      f"{size_in_words(size)} of memory, and this machine has {size_in_words(there)} free; take fewer")


def _counted(run: Run, sizes: Sizes) -> tuple[int, int]:
    """The numbers of all and of trainable parameters. Equal blocks have equal numbers, so only a few are built."""
    model = run.model
    depths = model.depth, model.decoder_depth or model.depth
    if max(depths) <= DEEP:
        return _made(run, sizes)
    # Adapters are small compared with their blocks; a frozen part counts 0.
    plain = replace(run, train=replace(run.train, trainable="all", init_from=None, freeze_layers=0))

    def total(depth: int, decoder_depth: int) -> int:
        return _made(replace(plain, model=replace(model, depth=depth, decoder_depth=decoder_depth)), sizes)[0]

    one = total(1, 1)
    found = one + (depths[0] - 1) * (total(2, 1) - one) + (depths[1] - 1) * (total(1, 2) - one)
    return found, found if run.train.trainable == "all" and not run.train.freeze_layers else 0


def _made(run: Run, sizes: Sizes) -> tuple[int, int]:
    try:
        with torch.device("meta"):
            parameters = list(trainable_model(make(run), sizes).parameters())
    except (RuntimeError, OverflowError) as error:
        if not any(word in str(error) for word in ("overflow", "too large", "too big")):
            raise
        there = available(torch.device("cpu"))
        has = "" if there is None else f", and this machine has {size_in_words(there)} free"
        raise Failure(f"{_largest_settings(run)}: a model of more than {size_in_words(UNCOUNTABLE)}{has}; "
                      "take a smaller model") from None
    return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)


def _blocks(run: Run) -> int:
    return max(run.model.depth, run.model.decoder_depth or 0)


def _largest_settings(run: Run) -> str:
    """The settings that are far above their usual values, or else the one that is the farthest.

    >>> from regard.settings.load import load
    >>> _largest_settings(load(None, ["model.width=1000000", "model.depth=4"]))
    'model.width=1000000'
    """
    sizes: dict[str, Any] = {path: of(run, path) or 0 for path in GROWTH}
    ratio = {path: (sum(sizes[path]) if isinstance(sizes[path], tuple) else sizes[path]) / usual
             for path, usual in GROWTH.items()
             if path != "model.max_positions" or run.model.positions == "learned"}
    most = max(ratio, key=lambda path: ratio[path])
    named = [path for path in ratio if ratio[path] >= BLAMED or path == most]
    return ", ".join(f"{path}={written(of(run, path))}" for path in named)
