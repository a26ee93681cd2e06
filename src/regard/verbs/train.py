"""`regard train`: settings and files become a run directory."""

import glob
import hashlib
import json as jsons
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard import manifest
from regard.runs.lock import PREPARED, hold
from regard.runs.summary import read_scores
from regard.settings.backbone import refuse_another_shape
from regard.settings.errors import UserError, count
from regard.settings.load import conflicts, load, refuse_another, said_of, sections_of, task_of, text_of, to_json
from regard.settings.opening import refuse_irregular, remove
from regard.settings.schema import Data, Run
from regard.stdio import print_message, print_result
from regard.tasks.traits import Known, for_task, refuse_sections, refuse_unread, traits_of
from regard.training.fine_tuning import begun
from regard.verbs.runs import ROOT

__all__ = ["main", "settled"]

SCORES = "scores.json"  # what a run writes last
SAMPLE = 160  # tokens


def main(task: str | None, data: Sequence[Path], source: str | None, target: str | None, recipe: Path | None,
         overrides: Sequence[str], out: Path | None, extend: int | None, json: bool) -> None:
    run = settled(task, data, source, target, recipe, overrides)
    folder = out or ROOT / f"{run.task}-{_name(run)}"
    asked = run.train.steps
    if _is_first():
        _mend_settings(folder, run)
    if extend is not None:
        run = _extended(run, folder, extend)
    elif said_of("train.steps", recipe, overrides) is None:
        run = _as_long_as_there(run, folder)
    _look_before(folder, run)
    if recipe is not None and not run.data.paths and recipe.suffix.lower() != ".json" and _is_first():
        print_message(f"note: neither --data nor {recipe} names any data: this learns from the built-in "
                      f"{traits_of(run.task).built_in}")
    scores = _scores(folder)
    if extend is None and run.train.steps > asked and _is_first() and scores is None:
        print_message(f"note: the run in {folder} is one of {count(run.train.steps, 'step')}")
    if scores is None:
        scores = _train(run, folder)
    elif _is_first():
        steps = run.train.steps
        print_message(f"the run in {folder} has ended, after {count(steps, 'step')}; --set train.steps={steps} "
                      "--extend N trains N more; to start again, delete it or choose another place with --out DIR")
    if not _is_first():
        return
    if json:
        print_result(jsons.dumps({"run": str(folder), "scores": scores}, ensure_ascii=False))
    else:
        from regard.verbs.evaluate import table

        print_message(table(scores))
        if traits_of(run.task).writes_unprompted:
            print_message(_sample(folder))
        print_result(folder)


def settled(task: str | None, data: Sequence[Path], source: str | None, target: str | None, recipe: Path | None,
            overrides: Sequence[str]) -> Run:
    """The run that the options describe."""
    own_data = recipe or data or any(text.startswith("data.paths=") for text in overrides)
    _refuse_two_tasks(task, recipe, overrides)
    task = task or task_of(recipe, overrides)
    named = said_of("data.paths", recipe, overrides)  # unchecked
    paths = data or [Path(path) for path in (named if isinstance(named, list | tuple) else []) if isinstance(path, str)]
    known = Known(built_in=not own_data, paths=tuple(paths), sections=frozenset(sections_of(recipe, overrides)))
    refuse_sections(task, known.sections)
    is_whole = recipe is not None and recipe.suffix.lower() == ".json"  # a saved run says all that a source would
    start = None if is_whole else text_of("train.init_from", recipe, overrides)
    if start is None:
        plain = traits_of(task).defaults(known)
    else:
        plain = begun(task, known, Path(start), tune=text_of("train.trainable", recipe, overrides))
    run = for_task(recipe, overrides, base=plain)
    if start is not None:
        refuse_another_shape(run.model, plain.model, Path(start))
    if not is_whole:
        refuse_unread(replace(run, task=task), plain)
    run = replace(run, task=task, data=_data(run.data, data, source, target))
    if not run.data.paths and traits_of(task).built_in_of(run) is None:
        raise UserError(f"{task}: no data comes with this task; give yours with --data PATH")
    return run


def _refuse_two_tasks(task: str | None, recipe: Path | None, overrides: Sequence[str]) -> None:
    if task is None:
        return
    for where, other in (("--set", text_of("task", None, overrides)), (str(recipe), text_of("task", recipe))):
        if other is not None and other != task:
            said = f"--set task={other}" if where == "--set" else f"task={other} in {where}"
            raise UserError(f"{task} and {said}: two tasks; leave out {said}, or the word {task}")


def _train(run: Run, folder: Path) -> dict[str, Any]:
    with _importing_torch():
        from regard.tasks import make

        make(run)  # an unknown task is refused before anything is written

        from regard.training.loop import train

    try:
        return train(run, folder)
    except KeyboardInterrupt:
        print_message(f"\ninterrupted; if there is a checkpoint in {folder}, the same command resumes from it")
        raise


@contextmanager
def _importing_torch() -> Iterator[None]:
    """Signals wait until it is done: an interrupt inside torch's C code is lost there, and numpy left half imported."""
    from regard.training.signals import Stop

    with Stop() as stop:
        yield
    stop.check("stopped before the first step; the same command starts again")


def _sample(folder: Path) -> str:
    """A short sample of the model's text."""
    from regard.predictor import load

    (text,) = load(folder).predict([""], max_tokens=SAMPLE)
    return f"it writes:\n{text.rstrip()}\n"


def _extended(run: Run, folder: Path, more: int) -> Run:
    """The run with `more` steps. The same command again finds it already lengthened, and resumes it."""
    longer = replace(run, train=replace(run.train, steps=run.train.steps + more))
    if not (folder / "run.json").exists():
        raise UserError(f"--extend {more}: there is no run in {folder} to lengthen; train one first")
    while not _is_first() and not conflicts(load(folder / "run.json"), run):
        time.sleep(0.1)  # until the first process has lengthened it
    if not conflicts(load(folder / "run.json"), run):  # not lengthened yet
        if run.train.schedule in ("cosine", "stable-decay"):
            print_message(f"note: train.schedule={run.train.schedule} falls towards the last step, which is another "
                          "now: the rate rises again")
        with _importing_torch():
            from regard.checkpoint import write_json
        with hold(folder):  # not under the hands of a process that trains it
            manifest.forget(folder, SCORES, *manifest.SETTINGS)
            (folder / SCORES).unlink(missing_ok=True)  # first: a longer run that has scores would count as ended
            write_json(folder / "run.json", to_json(longer))
            manifest.seal(folder, *manifest.SETTINGS)
    return longer


def _as_long_as_there(run: Run, folder: Path) -> Run:
    """The run with the steps that it was lengthened to, so that its first command still resumes it."""
    saved = folder / "run.json"
    steps = load(saved).train.steps if saved.exists() else run.train.steps
    return replace(run, train=replace(run.train, steps=max(steps, run.train.steps)))


def _is_first() -> bool:
    """Whether this process acts and speaks for all that share the run: torchrun numbers them."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"


def _scores(folder: Path) -> dict[str, Any] | None:
    """Those of a run that has ended, and is whole. One that is not is mended from its newest checkpoint."""
    is_whole = (folder / SCORES).exists() and (folder / "model.safetensors").exists()
    wrong = manifest.damage(folder, *manifest.EVERYTHING) if is_whole or manifest.listed(folder, SCORES) else None
    if wrong is None and is_whole:
        try:
            return read_scores(folder / SCORES)
        except UserError as error:
            wrong = str(error)
    if wrong is not None:
        manifest.listed(folder)  # a damaged manifest mends nothing
        has_checkpoint = any((folder / "checkpoints").glob("step-*"))
        if not has_checkpoint and (folder / "model.safetensors").exists():
            raise UserError(f"{wrong}; no checkpoint is left to mend the run from: put a copy of the file there, or "
                            "start a new run with --out DIR")
        if _is_first():
            way_on = "the run is mended from its newest checkpoint" if has_checkpoint else (
                "neither its model nor a checkpoint is left: it is trained from the first step again")
            print_message(f"note: {wrong}; {way_on}")
    return None


def _mend_settings(folder: Path, run: Run) -> None:
    """Write run.json again where it is damaged or gone, if these are the settings that it held."""
    if not (listed := manifest.listed(folder, *manifest.SETTINGS)):
        return
    if (wrong := manifest.damage(folder, *manifest.SETTINGS)) is None:
        return
    text = manifest.text_of(to_json(run))
    if hashlib.sha256(text.encode()).hexdigest() == listed["run.json"]["sha256"]:
        print_message(f"note: {wrong}; written again from the settings of this command")
        remove(folder / "run.json")
        manifest.put_text(folder / "run.json", text)
    elif (folder / "checkpoints").exists() or (folder / "run.json").exists():
        raise UserError(f"{wrong}; the command with the settings that the run began with, and with its train.steps, "
                        "writes it again")


def _data(settings: Data, paths: Sequence[Path], source: str | None, target: str | None) -> Data:
    for path in paths:
        if not path.exists() and not glob.glob(str(path), recursive=True):
            raise UserError(f"{path}: no such file or folder")
        if path.exists() and not path.is_dir() and not path.is_file():  # it is read more than once
            refuse_irregular(path)
        if not str(path).isprintable():  # it would not survive being written into run.json
            raise UserError(f"{str(path)!r}: a name with characters that are not text; rename it")
    found = replace(settings, paths=tuple(map(str, paths)) or settings.paths, source=source or settings.source,
                    target=target or settings.target)
    for option, name in (("--source", found.source), ("--target", found.target)):
        if name is not None and not found.paths:
            raise UserError(f"{option} {name}: goes with --data, as in --data pairs.tsv {option} {name}; the built-in "
                            "data has sides of its own")
    return found


def _name(run: Run) -> str:
    data = run.data
    if not data.paths:
        return traits_of(run.task).built_in_of(run) or "data"
    stem = re.sub(r"(\.gz|\.tsv|\.csv|\.jsonl|\.conllu?)+$", "", Path(data.paths[0]).resolve().name)
    stem = re.sub(r"[*?\[\]]", "", stem).strip(".") or "data"  # of a pattern
    return "-".join([stem, *(side for side in (data.source, data.target) if side)])


def _look_before(folder: Path, run: Run) -> None:
    """Refuse a place that is not ours to write, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file, where the run's directory should go; choose another with --out DIR")
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        raise UserError(f"{nearest}: no permission to write there; choose another place with --out DIR")
    if (folder / "run.json").exists():
        refuse_another(folder / "run.json", run)
    elif folder.exists() and any(item.name not in PREPARED for item in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another place with --out DIR")
