"""What of a model learns, and what stays as it was."""

import re
from typing import Any

from torch import nn

from regard.nn.lora import INSIDE, adapt
from regard.settings.errors import UserError
from regard.settings.schema import Train
from regard.tasks.base import Sizes, Task

__all__ = ["OVER", "learner", "learns", "level", "scale_of"]

TEACHER = "generator."  # of a detector: no part of its body, and as new as a head where it has come without one
OVER = "encoder.over."  # what a task makes of the states of a body that are its features
HEADS = ("head.", "words.", TEACHER, OVER)  # what reads the states: the labels, the tokens
INPUT = {"tokens", "positions", "segments", "input_norm", "widen"}  # what makes them, before the first block


def learner(task: Task[Any, Any], sizes: Sizes) -> nn.Module:
    """The model of a task as it learns: with adapters where they are asked for, and the rest of it frozen."""
    how, model = task.run.train, task.build(sizes)
    if how.trainable == "lora":
        adapt(model, how.lora.targets, rank=how.lora.rank, scale=scale_of(how))
        if not any(INSIDE in name for name, _ in model.named_parameters()):
            raise UserError("train.trainable=lora: the blocks of this model have none of train.lora.targets="
                            f"{','.join(how.lora.targets)}, so no adapter would learn; take train.trainable=all or "
                            "head")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns(name, how))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"train.trainable={how.trainable}: a model of {task.run.task} has no head besides its body, so "
                        "nothing would learn; take all or lora")
    return model


def scale_of(how: Train) -> float:
    """What an adapter's output is multiplied by."""
    return how.lora.alpha / how.lora.rank


def learns(name: str, how: Train) -> bool:
    """Whether a parameter of this name does.

    >>> how = Train(trainable="lora", init_from="runs/mask", freeze_layers=1)
    >>> [learns(f"encoder.blocks.{block}.self.qkv.adapters.q.a", how) for block in (0, 1)]
    [False, True]
    """
    above = level(name)
    if how.freeze_layers and above is not None and above <= how.freeze_layers:
        return False
    return how.trainable == "all" or name.startswith(HEADS) or (how.trainable == "lora" and INSIDE in name)


def level(name: str) -> int | None:
    """How high a parameter stands: 0 before the first block, 1 in it, …; None above the last.

    >>> [level(name) for name in ("encoder.tokens.table.weight", "encoder.blocks.3.self.out.bias", "encoder.norm.bias")]
    [0, 4, None]
    """
    if name.startswith(TEACHER):
        return None
    if block := re.search(r"(?:^|\.)blocks\.(\d+)\.", name):
        return int(block[1]) + 1
    return 0 if INPUT & set(name.split(".")) else None
