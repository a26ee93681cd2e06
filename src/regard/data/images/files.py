"""Images and their labels: a folder for each label, a table of paths and labels, or IDX files as MNIST has them.

All of these may lie in folders called train, val and test, have the split in their names, or be packed in archives.
Captions come from tables only. Names, tables and headers are read here; `store` decodes the images.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from regard.data.images.formats import has_image_ending, is_archive
from regard.data.images.idx import idx_files, read_idx
from regard.data.images.tables import CAPTIONS, LABELS, Row, names_images, read_table, tables_of
from regard.data.images.trees import Folder, Tar, Tree, tree_of
from regard.data.jsonl import described
from regard.data.labelled import Columns, held_out, labels_of, some
from regard.data.layout import DOCUMENTS, SPLITS, TEST, is_directory, kind
from regard.data.splits import find_splits, like_train, split_of
from regard.settings.errors import UserError, count, out_of

__all__ = ["Found", "ImageCorpus", "are_images", "read_captioned", "read_captioned_tests", "read_labelled",
           "read_tests", "source_files"]

MAX_TOLD_LABELS = 12  # labels whose counts are printed
MAX_SINGLE_LABELS = 10  # labels that may have only one image each
FIRST_NAMES = 200  # names of a tar that tell whether it holds images
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


@dataclass(frozen=True)
class ImageCorpus:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, Sequence[Found]]
    notes: tuple[str, ...]


@dataclass
class _Gathered:
    """The images of each split, as they are found."""

    values: Values
    columns: Columns
    wanted: Sequence[str]
    splits: dict[str, list[Found]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, split: str, found: Iterable[Found]) -> None:
        self.splits.setdefault(split, []).extend(found)


def read_labelled(paths: Sequence[Path], columns: Columns, *, share: float) -> ImageCorpus:
    """Images with labels. Without a `val`, a share of each label's images in train is held out as val."""
    where, gathered = str(paths[0]), _gather(paths, _of_labels(columns))
    train = _train(gathered, where)
    known = {label for found in train for label in found.texts}
    _refuse_odd(train, known, where)
    for split in gathered.splits.values():
        _refuse_unknown(split, known, "train has")
    gathered.notes += _label_notes(train)
    return _with_val(gathered, share, where)


def read_captioned(paths: Sequence[Path], columns: Columns, *, share: float) -> ImageCorpus:
    """Images with captions, from tables. Several lines may name the same image: it has several captions."""
    where, gathered = str(paths[0]), _gather(paths, _of_captions(columns))
    _train(gathered, where)
    gathered.splits = {split: _merged(found) for split, found in gathered.splits.items()}
    return _with_val(gathered, share, where)


def read_tests(path: Path, columns: Columns, known: Collection[str]) -> ImageCorpus:
    """Other data to measure a run on: its tests, or else its val; without splits, all images."""
    found = _tests(path, _gather([path], _of_labels(columns)), "a folder for each label")
    for its in found.splits.values():
        _refuse_unknown(its, known, "the model knows")
    return found


def read_captioned_tests(path: Path, columns: Columns) -> ImageCorpus:
    """Other data to measure a captioner on."""
    found = _tests(path, _gather([path], _of_captions(columns)), "a table of paths and captions")
    return ImageCorpus({name: _merged(its) for name, its in found.splits.items()}, found.notes)


def _tests(path: Path, gathered: _Gathered, expected: str) -> ImageCorpus:
    tests = [name for name in gathered.splits if name.startswith("test")] or [
        name for name in ("val", "train") if name in gathered.splits][:1]
    if not tests:
        raise UserError(f"{path}: no images to measure on; expected {expected}")
    named = {str(path) if len(tests) == 1 else f"{path} {name}": gathered.splits[name] for name in sorted(tests)}
    return ImageCorpus(named, tuple(gathered.notes))


def source_files(paths: Sequence[Path], columns: Columns) -> dict[str, Path]:
    """All files that are read, by their names below the paths, for a digest of them."""
    tables = [path for path in paths if tables_of([path.name])]
    if tables:
        gathered = _gather(paths, _Gathered(lambda value, place: (), columns, (*LABELS, *CAPTIONS)))
        files = {str(path): path for path in find_splits(tables)[0].values()}
        every = {(found.tree, found.name) for its in gathered.splits.values() for found in its}
        return dict(sorted(files.items() | {
            (name, Path(tree.place(name))) if isinstance(tree, Folder) else (tree.path.name, tree.path)
            for tree, name in every}))
    named = dict[str, Path]()
    for path in paths:
        if not is_directory(path):
            labels = idx_files([path.name]).values()
            named |= {name: path.parent / name for name in (path.name, *labels) if (path.parent / name).exists()}
        else:
            folder = Folder(path)
            idx = {name for both in idx_files(folder.names).items() for name in both}
            named |= {name: path / name for name in folder.names
                      if has_image_ending(name) or is_archive(name) or name in idx or tables_of([name])}
    return named


def are_images(paths: Sequence[Path]) -> bool:
    """Whether data holds images, as far as a quick look at names and at the first lines of tables tells.

    It needs neither numpy nor torch. Of data that cannot be read it says no: whoever reads it says why.
    """
    try:
        return bool(paths) and any(map(_has_images, paths))
    except (UserError, OSError, ValueError):
        return False


def _has_images(path: Path) -> bool:
    if not is_directory(path):
        tree = Folder(path.parent)
        return bool(idx_files([path.name])) or has_image_ending(path.name) or (
            _packs_images(path) if is_archive(path.name) else
            bool(tables_of([path.name])) and names_images(tree, path.name))
    folder = Folder(path)
    top = sorted(entry.name for entry in path.iterdir() if entry.is_file())
    if idx_files(top):
        return True
    if tables := tables_of(top):
        if any(names_images(folder, name) for name in tables):
            return True
        if any(split_of(Path(name)) for name in tables):
            return False
    if any(split_of(Path(name)) and kind(Path(name)) not in DOCUMENTS and not is_archive(name) for name in top):
        return False  # plain lines of `LABEL text`
    nested = (name for entry in sorted(path.iterdir()) if entry.is_dir() for name in Folder(entry).some_names())
    return any(map(has_image_ending, nested)) or any(_packs_images(path / name) for name in top if is_archive(name))


def _packs_images(path: Path) -> bool:
    tree = tree_of(path)
    names = tree.first_names(FIRST_NAMES) if isinstance(tree, Tar) else tree.names
    return any(map(has_image_ending, names)) or bool(idx_files(names))


def _of_labels(columns: Columns) -> _Gathered:
    return _Gathered(lambda value, place: labels_of(value, place, columns), columns, LABELS)


def _of_captions(columns: Columns) -> _Gathered:
    return _Gathered(_captions, columns, CAPTIONS)


def _captions(value: Any, place: str) -> tuple[str, ...]:
    several = value if isinstance(value, list) else [value]
    for each in several:
        if not isinstance(each, str):
            raise UserError(f"{place}: the caption is {described(each)} instead of a text")
    texts = tuple(" ".join(each.split()) for each in several)
    if not texts or not all(texts):
        raise UserError(f"{place}: no caption; add one, or delete the line")
    return texts


# Paths -> images


def _gather(paths: Sequence[Path], gathered: _Gathered) -> _Gathered:
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


def _from_tree(tree: Tree, split: str | None, gathered: _Gathered) -> None:
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


def _from_idx(tree: Tree, names: Sequence[str], gathered: _Gathered) -> None:
    for images, labels in idx_files(names).items():
        split = split_of(Path(images)) or ("test" if "t10k" in images else "train")
        idx, numbers = read_idx(tree, images, labels)
        gathered.add(split, (Found(idx, name, gathered.values(number, idx.place(name)), tree.place(labels))
                             for name, number in zip(idx.names, numbers, strict=True)))


# A folder for each label.


def _from_folders(tree: Tree, names: Sequence[str], split: str | None, gathered: _Gathered) -> None:
    """The label is the first folder below a split's folder, or below the one that holds all images."""
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
        raise UserError(f"{tree.path}: {count(len(strays), 'image')} without a {gathered.wanted[0]}; expected a folder "
                        "for each label, with its images in it, or a table of paths and labels")
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


def _from_table(tree: Tree, table: str, roots: Sequence[Tree], split: str, gathered: _Gathered) -> None:
    rows = read_table(tree, table, gathered.columns, wanted=gathered.wanted)
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


def _merged(found: Sequence[Found]) -> list[Found]:
    """Each image once, with all its captions."""
    every: dict[tuple[int, str], Found] = {}
    for each in found:
        key = id(each.tree), each.name
        before = every.get(key)
        every[key] = each if before is None else Found(each.tree, each.name, before.texts + each.texts, before.place)
    return list(every.values())


# Checks, and the validation split.


def _train(gathered: _Gathered, where: str) -> list[Found]:
    if train := gathered.splits.get("train"):
        return train
    there = ", ".join(gathered.splits) or "no image"
    raise UserError(f"{where}: no images to train on; found {there}")


def _refuse_unknown(found: Sequence[Found], known: Collection[str], whose: str) -> None:
    for each in found:
        if unknown := next((label for label in each.texts if label not in known), None):
            raise UserError(f"{each.place}: unknown label {unknown!r}; {whose} {some(sorted(known))}")


def _refuse_odd(train: Sequence[Found], known: Collection[str], where: str) -> None:
    if len(known) < 2:
        what = f"one label, {next(iter(known))!r}" if known else "no label"
        raise UserError(f"{where}: all images have {what}; at least two labels are needed")
    if len(known) > MAX_SINGLE_LABELS and 2 * len(known) > len(train):
        raise UserError(f"{where}: {len(known):,} different labels of {count(len(train), 'image')}; is the label "
                        "another folder or column?")


def _label_notes(train: Sequence[Found]) -> Iterator[str]:
    counts = Counter(label for found in train for label in found.texts)
    listed = ", ".join(f"{label} {number:,}" for label, number in counts.most_common(MAX_TOLD_LABELS))
    yield f"{len(counts):,} labels: {listed}{' …' if len(counts) > MAX_TOLD_LABELS else ''}"


def _with_val(gathered: _Gathered, share: float, where: str) -> ImageCorpus:
    splits, notes = dict(gathered.splits), gathered.notes
    if "val" not in splits:
        train = splits["train"]
        is_labelled = gathered.wanted is LABELS
        labels = [found.texts if is_labelled else () for found in train]
        chosen = held_out([found.name for found in train], labels, share, origin=where, thing="image")
        splits["train"] = [found for place, found in enumerate(train) if place not in chosen]
        splits["val"] = [train[place] for place in sorted(chosen)]
        part = out_of(len(chosen), len(train), "image", "of train is", "of train are")
        notes.append(f"no val split: {part} held out as val")
    order = sorted(splits, key=lambda name: (name != "train", name != "val", name))
    return ImageCorpus({name: splits[name] for name in order}, tuple(notes))
