"""Where images lie: paths become the images of each split, with their labels or captions.

A folder for each label, a table, or IDX files; as they are, in archives, or in folders of splits.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from regard.data.images.formats import has_image_ending, is_archive
from regard.data.images.idx import idx_files, read_idx
from regard.data.images.tables import LABELS, Row, names_images, read_table, tables_of
from regard.data.images.trees import Folder, Tree, tree_of
from regard.data.labelled import Columns
from regard.data.layout import SPLITS, TEST, is_directory
from regard.data.splits import find_splits, like_train, split_of
from regard.settings.errors import UserError, count, out_of

__all__ = ["Found", "Gathered", "Values", "gather"]

FOLDERS = {"training": "train", "testing": "test", "eval": "val", **SPLITS}  # other names of the folders of splits

Values = Callable[[Any, str], tuple[str, ...]]
"""The labels or captions in a cell or under a key; the second argument is for messages."""


@dataclass(frozen=True)
class Found:
    """An image that was found and not read yet, with its labels or captions."""

    tree: Tree
    name: str
    texts: tuple[str, ...]
    """Its labels or its captions."""
    place: str
    """Where these come from, for messages."""


@dataclass
class Gathered:
    """The images of each split, as they are found."""

    values: Values
    columns: Columns
    wanted: Sequence[str]
    questions: Sequence[str] = ()
    """Of questions: the usual names of their column; that of their answers is the one that is `wanted`."""
    splits: dict[str, list[Found]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, split: str, found: Iterable[Found]) -> None:
        self.splits.setdefault(split, []).extend(found)


def gather(paths: Sequence[Path], gathered: Gathered) -> Gathered:
    """The images at these paths, added to those that were gathered."""
    for path in paths:
        is_directory(path)  # it is there
    tables = [path for path in paths if tables_of([path.name])]
    if tables:
        found, notes = find_splits(tables)
        gathered.notes += notes
        roots = [tree_of(path) for path in paths if path not in tables]
        for split, table in found.items():
            _from_table(Folder(table.parent), table.name, roots, split, gathered)
        return gathered
    for path in paths:
        if idx_files([path.name]):
            _from_idx(Folder(path.parent), [path.name], gathered)
        elif has_image_ending(path.name) and not is_directory(path):
            raise UserError(f"{path}: is one image; give a folder, an archive, or a table of paths and "
                            f"{gathered.wanted[0]}s")
        else:
            _from_tree(tree_of(path), split_of(path) if len(paths) > 1 else None, gathered)
    return gathered


def _from_tree(tree: Tree, split: str | None, gathered: Gathered) -> None:
    """The images of a folder or an archive; of a folder of archives, those of all its archives."""
    top = [name for name in tree.names if "/" not in name]
    images = [name for name in tree.names if has_image_ending(name)]
    if idx_files(tree.names):
        _from_idx(tree, tree.names, gathered)
    elif tables := [name for name in tables_of(top) if names_images(tree, name)]:
        files = [tree.path / name for name in tables]
        named = {split or "train": files[0]} if len(files) == 1 else like_train(files, tree.path)
        for its, file in named.items():
            _from_table(tree, file.name, [], its, gathered)
    elif images:
        _from_folders(tree, images, split, gathered)
    elif isinstance(tree, Folder) and (packed := [tree.path / name for name in top if is_archive(name)]):
        for path in packed:
            _from_tree(tree_of(path), split_of(path), gathered)
    else:
        raise UserError(f"{tree.path}: no image in it; expected a folder for each label, a .csv, .tsv or .jsonl of "
                        "paths and labels, or IDX files such as MNIST's")


def _refuse_labels(tree: Tree, gathered: Gathered) -> None:
    """Refuse to take labels for captions or answers."""
    if gathered.wanted is not LABELS:
        columns = ", ".join(f"{each[0]}s" for each in (gathered.questions, gathered.wanted) if each)
        raise UserError(f"{tree.path}: images without {gathered.wanted[0]}s; give a table of their paths, {columns}; "
                        "names of folders and numbers in IDX files are labels, which a classifier learns")


def _from_idx(tree: Tree, names: Sequence[str], gathered: Gathered) -> None:
    _refuse_labels(tree, gathered)
    for images, labels in idx_files(names).items():
        split = split_of(Path(images)) or ("test" if "t10k" in images else "train")
        idx, numbers = read_idx(tree, images, labels)
        gathered.add(split, (Found(idx, name, gathered.values(number, idx.place(name)), tree.place(labels))
                             for name, number in zip(idx.names, numbers, strict=True)))


# A folder for each label.


def _from_folders(tree: Tree, names: Sequence[str], split: str | None, gathered: Gathered) -> None:
    """The label is the first folder below a split's folder, or below the one that holds all images."""
    _refuse_labels(tree, gathered)
    folders = {name: PurePosixPath(name).parts[:-1] for name in names}
    common = _common(list(folders.values()))
    has_splits = any(len(its) > common + 1 and _split(its[common]) for its in folders.values())
    outside, strays = list[str](), list[str]()
    for name, its in folders.items():
        at = common + has_splits
        if has_splits and not (len(its) > common and _split(its[common])):
            outside.append(name)
        elif len(its) <= at:
            strays.append(name)
        else:
            place = tree.place("/".join(its[: at + 1]))
            found = Found(tree, name, gathered.values(its[at], place), place)
            gathered.add((_split(its[common]) if has_splits else split) or "train", [found])
    if len(strays) == len(names):
        raise UserError(f"{tree.path}: {count(len(strays), 'image')}, but no folder for each label; put the images of "
                        "each label into a folder of its name, or give a table of paths and labels")
    for left, why in ((outside, "in no split's folder"), (strays, "in no label's folder")):
        if left:
            part = out_of(len(left), len(names), "image", "is", "are")
            gathered.notes.append(f"{tree.path}: {part} left out, {why}; the first is {left[0]}")


def _common(folders: Sequence[tuple[str, ...]]) -> int:
    """How many folders around the labels, or around the splits, hold all images."""
    depth = 0
    while all(len(its) > depth + 1 for its in folders) and len({its[depth] for its in folders}) == 1 and not _split(
            folders[0][depth]):
        depth += 1
    return depth


def _split(folder: str) -> str | None:
    name = folder.lower()
    return FOLDERS.get(name) or (name if re.match(TEST, name) else None)


# Tables.


def _from_table(tree: Tree, table: str, roots: Sequence[Tree], split: str, gathered: Gathered) -> None:
    rows = read_table(tree, table, gathered.columns, wanted=gathered.wanted)
    if gathered.questions:
        asked = read_table(tree, table, gathered.columns._replace(target=None), wanted=gathered.questions)
        rows = [replace(row, value=(question.value, row.value)) for question, row in zip(asked, rows, strict=True)]
    places = _Places(tree, roots, split)
    missing = list[Row]()
    for row in rows:
        if (at := places.find(row.path, row.place)) is None:
            missing.append(row)
        else:
            gathered.add(split, [Found(*at, gathered.values(row.value, row.place), row.place)])
    part = out_of(len(missing), len(rows), "line", "names", "name")
    if 2 * len(missing) > len(rows):
        raise UserError(f"{missing[0].place}: no image {missing[0].path} in {places}; {part} an image that is "
                        "not there")
    if missing:
        gathered.notes.append(f"{tree.place(table)}: {part} an image that is not there, and left out; the first is "
                              f"{missing[0].path} ({missing[0].place})")


class _Places:
    """Where the images of a split's table may lie: beside it, in a folder there, or in an archive there.

    If several have the same name, the image is the one in a folder or an archive of the same split.
    """

    def __init__(self, tree: Tree, roots: Sequence[Tree], split: str) -> None:
        self.split, self.own = split, tree
        self.trees = list(roots) or [tree]
        packed = [] if roots or not isinstance(tree, Folder) else sorted(
            entry for entry in tree.path.iterdir() if is_archive(entry.name) and entry.is_file())
        ours = [path for path in packed if split_of(path) == split]
        self.more = deque(group for group in (ours, [path for path in packed if path not in ours]) if group)

    def find(self, path: str, place: str) -> tuple[Tree, str] | None:
        """The tree that has this image, and its name there; `place` is for messages."""
        found = [(tree, path) for tree in self.trees if tree.has(path)] or [
            (tree, name) for tree in self.trees for name in tree.ending_in(path)]
        if not found:
            if not self.more:
                return None
            self.trees += map(tree_of, self.more.popleft())  # archives are opened only if a name is nowhere else
            return self.find(path, place)
        ranks = [self._rank(tree, name.removesuffix(path)) for tree, name in found]
        best = [each for each, rank in zip(found, ranks, strict=True) if rank == min(ranks)]
        if len(best) > 1:
            first, second = (tree.place(name) for tree, name in best[:2])
            raise UserError(f"{place}: {path} may be {first} or {second}; write the path from the folder of the table "
                            "on")
        return best[0]

    def _rank(self, tree: Tree, folder: str) -> int:
        """Folders and archives of the same split come first, those of other splits last."""
        around = [*PurePosixPath(folder).parts, *([] if tree is self.own else [tree.path.name])]
        splits = {_split(name) or split_of(Path(name)) for name in around} - {None}
        is_test = self.split.startswith("test") and any(name and name.startswith("test") for name in splits)
        return 0 if self.split in splits else 1 if is_test else 3 if splits else 2

    def __str__(self) -> str:
        return ", ".join(str(tree.path) for tree in self.trees)
