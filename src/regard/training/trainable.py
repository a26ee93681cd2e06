"""The trainable and the frozen parameters of a model."""

import re
from typing import Any

from torch import nn

from regard.nn.lora import INSIDE, adapt
from regard.settings.errors import UserError
from regard.settings.schema import Train
from regard.tasks.base import Sizes, Task

__all__ = ["OVER", "learns", "level", "scale_of", "trainable_model"]

TEACHER = "generator."  # of a detector: not part of its backbone, and new like a head if the source has none
OVER = "encoder.over."  # the task's layers over a backbone that computes features
HEADS = ("head.", "pool.", "words.", TEACHER, OVER)  # the layers that read the states: labels, tokens
INPUT = {"inputs", "tokens", "positions", "widen"}  # the layers before the first block


def trainable_model(task: Task[Any, Any], sizes: Sizes) -> nn.Module:
    """The model of a task for training: with its adapters, if any, and the frozen parameters frozen."""
    how, model = task.run.train, task.build(sizes)
    if how.trainable == "lora":
        adapt(model, how.lora.targets, rank=how.lora.rank, scale=scale_of(how))
        if not any(INSIDE in name for name, _ in model.named_parameters()):
            raise UserError("train.trainable=lora: the blocks of this model have none of train.lora.targets="
                            f"{','.join(how.lora.targets)}, so there would be no adapter; take train.trainable=all "
                            "or head")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns(name, how))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"train.trainable={how.trainable}: a model of {task.run.task} has no separate head, so "
                        "nothing would learn; take all or lora")
    return model


def scale_of(how: Train) -> float:
    """The factor of an adapter's output."""
    return how.lora.alpha / how.lora.rank


def learns(name: str, how: Train) -> bool:
    """Whether a parameter of this name is trainable.

    >>> how = Train(trainable="lora", init_from="runs/mask", freeze_layers=1)
    >>> [learns(f"encoder.blocks.{block}.self.qkv.adapters.q.a", how) for block in (0, 1)]
    [False, True]
    """
    above = level(name)
    if how.freeze_layers and above is not None and above <= how.freeze_layers:
        return False
    return how.trainable == "all" or name.startswith(HEADS) or (how.trainable == "lora" and INSIDE in name)


def level(name: str) -> int | None:
    """The level of a parameter: 0 before the first block, 1 in it, …; None above the last.

    >>> [level(name) for name in ("encoder.inputs.norm.weight", "encoder.blocks.3.self.out.bias", "encoder.norm.bias")]
    [0, 4, None]
    """
    if name.startswith(TEACHER):
        return None
    if block := re.search(r"(?:^|\.)blocks\.(\d+)\.", name):
        return int(block[1]) + 1
    return 0 if INPUT & set(name.split(".")) else None
