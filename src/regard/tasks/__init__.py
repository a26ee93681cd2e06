"""What a model is trained to do: one file per task."""

from importlib import import_module
from typing import Any

from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["TASKS", "make"]

TASKS = {"translate": "regard.tasks.translate:Translate"}


def make(run: Run) -> Any:
    """The task of a run; its module is imported only now."""
    if run.task not in TASKS:
        raise UserError(f"{run.task}: no such task; there is {', '.join(TASKS)}")
    module, name = TASKS[run.task].split(":")
    return getattr(import_module(module), name)(run)
