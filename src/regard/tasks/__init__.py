"""What a model is trained to do: one file per task."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["TASKS", "make"]

TASKS = {
    "translate": "regard.tasks.translate:Translate",
    "language": "regard.tasks.language:Language",
    "classify": "regard.tasks.classify:Classify",
    "tag": "regard.tasks.tag:Tag",
    "mask": "regard.tasks.mask:Fill",
    "detect": "regard.tasks.detect:Detect",
    "encode": "regard.tasks.encode:Encode",
}


def make(run: Run) -> Any:
    """The task of a run; its module, and torch with it, is imported only now."""
    if run.task not in TASKS:
        near = get_close_matches(run.task, TASKS, n=1)
        others = ", ".join(name for name in TASKS if name != "encode")  # which is not trained
        hint = f"did you mean {near[0]}?" if near else f"there are {others}"
        raise UserError(f"{run.task}: no such task; {hint}")
    from regard.nn.score import SCORES

    if run.model.score not in SCORES:  # the schema leaves this open: a new score is a line in nn/attend.py alone
        near = get_close_matches(run.model.score, SCORES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCORES)}"
        raise UserError(f"model.score={run.model.score}: no such score; {hint}")
    module, name = TASKS[run.task].split(":")
    return getattr(import_module(module), name)(run)
