"""prepared: the data of a run, made once, kept in its directory, and checked each time it is read.

Data that is damaged or gone is prepared again from its sources. A run that has begun must then get the very same
files: the manifest says whether it did.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import manifest
from regard.checkpoint import read_json, write_json
from regard.data.notes import Notes
from regard.data.ragged import damaged
from regard.manifest import PREPARED, TOKENS
from regard.settings.errors import UserError
from regard.settings.opening import remove, to_read, to_write
from regard.stdio import print_message

if TYPE_CHECKING:
    from regard.data.dataset import Dataset, Sizes

__all__ = ["KEY", "NEW", "is_kept", "keep_lines", "kept_lines", "prepare", "refuse_uneven", "restored"]

KEY = "key.json"  # in data/: what it was made from
NEW = ".data.new"  # where data is prepared, until it is whole
OLD = ".data.old"  # where older data waits until the new data is in its place
# The files to compare when a run's data is prepared again: other tools' files and the key change with places.
SAME = ("data/*.npy", "data/*.jsonl", "data/usual.json", "tokenizer.json", "source_tokenizer.json", "labels.json")


def prepare(dataset: "Dataset[Any, Any]", folder: Path) -> "Sizes":
    """The data as it is kept in the folder, or else prepared now."""
    key = dataset.fingerprint()
    if not (folder / "data").exists() and (folder / OLD).exists():  # a kill came between two renames of `_put`
        os.replace(folder / OLD, folder / "data")
    is_begun = (folder / "checkpoints").exists()
    wrong = manifest.damage(folder, *PREPARED)
    before = manifest.listed(folder, *SAME)
    if wrong is None and is_kept(folder):
        try:
            if _about(folder)["key"] == key:
                return restored(dataset, folder)
        except UserError as error:
            if is_begun and not before:
                raise
            wrong = str(error)
        else:
            before = {}  # of other data
    if is_begun and not any(name.startswith("data/") for name in before):
        raise _changed(folder)  # nothing tells whether it would be the same
    if wrong is not None:
        print_message(f"note: {wrong}; the data is prepared again")
    must_be = before if is_begun or (folder / "model.safetensors").exists() else {}
    if has_own_tokens := dataset.run.tokens.file == str(folder / "tokenizer.json"):  # came with them: they stay
        must_be = {name: entry for name, entry in must_be.items() if name not in TOKENS}
    _make(dataset, folder, key, must_be, tokens=() if has_own_tokens else TOKENS)
    return restored(dataset, folder)


def is_kept(folder: Path) -> bool:
    """Whether there is data that was prepared to its end."""
    if not (folder / "data" / KEY).exists():
        return False
    if manifest.exists(folder):
        return bool(manifest.listed(folder, f"data/{KEY}"))
    return (folder / "run.json").exists()  # an older run; without it, one that was killed before its first step


def restored(dataset: "Dataset[Any, Any]", folder: Path) -> "Sizes":
    sizes = dataset.restore(folder)
    about = _about(folder)
    dataset.restore_data(folder, about)
    dataset.notes, dataset.first = Notes(about["notes"]), about.get("first", "")
    return sizes


def _make(dataset: "Dataset[Any, Any]", folder: Path, key: str, must_be: Mapping[str, manifest.Written], *,
          tokens: Iterable[str]) -> None:
    """Prepare beside the place, and put it there when it is whole and what it must be."""
    new = folder / NEW
    remove(new)
    remove(folder / OLD)
    try:
        (new / "data").mkdir(parents=True)
        dataset.notes, dataset.first = Notes(), ""
        about = dataset.make_data(new)
        write_json(new / "data" / KEY, {"key": key, **about})
        for name, before in must_be.items():
            if not (new / name).is_file() or manifest.settled(new / name) != before:
                raise UserError(f"{folder / name}: prepared again from the data, it is not what this run began with: "
                                "the data or the versions have changed; start a new run with --out DIR")
        for name in tokens:
            if (new / name).exists():
                (new / name).replace(folder / name)
        _put(new / "data", folder)
        manifest.seal(folder, *PREPARED)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, folder: Path) -> None:
    """New data into its place. The older is renamed first and deleted last: one of them is always there."""
    place, old = folder / "data", folder / OLD
    if os.path.lexists(place):
        os.replace(place, old)
    try:
        os.replace(new, place)
    except OSError:
        if os.path.lexists(old):
            os.replace(old, place)
        raise
    remove(old)


def _changed(folder: Path) -> UserError:
    return UserError(f"{folder}: the data has changed since this run began; start a new run with --out DIR")


def _about(folder: Path) -> dict[str, Any]:
    place = folder / "data" / KEY
    match about := read_json(place):
        case {"key": str(), "splits": list() | dict() as splits, "notes": [*notes]}:
            texts = [about.get("first", ""), *notes, *splits]
            if all(isinstance(text, str) for text in texts) and all(Path(name).name == name for name in splits):
                return about
    raise damaged(place, "it does not say what the data was made from")


def keep_lines(path: Path, contents: Iterable[Any]) -> None:
    """JSON, a line for each."""
    with open(path, "x", encoding="utf-8", newline="\n", opener=to_write) as file:
        file.writelines(json.dumps(content, ensure_ascii=False) + "\n" for content in contents)


def kept_lines(path: Path) -> list[Any]:
    try:
        with open(path, encoding="utf-8", newline="\n", opener=to_read) as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, str(getattr(error, "strerror", None) or error)) from error


def refuse_uneven(path: Path, *counts: int) -> None:
    """Refuse files of one split that do not hold as many examples as each other."""
    if len(set(counts)) > 1:
        raise damaged(path, f"the files of its split hold {' and '.join(map(str, counts))} examples")
