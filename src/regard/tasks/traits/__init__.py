"""The tasks by name, with facts about each that need no torch.

A package of one's own adds a task by an entry point of the group `regard.tasks` that names its `Traits`.
"""

from difflib import get_close_matches
from importlib.metadata import entry_points

from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks.traits import classify, detect, encode, language, mask, tag, translate
from regard.tasks.traits.base import Traits

__all__ = ["TASKS", "Traits", "defaults", "traits_of"]

GROUP = "regard.tasks"

TASKS: dict[str, Traits] = {
    task.TRAITS.name: task.TRAITS for task in (translate, language, classify, tag, mask, detect, encode)}


def traits_of(task: str) -> Traits:
    """Of the task of this name, or an error that says which names there are."""
    if task not in TASKS:
        TASKS.update({point.name: point.load() for point in entry_points(group=GROUP) if point.name == task})
    if task not in TASKS:
        near = get_close_matches(task, TASKS, n=1)
        others = ", ".join(name for name, traits in TASKS.items() if traits.is_trained)
        raise UserError(f"{task}: no such task; {f'did you mean {near[0]}?' if near else f'there are {others}'}")
    return TASKS[task]


def defaults(task: str, *, built_in: bool) -> Run:
    """The default settings of a run; `built_in`: of one on the built-in data."""
    return traits_of(task).defaults(built_in)
