"""Models in run directories: out of other people's files, into them, and as every finished run keeps its own."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from regard import manifest
from regard.checkpoint import read_json, read_labels, write_json, write_model
from regard.convert.directory import (
    Published,
    pad_of,
    read_directory,
    read_llama2c,
    read_tensors,
    refuse_sizes,
    vocabulary_of,
    write_directory,
)
from regard.convert.electra import GENERATOR
from regard.convert.families import FAMILIES, family_named, family_of, why_none
from regard.convert.model_spec import ModelSpec
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.load import from_json, to_json
from regard.settings.opening import remove
from regard.settings.schema import Data, Masking, Run, Tokens
from regard.tasks.traits import TASKS, defaults, traits_of

__all__ = ["export_run", "import_run", "read_run_model", "write_run_model"]

NATIVE = "regard"  # the model_type of a model of no family
LABELS = "labels.json"  # the names of the labels, in a run with labels
HEADS = {kind for family in FAMILIES.values() for kind in family.heads}
ROW = 1_024  # tokens of a row to be evaluated: a published model may reach much further than memory does

Sizes = Mapping[str, int]


def write_run_model(folder: Path, run: Run, sizes: Sizes, weights: Mapping[str, Tensor]) -> None:
    """Write the model of a run: by its family's names, so that other tools open it, or else by our own.

    The vocabulary stays rounded up, as it was trained: the logits are the same everywhere, and those of ids that no
    text has are small.
    """
    place = folder / "tokenizer.json"
    tokens = Tokenizer.load(place) if traits_of(run.task).head in HEADS and place.is_file() else None
    is_known = traits_of(run.task).head in HEADS and (tokens is not None or run.model.image is not None)
    spec = ModelSpec.of(run, sizes, pad=0 if tokens is None else tokens.pad) if is_known else None
    family = None if spec is None else family_of(spec)
    if spec is None or family is None:
        about = {"model_type": NATIVE, "task": run.task, "sizes": dict(sizes), **asdict(run.model)}
        write_model(folder, weights, about)
        return
    theirs = family.table(spec).theirs(weights)
    write_directory(folder, Published(family, spec, theirs, tokens, _labels(folder), run.data.multi_label,
                                      run.data.max_tokens))


def read_run_model(folder: Path, run: Run) -> tuple[Sizes, dict[str, Tensor]]:
    """The weights that `write_run_model` wrote, by our names; and the sizes, where the files say them.

    They are more exact than those of the data: a vocabulary may have been rounded up.
    """
    place = folder / "config.json"
    config = read_json(place)
    if config.get("model_type") == NATIVE:
        tensors = read_tensors(folder)
        refuse_sizes(run.model, 1, tensors, origin=str(folder / "run.json"), cheap=0)  # it is built with its content
        return {}, tensors
    family = family_named(config.get("model_type"), origin=str(place))
    labels = _labels(folder)
    sizes = {"labels": len(labels)} if labels else {}
    if run.model.image is None:
        sizes["vocabulary"] = vocabulary_of(config, origin=str(place))
    spec = ModelSpec.of(run, sizes, pad=0 if run.model.image else pad_of(config, family, origin=str(place)))
    if spec.kind not in family.heads or family.unsaid(spec):
        raise UserError(f"{place}: says {family.name}, but run.json describes another model")
    tensors = read_tensors(folder)
    refuse_sizes(run.model, spec.vocabulary, tensors, origin=str(folder / "run.json"))
    if spec.generator is not None:
        tensors |= {f"{GENERATOR}{name}": tensor for name, tensor in read_tensors(folder / GENERATOR).items()}
    written = family.heads[spec.kind].written
    tensors = {name: tensor for name, tensor in tensors.items()
               if name not in written and not re.fullmatch(family.constants, name)}
    return sizes, family.table(spec).ours(tensors, origin=str(folder))


def import_run(source: Path, out: Path, *, tokens: Path | None = None, data: Sequence[Path] = (),
               precision: torch.dtype | None = None) -> Published:
    """Convert published weights to a run directory, which other tools still open. `data`: to evaluate on."""
    published = read_directory(source, tokens) if source.is_dir() else read_llama2c(source, tokens)
    published.ours(origin=str(source))  # what does not fit is named before anything is written
    published = _in(published, precision)
    if published.spec.kind == "image-backbone":
        raise UserError(f"{source}: has no labels, so it has no answers of its own; start from it with "
                        f"regard train classify --from {source}")
    with _whole(out) as folder:
        if published.tokens is not None:
            published.tokens.save(folder / "tokenizer.json")
        if published.labels:
            write_json(folder / LABELS, {"labels": list(published.labels)})
        write_directory(folder, published)
        write_json(folder / "run.json", to_json(_run(published, out, data)))
        manifest.seal(folder, *manifest.EVERYTHING)
    return published


def _run(published: Published, out: Path, data: Sequence[Path]) -> Run:
    spec, tower = published.spec, published.tower
    task = spec.task
    longest = published.longest or min(ROW, tower.max_positions)
    if published.tokens is None:
        return Run(task=task, model=tower, data=Data(paths=tuple(map(str, data)), multi_label=published.multi_label),
                   search=defaults(task, built_in=False).search)
    return Run(
        task=task, model=tower,
        data=Data(paths=tuple(map(str, data)), max_tokens=longest, multi_label=published.multi_label),
        tokens=Tokens(file=str(out / "tokenizer.json"), vocabulary=max(8, len(published.tokens))),
        search=defaults(task, built_in=False).search,
        masking=Masking(next_sentence=spec.kind == "sentences", generator=spec.generator))


def export_run(source: Path, out: Path, *, precision: torch.dtype | None = None, verify: bool = True) -> Published:
    """The model and the tokenizer of a run, without the rest of it."""
    if verify:
        manifest.check(source, *manifest.ANSWERING)
    run = from_json(read_json(source / "run.json"))
    if traits_of(run.task).head not in HEADS:
        known = ", ".join(name for name, traits in TASKS.items() if traits.head in HEADS)
        raise UserError(f"{source}: is of the task {run.task}; regard only knows families of models of {known}")
    tokens = Tokenizer.load(source / "tokenizer.json") if run.model.image is None else None
    labels, (sizes, ours) = _labels(source), read_run_model(source, run)
    table = ours.get("encoder.inputs.tokens.table.weight", ours.get("tokens.table.weight", ()))
    spec = ModelSpec.of(run, {"vocabulary": len(table), "labels": len(labels), **sizes},
                        pad=0 if tokens is None else tokens.pad)
    family = family_of(spec)
    if family is None:
        raise UserError(f"{source}: {why_none(spec)}; only regard opens this model")
    theirs = family.table(spec).theirs(ours)
    published = _in(Published(family, spec, theirs, tokens, labels, run.data.multi_label, run.data.max_tokens),
                    precision)
    with _whole(out) as folder:
        if published.tokens is not None:
            published.tokens.save(folder / "tokenizer.json")
        write_directory(folder, published)
    return published


def _labels(folder: Path) -> tuple[str, ...]:
    return tuple(read_labels(folder / LABELS)) if (folder / LABELS).is_file() else ()


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
    remove(temporary)  # of a conversion that was killed, or planted here
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if out.exists():
            out.rmdir()
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
