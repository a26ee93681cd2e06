"""Models in run directories: out of other people's files, into them, and as every finished run keeps its own."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoint import read_json, write_json, write_model
from regard.convert.directory import (
    Published,
    read_directory,
    read_llama2c,
    read_tensors,
    refuse_sizes,
    vocabulary_of,
    write_directory,
)
from regard.convert.families import family_named, family_of, why_none
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.load import from_json, to_json
from regard.settings.schema import Data, Run, Tokens

__all__ = ["export_run", "finish", "import_run", "saved"]

NATIVE = "regard"  # the model_type of what belongs to no family
ROW = 1_024  # tokens of a row to be evaluated: a published model may reach much further than memory does

Sizes = Mapping[str, int]


def finish(folder: Path, run: Run, sizes: Sizes, weights: Mapping[str, Tensor]) -> None:
    """Write the model of a run: by its family's names, so that other tools open it, or else by our own.

    The vocabulary stays rounded up, as it was trained: the logits are the same everywhere, and those of ids that no
    text has are small.
    """
    family = family_of(run.model) if run.task == "language" else None
    if family is None:
        about = {"model_type": NATIVE, "task": run.task, "sizes": dict(sizes), **asdict(run.model)}
        write_model(folder, weights, about)
        return
    vocabulary = sizes["vocabulary"]
    theirs = family.table(run.model, vocabulary).theirs(weights)
    tokens = Tokenizer.load(folder / "tokenizer.json")
    write_directory(folder, Published(family, run.model, vocabulary, theirs, tokens))


def saved(folder: Path, run: Run) -> tuple[Sizes, dict[str, Tensor]]:
    """The weights that `finish` wrote, by our names, and the sizes that the files say more exactly than the data."""
    place = folder / "config.json"
    config = read_json(place)
    if config.get("model_type") == NATIVE:
        return {}, read_tensors(folder)
    family = family_named(config.get("model_type"), origin=str(place))
    if family.keys.unsaid(run.model):
        raise UserError(f"{place}: says {family.name}, but run.json describes another model")
    vocabulary = vocabulary_of(config, origin=str(place))
    tensors = read_tensors(folder)
    refuse_sizes(run.model, vocabulary, tensors, origin=str(folder))
    return {"vocabulary": vocabulary}, family.table(run.model, vocabulary).ours(tensors, origin=str(folder))


def import_run(source: Path, out: Path, *, tokens: Path | None = None, data: Sequence[Path] = (),
               precision: torch.dtype | None = None) -> Published:
    """Published weights become a run directory, which other tools go on to open. `data` is what it is evaluated on."""
    published = read_directory(source, tokens) if source.is_dir() else read_llama2c(source, tokens)
    published.ours(origin=str(source))  # what does not fit is named before anything is written
    published = _in(published, precision)
    run = Run(task="language", model=published.tower,
              data=Data(paths=tuple(map(str, data)), longest=min(ROW, published.tower.longest)),
              tokens=Tokens(file=str(out / "tokenizer.json"), vocabulary=max(8, len(published.tokens))))
    with _whole(out) as folder:
        published.tokens.save(folder / "tokenizer.json")
        write_directory(folder, published)
        write_json(folder / "run.json", to_json(run))
    return published


def export_run(source: Path, out: Path, *, precision: torch.dtype | None = None) -> Published:
    """The model and the tokenizer of a run, without the rest of it."""
    run = from_json(read_json(source / "run.json"))
    if run.task != "language":
        raise UserError(f"{source}: is of the task {run.task}; regard knows families of language models alone")
    family = family_of(run.model)
    if family is None:
        raise UserError(f"{source}: {why_none(run.model)}; regard alone opens this model")
    sizes, ours = saved(source, run)
    tokens = Tokenizer.load(source / "tokenizer.json")
    vocabulary = sizes.get("vocabulary") or ours["tokens.table.weight"].shape[0]
    theirs = family.table(run.model, vocabulary).theirs(ours)
    published = _in(Published(family, run.model, vocabulary, theirs, tokens), precision)
    with _whole(out) as folder:
        published.tokens.save(folder / "tokenizer.json")
        write_directory(folder, published)
    return published


def _in(published: Published, precision: torch.dtype | None) -> Published:
    if precision is None:
        return published
    return replace(published, weights={name: tensor.to(precision) for name, tensor in published.weights.items()})


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder to write into that gets its name when all is in it."""
    if not out.name:
        raise UserError(f"{out}: has no name of its own; choose another place with --out DIR")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: is there already; choose another place with --out DIR")
    temporary = out.with_name(f".{out.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)  # of a conversion that was killed
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if out.exists():
            out.rmdir()
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
