"""The loss on the validation data."""

from typing import Any

import torch
from torch import nn

from regard.data.batch import BatchSampler
from regard.settings.errors import UserError
from regard.tasks.base import Task
from regard.training.parallel import World
from regard.training.signals import Stop

__all__ = ["validation_loss"]


@torch.no_grad()
def validation_loss(model: nn.Module, task: Task[Any, Any], split: str, *, tokens: int, precision: torch.dtype,
                    world: World = World(), stop: Stop | None = None) -> float | None:
    """The mean negative log-likelihood per token, each example once; None if a signal asked the run to stop."""
    device = next(model.parameters()).device
    plan = BatchSampler(task.data.lengths(split), tokens=tokens, seed=0)
    total = count = 0.0
    model.eval()
    try:
        for step in range(plan.steps_per_epoch):
            batch = task.data.collate(split, plan[step].share(world.rank, world.size)).to(device)
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                total += float(next(term.total for term in task.loss(model, batch) if term.name == "nll"))
            count += batch.counts["nll"]
            if world.sum([stop is not None and stop.asked])[0]:
                return None
    finally:
        model.train()
    total, count = world.sum([total, count])
    if not count:
        raise UserError(f"{split}: contains no targets for the model, so there is no loss")
    return total / count
