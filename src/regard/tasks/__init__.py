"""The tasks that a model can be trained for: one file per task."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks.traits import TASKS, refuse_images, refuse_pool, traits_of

__all__ = ["TASKS", "make"]


def make(run: Run) -> Any:
    """The task of a run; its module, and torch with it, is imported only now."""
    module, name = traits_of(run.task).code.split(":")
    refuse_images(run)
    refuse_pool(run)
    from regard.nn.score import SCORES

    if run.model.score not in SCORES:  # the schema leaves this open: a new score is a line in nn/score.py
        near = get_close_matches(run.model.score, SCORES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCORES)}"
        raise UserError(f"model.score={run.model.score}: no such score; {hint}")
    return getattr(import_module(module), name)(run)
