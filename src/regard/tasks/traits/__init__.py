"""The tasks by name, with facts about each that need no torch.

A package of one's own adds a task by an entry point of the group `regard.tasks` that names its `Traits`.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.load import given, load
from regard.settings.presets import PRESETS_BY_KIND
from regard.settings.schema import Run
from regard.settings.setting import DEFAULTS, SETTINGS, of, written
from regard.tasks.traits import ask, caption, classify, detect, encode, language, mask, tag, translate
from regard.tasks.traits.base import Known, Traits

__all__ = ["TASKS", "Known", "Traits", "defaults", "for_task", "refuse_images", "refuse_pool", "refuse_sections",
           "refuse_unread", "traits_of"]

GROUP = "regard.tasks"

TASKS: dict[str, Traits] = {
    task.TRAITS.name: task.TRAITS for task in (translate, language, classify, tag, mask, detect, encode, caption, ask)}


def traits_of(task: str) -> Traits:
    """Of the task of this name, or an error that says which names there are."""
    if task not in TASKS:
        TASKS.update({point.name: point.load() for point in entry_points(group=GROUP) if point.name == task})
    if task not in TASKS:
        near = get_close_matches(task, TASKS, n=1)
        others = ", ".join(name for name, traits in TASKS.items() if traits.is_trained)
        raise UserError(f"{task}: no such task; {f'did you mean {near[0]}?' if near else f'there are {others}'}")
    return TASKS[task]


def defaults(task: str, *, built_in: bool, paths: Sequence[Path] = (), sections: Collection[str] = ()) -> Run:
    """The default settings of a run; `built_in`: of one on the built-in data. See `Known` for the others."""
    return traits_of(task).defaults(Known(built_in=built_in, paths=tuple(paths), sections=frozenset(sections)))


def for_task(recipe: Path | None = None, overrides: Sequence[str] = (), *, base: Run = DEFAULTS) -> Run:
    """The run that a recipe and overrides describe, as `regard.settings.load` reads them, for its task.

    A preset's hidden layer reads a whole text: a task that reads each token has none, unless it is asked for.
    """
    run, asked = load(recipe, overrides, base=base), given(recipe, overrides)
    traits = traits_of(run.task)
    for path, value in asked.items():
        section, _, name = path.rpartition(".")
        if section == "model.head" and name not in traits.head_settings and value != SETTINGS[path].default:
            raise UserError(f"{path}={written(value)}: has no effect on {run.task}; remove it")
    if asked.get("model.head.pool") == "learned" and not traits.learns_pooled:
        raise UserError(f"model.head.pool=learned: {run.task} has no labels to learn it by; take first or mean")
    if traits.reads_each_token and "model.preset" in asked and "model.head.hidden" not in asked:
        run = replace(run, model=replace(run.model, head=replace(run.model.head, hidden="none")))
    refuse_pool(run)
    return run


def refuse_pool(run: Run) -> None:
    """Refuse a pooling for which there is nothing to read."""
    image = run.model.image
    if run.model.head.pool == "first" and traits_of(run.task).learns_pooled and image is not None:
        if image.stem == "resnet":
            raise UserError("model.head.pool=first: reads the class token, which a resnet does not have; take "
                            "model.head.pool=mean or learned")
        if not image.class_token:
            raise UserError("model.head.pool=first: reads the class token, which model.image.class_token=false "
                            "removes; take model.head.pool=mean or learned")


def refuse_unread(run: Run, plain: Run) -> None:
    """Refuse settings that differ from the plain ones and would have no effect on the run."""
    refuse_images(run)
    for start, why in traits_of(run.task).unread(run).items():
        for path in SETTINGS:
            if path.startswith(start) and (value := of(run, path)) != of(plain, path):
                raise UserError(f"{path}={written(value)}: {why}; remove it")


def refuse_sections(task: str, sections: Collection[str]) -> None:
    """Refuse sections of settings that a task does not have, before its defaults are mixed with them."""
    if "model.image" in sections and not traits_of(task).reads_images:
        raise UserError(f"model.image: {task} reads text; {_readers()} can read images; remove it, or take a preset of "
                        "texts")


def _readers() -> str:
    return " and ".join(name for name, traits in TASKS.items() if traits.reads_images)


def refuse_images(run: Run) -> None:
    """Refuse a model that reads images for a task that reads none."""
    if run.model.image is not None and not traits_of(run.task).reads_images:
        preset = run.model.preset in {**PRESETS_BY_KIND["encoders of images"], **PRESETS_BY_KIND["captioners"]}
        given = f"model.preset={run.model.preset}" if preset else f"model.image.size={run.model.image.size}"
        raise UserError(f"{given}: {run.task} reads text; {_readers()} can read images; remove it")
