"""Find the file of each split, if each split is one file.

A part of its name is the split: `reviews-train.csv`, `TREC.test.all.gz`. Documents such as `test.md` do not count.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.layout import DOCUMENTS, SPLITS, TEST, files_in, is_directory, kind, refuse_empty
from regard.settings.errors import UserError

__all__ = ["SPLIT_NAME", "find_splits", "find_tests", "like_train", "split_of"]

SPLIT_NAME = re.compile(rf"(?:^|[._-])(train|val|valid|validation|dev|{TEST}[^.]*)(?=[._-]|$)")


def find_splits(paths: Sequence[Path]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """The file of every split, train first: of a directory, of files by their names, or of one file that is train.

    In train's folder, only files with a similar name belong to it. Also returns notes about files that the user did not
    name.
    """
    directories = [path for path in paths if is_directory(path)]
    if directories and len(paths) > 1:
        raise UserError(f"{directories[0]}: is a directory; pass one directory, or files")
    if directories:
        return _in_order(like_train(files_in(paths[0]), paths[0])), ()
    if len(paths) > 1:
        return _in_order(_one_each([(_named(file), file) for file in paths])), ()
    part = _part(paths[0])
    if part is None or part[0] != "train":
        return {"train": paths[0]}, ()
    others = [file for file in files_in(paths[0].parent) if (its := _part(file)) and its[0] != "train"]
    found = _in_order(like_train([*others, paths[0]], paths[0]))
    beside = [split for split in found if split != "train"]
    return found, (f"{', '.join(beside)} read from beside {paths[0]}",) if beside else ()


def find_tests(path: Path, *, kinds: Sequence[str] = ()) -> list[Path]:
    """A file; or the tests in a directory, or else its validation file; if it has train, with names similar to it.

    If a directory has splits of several of these `kinds`, only the first kind counts.
    """
    if not is_directory(path):
        return [path]
    found = [(*part, file) for file in files_in(path) if (part := _part(file)) and kind(file) not in DOCUMENTS]
    meant = next((one for one in kinds if any(kind(file) == one for *_, file in found)), None)
    found = [each for each in found if meant in (None, kind(each[2]))]
    like = {around for split, around, _ in found if split == "train"} or {around for _, around, _ in found}
    named = [(split, file) for split, around, file in found if around in like]
    tests = [file for split, file in named if split.startswith("test")] or [f for split, f in named if split == "val"]
    if not tests:
        raise UserError(f"{path}: contains no test; expected a file with test in its name, such as test.tsv")
    return tests


def split_of(path: Path) -> str | None:
    """The split in a file's name, if there is one."""
    part = _part(path)
    return None if part is None else part[0]


def _part(path: Path) -> tuple[str, str] | None:
    """The split in a file's name, and the rest of the name.

    >>> [_part(Path(name)) for name in ("TREC.train.all.gz", "en-dev.tsv", "test_hard.csv", "reviews.tsv")]
    [('train', 'TREC.*.all'), ('val', 'en-*.tsv'), ('test_hard', '*.csv'), None]
    """
    name = path.name.removesuffix(".gz")
    found = SPLIT_NAME.search(name)
    if found is None:
        return None
    return SPLITS.get(found[1], found[1]), f"{name[: found.start(1)]}*{name[found.end(1) :]}"


def _named(path: Path) -> str:
    part = _part(path)
    if part is None:
        raise UserError(f"{path}: each of several files must have its split in its name, such as train, val or test")
    return part[0]


def like_train(files: Sequence[Path], origin: Path) -> dict[str, Path]:
    """The file of each split, of those whose names are similar to that of train."""
    parts = [(*part, file) for file in files if (part := _part(file))]
    trains = [(around, file) for split, around, file in parts
              if split == "train" and (file == origin or kind(file) not in DOCUMENTS)]
    if not trains:
        refuse_empty(origin)
        there = ", ".join(file.name for *_, file in parts) or "no split"
        raise UserError(f"{origin}: no split to train on; wanted train.tsv, train.csv or train.jsonl; found {there}")
    if len(trains) > 1:
        raise UserError(f"{trains[0][1]} and {trains[1][1].name} would both be train; pass the files you mean by name")
    return _one_each([(split, file) for split, around, file in parts if around == trains[0][0]])


def _one_each(named: Sequence[tuple[str, Path]]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for split, file in named:
        if split in found:
            raise UserError(f"{found[split]} and {file} would both be {split}; leave one of them out")
        found[split] = file
    if "train" not in found:
        raise UserError(f"{', '.join(map(str, found.values()))}: none of them is train; put train into one name")
    return found


def _in_order(found: Mapping[str, Path]) -> dict[str, Path]:
    return dict(sorted(found.items(), key=lambda item: (item[0] != "train", item[0] != "val", item[0])))
