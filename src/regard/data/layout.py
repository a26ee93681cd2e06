"""Which files are which split: from the paths a user gives to the files to read.

Parallel files are called `SPLIT.LANGUAGE`, as in `train.en` and `train.de`; files that hold both sides are
`SPLIT.tsv` or `SPLIT.jsonl`; each may end in `.gz`. (`splits` does it for examples that are no pairs.)
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from stat import S_ISDIR

from regard.data.languages import language
from regard.settings.errors import UserError

__all__ = ["DOCUMENTS", "SPLITS", "TEST", "Layout", "Sides", "files_in", "find_files", "find_test_pairs",
           "is_directory", "kind", "refuse_empty", "sides_of"]

SPLITS = {"train": "train"} | dict.fromkeys(("val", "valid", "validation", "dev"), "val")
TEST = "test(?!ing|er|ed|im|am)"  # how a test's name begins: test_hard, test2016, testset, and not testing or testimony
BOTH_SIDES = ("tsv", "jsonl")
# Kinds of files that lie beside data, and hold none that is read here.
DOCUMENTS = ("bib", "doc", "docx", "gif", "htm", "html", "ipynb", "jpeg", "jpg", "json", "log", "md", "pdf", "png",
             "rst", "svg", "tex", "toml", "xml", "yaml", "yml", "zip")

MAX_LISTED = 8  # folders in a message

Found = Mapping[tuple[str, str], Sequence[Path]]  # (split, suffix) -> the files called so

Sides = tuple[str | None, str | None]
"""The names of source and target, if known: languages, or keys of JSON."""


@dataclass(frozen=True)
class Layout:
    """The files of each split: a source and a target file, or one file that holds both sides."""

    files: Mapping[str, tuple[Path, ...]]
    languages: tuple[str, str]
    notes: tuple[str, ...]
    named: Sides = (None, None)
    """The user's names of source and target. A file of both sides must have such columns or keys."""


def kind(path: Path) -> str:
    """The ending of the name, without `.gz`: a language, or the format of a file that holds both sides.

    >>> kind(Path("data/train.de.gz")), kind(Path("pairs.tsv")), kind(Path("LICENSE"))
    ('de', 'tsv', '')
    """
    stem, _, suffix = path.name.removesuffix(".gz").rpartition(".")
    return suffix if stem else ""


def find_files(paths: Sequence[Path], *, source: str | None, target: str | None) -> Layout:
    """The files of every split, from one directory, two parallel files, or one file with both sides."""
    _refuse_equal(source, target)
    return replace(_found(paths, source, target), named=(source, target))


def _found(paths: Sequence[Path], source: str | None, target: str | None) -> Layout:
    match [(path, is_directory(path)) for path in paths]:
        case [(directory, True)]:
            return _in_directory(directory, source, target)
        case [(file, False)] if kind(file) in BOTH_SIDES:
            return _beside((file,), _names(source, target))
        case [(file, False)]:
            raise _one_side(file)
        case [(first, False), (second, False)]:
            return _two_sides(first, second, source, target)
        case [(first, first_is_directory), (second, _)]:
            directory = first if first_is_directory else second
            raise UserError(f"{directory}: is a directory; pass one directory, or two files")
    raise UserError(f"{len(paths)} paths given as data; pass one directory, two parallel files, or one .tsv or .jsonl")


def find_test_pairs(paths: Sequence[Path], *, source: str | None, target: str | None, own: Sides) -> Layout:
    """Data to measure a run on: files of both sides, two parallel ones after each other, the tests of directories.

    The run's own sides say which of two files is the source, where these are called so; else it is the first.
    """
    sides = source or own[0], target or own[1]
    if sides[0] is not None and sides[0] == sides[1] and not (source and target):
        raise UserError(f"--source and --target would both be {sides[0]!r} (one is the run's own); pass both")
    _refuse_equal(*sides)
    files, notes, left = list[tuple[Path, ...]](), list[str](), list(paths)
    while left:
        path = left.pop(0)
        if is_directory(path):
            found, lacking = _tests_in(path, source, target, sides)
            files += found
            notes += lacking
        elif kind(path) in BOTH_SIDES:
            files.append((path,))
        elif not left or is_directory(left[0]) or kind(left[0]) in BOTH_SIDES:
            raise _one_side(path)
        else:
            files.append(_test_pair(path, left.pop(0), source, target, sides))
    return Layout({" ".join(map(str, its)): its for its in files}, _names(*sides), tuple(notes), (source, target))


def sides_of(paths: Sequence[Path], *, source: str | None, target: str | None) -> Sides:
    """The sides of a run's training data. Only reads the names: the files may be gone.

    >>> sides_of([Path("train.en"), Path("train.de.gz")], source=None, target="en")
    ('de', 'en')
    """
    match paths:
        case [first, second] if kind(first) != kind(second):
            first, second = _by_name(first, second, source, target)
            return source or kind(first) or None, target or kind(second) or None
    return source, target


def _refuse_equal(source: str | None, target: str | None) -> None:
    if source is not None and source == target:
        raise UserError(f"--source and --target are both {source!r}; they must differ")


def _one_side(file: Path) -> UserError:
    return UserError(f"{file}: one file must be .tsv or .jsonl (or .gz of these); "
                     "for parallel files pass both sides, or their directory")


def is_directory(path: Path) -> bool:
    try:
        return S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file or directory") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UserError(f"{path}: cannot be read: {error}") from None


def _in_directory(directory: Path, source: str | None, target: str | None) -> Layout:
    found = _pairs(_scan(directory), source, target)
    if whole := _whole(directory, found, ["train"]):
        languages = _names(source, target)
        files, notes = _pick([(found, whole)])
    else:
        languages = _languages(directory, found, source, target)
        files, notes = _pick([(found, language) for language in languages])
    if "train" not in files:
        raise _no_train(directory, " and ".join(f"train.{language}" for language in languages))
    return Layout(files, languages, notes)


def _tests_in(directory: Path, source: str | None, target: str | None,
              sides: Sides) -> tuple[list[tuple[Path, ...]], tuple[str, ...]]:
    """The files of its tests, or else of its val; and what to say of those that lack a side."""
    found = _pairs(_scan(directory), source, target)
    tests = sorted({split for split, _ in found if split.startswith("test")}) or ["val"]
    chosen = {(split, suffix): same for (split, suffix), same in found.items() if split in tests}
    if whole := _whole(directory, chosen, tests):
        files, notes = _pick([(chosen, whole)])
    else:
        there = _there(directory, chosen, source, target)
        if len(there) < 2:
            raise UserError(f"{directory}: no test in it; wanted test.SOURCE and test.TARGET, test.tsv, or test.jsonl; "
                            f"found {_listed(directory)}")
        known = tuple(name if name in there else None for name in sides)
        files, notes = _pick([(chosen, language) for language in _way(directory, there, *known)])
    if not files:
        raise UserError(f"{directory}: no test in it; {'; '.join(notes)}")
    return list(files.values()), notes


def _whole(directory: Path, found: Found, splits: Sequence[str]) -> str | None:
    """The format of these splits, if their files hold both sides."""
    suffixes = sorted({suffix for split, suffix in found if split in splits})
    if not set(suffixes) & set(BOTH_SIDES):
        return None
    if len(suffixes) > 1:
        raise UserError(f"{directory}: {' or '.join(splits)} is there as {' and as '.join(suffixes)}; pass the files "
                        "you mean by name")
    return suffixes[0]


def _scan(directory: Path) -> Found:
    found: dict[tuple[str, str], list[Path]] = {}
    for entry in files_in(directory):
        if (split := _split(entry)) and kind(entry):
            found.setdefault((split, kind(entry)), []).append(entry)
    return found


def _pairs(found: Found, *named: str | None) -> Found:
    """Files that may be or have a side of pairs; if the user named them, files of any kind."""
    others = {*DOCUMENTS, "csv", "txt"} - {*named}
    return {key: same for key, same in found.items() if key[1] not in others}


def refuse_empty(directory: Path) -> None:
    """Refuse a folder that holds no file, or only folders that hold none."""
    def holds(folder: Path) -> bool:
        return any(_visible(files) for _, _, files in os.walk(folder))

    if not directory.is_dir() or _visible(file.name for file in files_in(directory)):
        return
    folders = sorted(entry for entry in directory.iterdir() if entry.is_dir())
    if not folders:
        raise UserError(f"{directory}: the folder is empty")
    if not any(map(holds, folders)):
        listed = ", ".join(f"{folder.name}/" for folder in folders[:MAX_LISTED])
        raise UserError(f"{directory}: its folders hold no file: {listed}{' …' if len(folders) > MAX_LISTED else ''}")


def _visible(names: Iterable[str]) -> bool:
    """Whether there is a name but those that a system hides, such as `.DS_Store`."""
    return any(not name.startswith(".") for name in names)


def files_in(directory: Path) -> list[Path]:
    try:
        return sorted(entry for entry in directory.iterdir() if entry.is_file())
    except PermissionError:
        raise UserError(f"{directory}: no permission to read it") from None
    except OSError as error:
        raise UserError(f"{directory}: cannot be read: {error.strerror or error}") from None


def _split(path: Path) -> str | None:
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    return stem if re.match(TEST, stem) else SPLITS.get(stem)


def _pick(sides: Sequence[tuple[Found, str]]) -> tuple[dict[str, tuple[Path, ...]], tuple[str, ...]]:
    """The splits with both sides, train first; and notes about those that lack a side."""
    splits = {split for found, wanted in sides for split, suffix in found if suffix == wanted}
    files: dict[str, tuple[Path, ...]] = {}
    notes = []
    for split in sorted(splits, key=lambda name: (name != "train", name != "val", name)):
        candidates = [found.get((split, suffix), ()) for found, suffix in sides]
        for same in candidates:
            if len(same) > 1:
                raise UserError(f"{same[0]} and {same[1].name} would both be {split}; move one of them away")
        if all(candidates):
            files[split] = tuple(same[0] for same in candidates)
        else:
            lacking = next(suffix for found, suffix in sides if (split, suffix) not in found)
            notes.append(f"{split} is left out: its {lacking} side is missing")
    return files, tuple(notes)


def _languages(directory: Path, found: Found, source: str | None, target: str | None) -> tuple[str, str]:
    there = _there(directory, found, source, target)
    if not any(split == "train" for split, _ in found) or len(there) < 2:
        raise _no_train(directory, "train.SOURCE and train.TARGET, train.tsv, or train.jsonl")
    return _way(directory, there, source, target)


def _there(directory: Path, found: Found, source: str | None, target: str | None) -> list[str]:
    """The languages of a directory, among them those that were asked for."""
    there = sorted({suffix for _, suffix in found} - set(BOTH_SIDES))
    for option, name in (("--source", source), ("--target", target)):
        if name is not None and name not in there:
            near = get_close_matches(name, there, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"{option} {name}: {directory} holds {', '.join(there) or 'no split'}{hint}")
    return there


def _way(directory: Path, there: Sequence[str], source: str | None, target: str | None) -> tuple[str, str]:
    if len(there) == 2:  # the one names the other
        source = source or next((language for language in there if target and language != target), None)
        target = target or next((language for language in there if source and language != source), None)
    if source is None or target is None:
        raise UserError(
            f"{directory}: holds the languages {', '.join(there)}; "
            f"say which way to translate, as in --source {there[0]} --target {there[1]}"
        )
    return source, target


def _no_train(directory: Path, wanted: str) -> UserError:
    refuse_empty(directory)
    return UserError(f"{directory}: no split to train on; wanted {wanted}; found {_listed(directory)}")


def _listed(directory: Path) -> str:
    """The files that are called like splits, whatever they hold."""
    return ", ".join(path.name for same in _scan(directory).values() for path in same) or "no split"


def _two_sides(first: Path, second: Path, source: str | None, target: str | None) -> Layout:
    for file in (first, second):
        if kind(file) in BOTH_SIDES:
            raise UserError(f"{file}: holds both sides; pass only this file, or its directory for all its splits")
    first, second = _by_name(first, second, source, target)
    _refuse_names(first, second, source, target)
    if kind(first) and kind(second) and kind(first) != kind(second):
        return _beside((first, second), (source or kind(first), target or kind(second)))
    return _beside((first, second), _names(source, target))


def _test_pair(first: Path, second: Path, source: str | None, target: str | None, sides: Sides) -> tuple[Path, Path]:
    if kind(first) == kind(second) in sides:
        raise UserError(f"{first} and {second}: both names say {kind(first)}; pass each source, and then its target")
    pair = _by_name(first, second, *sides)
    _refuse_names(*pair, source, target)
    return pair


def _by_name(first: Path, second: Path, source: str | None, target: str | None) -> tuple[Path, Path]:
    """Source and target, by their names where these tell."""
    return (second, first) if target == kind(first) or source == kind(second) else (first, second)


def _refuse_names(first: Path, second: Path, source: str | None, target: str | None) -> None:
    if first.samefile(second):
        raise UserError(f"{first}: the same file as both sides; pass the source file and the target file")
    fits = [name == kind(file) for name, file in ((source, first), (target, second)) if name is not None]
    if any(fits) and not all(fits):
        raise UserError(
            f"{first} and {second}: their names say {kind(first)} and {kind(second)}, "
            f"--source and --target say {source} and {target}; give matching ones, or leave them out"
        )
    for option, name, file in (("--source", source, first), ("--target", target, second)):
        if name is not None and name != kind(file) and language(kind(file)) is not None:
            raise UserError(f"{option} {name}: {file} says by its name that it is {kind(file)}; give that, or leave "
                            f"{option} out")


def _names(source: str | None, target: str | None) -> tuple[str, str]:
    return source or "source", target or "target"


def _beside(train: tuple[Path, ...], languages: tuple[str, str]) -> Layout:
    """The train files given, and the other splits that lie beside them if they are called train."""
    if any(_split(file) != "train" for file in train):
        return Layout({"train": train}, languages, ())
    others: list[tuple[Found, str]] = []
    for file in train:
        scanned = _scan(file.parent)
        others.append(({key: same for key, same in scanned.items() if key[0] != "train"}, kind(file)))
    files, notes = _pick(others)
    if files:
        notes = (f"{', '.join(files)} read from beside {train[0]}", *notes)
    return Layout({"train": train} | files, languages, notes)
