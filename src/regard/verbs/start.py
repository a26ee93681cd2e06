"""`regard train --from`: the settings of a run that goes on from a model."""

from dataclasses import replace
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.presets import tuned
from regard.settings.schema import Run

__all__ = ["begun"]

READERS = {"classify", "tag", "mask", "detect", "encode"}  # tasks of an encoder alone


def begun(plain: Run, source: Path, *, tune: str) -> Run:
    """What a run of the plain one's task has where nobody says anything, given the model that it goes on from."""
    if plain.task not in READERS and plain.task != "language":
        raise UserError(f"--from {source}: {plain.task} learns from nothing alone; language and the tasks of an "
                        "encoder go on from others")
    if tune == "head" and plain.task not in READERS:
        raise UserError(f"--tune head: a model of {plain.task} has no head besides its body; take all or lora")
    if not source.is_dir():
        raise UserError(f"--from {source}: no such folder")
    if not (source / "run.json").is_file():
        raise UserError(f"--from {source}: neither a run nor a Hugging Face directory (it has no run.json and no "
                        "config.json)")
    other = load(source / "run.json")
    if not (source / "model.safetensors").is_file():
        raise UserError(f"--from {source}: the run has not ended yet; start the same `regard train` again to go on "
                        "with it")
    if (other.task in READERS) != (plain.task in READERS) or other.task == "translate":
        raise UserError(f"--from {source}: its model is of the task {other.task}, and {plain.task} needs "
                        f"{'an encoder' if plain.task in READERS else 'a language model'}")
    model = replace(other.model, preset=None)
    if other.task != plain.task:  # how a text is summed up is another matter for another task
        model = replace(model, pool=plain.model.pool, head=plain.model.head)
    return tuned(plain, model, start=str(source), tokens=str(source / "tokenizer.json"), tune=tune)
