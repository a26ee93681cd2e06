"""Raw text for a language model: files, folders and patterns become the documents of a few splits.

A file is a document, and so is each line of a `.jsonl`; both may be gzipped. Nothing is kept in memory: each iteration
over the documents reads the files again.
"""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from regard.data.jsonl import read_texts
from regard.data.layout import SPLITS, TEST, kind
from regard.data.lines import read_lines, read_text
from regard.settings.errors import UserError

__all__ = ["Corpus", "Document", "Found", "Text", "find_texts", "pieces", "read_corpus", "read_tests"]

CHARACTERS_AT_ONCE = 1 << 16  # characters of a document that are processed at once
UNBROKEN = 1 << 19  # at most this many if there is no space between them
NAMED = re.compile(rf"({'|'.join(SPLITS)})([-_]?\d.*)?|({TEST}.*)")

Document = Iterator[str]
"""A text in parts, such as lines with their ends: put together, they are the text."""


@dataclass(frozen=True)
class Found:
    """A file, the split in its name, and whether the user named it or it was found in a folder."""

    path: Path
    split: str | None = None
    named: bool = False


@dataclass(frozen=True)
class Text:
    """The documents of a split, read again each time, and their approximate number of characters."""

    documents: Callable[[], Iterator[Document]]
    characters: int


@dataclass(frozen=True)
class Corpus:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, Text]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Measured:
    path: Path
    split: str | None
    documents: int
    characters: int


def find_texts(paths: Sequence[Path]) -> list[Found]:
    """The files for the paths: a file, all files below a folder, or all that match a pattern such as *.py."""
    found: dict[Path, Found] = {}
    for path in paths:
        for text in _meant(path):
            found.setdefault(text.path, text)
    return list(found.values())


def read_corpus(found: Sequence[Found], *, key: str = "text", held_out: float = 0.1) -> Corpus:
    """The splits in the files' names; without a `val`, the end of the text is held out as validation.

    The last documents are held out if there are enough of them, else the last characters. `key` is the JSON key.
    An unreadable file is an error if the user has named it; otherwise it is left out with a note.
    """
    notes: list[str] = []
    files = _chosen(_measured(found, key, notes), notes)
    splits = {name: [file for file in files if (file.split or "train") == name]
              for name in dict.fromkeys(["train", "val", *sorted(file.split or "train" for file in files)])}
    if not splits["train"]:
        names = ", ".join(str(text.path) for text in found[:3])
        raise UserError(f"{names or 'data'}: no text to train on" + " beside the test data" * bool(files))
    texts = {name: _whole(group, key) for name, group in splits.items() if group}
    if "val" not in texts:
        train, val = _parted(splits["train"], key, held_out)
        notes.append(f"no val split: {_end(splits['train'], held_out)} held out as val")
        texts = {"train": train, "val": val} | {name: text for name, text in texts.items() if name != "train"}
    return Corpus(texts, tuple(notes))


def read_tests(path: Path, *, key: str = "text") -> Corpus:
    """Other data to measure a run on: a file; of a folder or a pattern the tests, or else val.

    If no name contains a split, all files: a testing.md among other notes is one of them.
    """
    notes, found = list[str](), find_texts([path])
    names = {None if text.named else text.split for text in found}
    if names <= {None}:
        groups = {str(path): found}
    else:
        tests = sorted(name for name in names if name and name.startswith("test")) or ["val"]
        groups = {f"{path} {name}": [text for text in found if text.split == name] for name in tests}
        if others := [text.path for text in found if text.split not in tests]:
            notes.append(_left_out(others[0], len(others), f"others are called {tests[0]}"))
    measured = {name: _measured(group, key, notes) for name, group in groups.items()}
    if not any(measured.values()):
        raise UserError(f"{path}: no text to measure on; wanted a file, or some whose names say test, as test.txt does")
    return Corpus({name: _whole(files, key) for name, files in measured.items() if files}, tuple(notes))


def pieces(document: Iterable[str], size: int = CHARACTERS_AT_ONCE, *, most: int = UNBROKEN) -> Iterator[str]:
    """A document in pieces of about `size` characters. All but the first begin with the space they were cut at.

    If `most` characters have no space, as in Chinese, they are cut at the end of a line, or anywhere.

    >>> list(pieces(["one two\\n", "three  four five"], 12))
    ['one two\\nthree  four', ' five']
    """
    held: list[str] = []
    length, enough = 0, size
    for part in (long[start : start + most] for long in document for start in range(0, len(long), most)):
        held.append(part)
        length += len(part)
        if length >= enough:
            text = "".join(held)
            if cut := _last_break(text) or (length if length >= most else 0):
                yield text[:cut]
            held, length = [text[cut:]], length - cut
            enough = min(most, max(size, 2 * length))  # without a break, do not search again at every line
    yield "".join(held)


def _last_break(text: str) -> int:
    """The position of the last single space between two words; 0 if there is none."""
    place = len(text) - 1
    while (place := text.rfind(" ", 1, place)) > 0:
        if not text[place - 1].isspace() and not text[place + 1].isspace():
            return place
    return 0


# Finding files.


def _meant(path: Path) -> Iterator[Found]:
    if not path.exists() and glob.has_magic(str(path)):
        root = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
        if not matches:
            raise UserError(f"{path}: no file of this name")
        for match in matches:
            yield from (Found(file, _split(file, root)) for file in ([match] if match.is_file() else _below(match)))
    elif path.is_dir():
        yield from (Found(file, _split(file, path)) for file in _below(path))
    elif path.is_file():
        yield Found(path, _split(path, path.parent), named=True)
    else:  # a pipe can be read only once, and a text is read several times
        raise UserError(f"{path}: " + ("not a plain file" if path.exists() else "no such file or folder"))


def _below(folder: Path) -> Iterator[Path]:
    """Every file, ordered by name, without hidden ones."""
    seen = set[str]()
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # a link leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place, name) for name in sorted(names) if not name.startswith("."))
        # A broken link gets a note later; a pipe would block its reader forever.
        yield from (file for file in files if file.is_file() or not file.exists())


def _refuse(error: OSError) -> None:
    raise UserError(f"{error.filename}: cannot be read: {error.strerror or error}")


def _split(file: Path, root: Path) -> str | None:
    """The split in the name of a file, or of the folder directly below the given one.

    >>> root = Path("data")
    >>> [_split(root / name, root) for name in ("valid.txt.gz", "wiki.train.raw", "test2016/a.txt", "latest.md")]
    ['val', 'train', 'test2016', None]
    """
    for word in file.relative_to(root).parts[0].split("."):
        if match := NAMED.fullmatch(word.lower()):
            return SPLITS[match[1]] if match[1] else match[3]
    return None


def _chosen(files: list[_Measured], notes: list[str]) -> list[_Measured]:
    """The files to use: if some are named train, files without a split in their name are left out."""
    if not any(file.split == "train" for file in files):
        return files
    if others := [file for file in files if file.split is None]:
        notes.append(_left_out(others[0].path, len(others), "others are called train"))
    return [file for file in files if file.split is not None]


# Reading files.


def _documents(files: Iterable[Path], key: str) -> Iterator[Document]:
    for file in files:
        if kind(file) == "jsonl":
            for (text,) in read_texts(read_lines(file, str(file)), (key,), str(file)):
                if text and not text.isspace():
                    yield iter((text,))
        else:
            yield read_text(file, str(file))


def _measured(found: Sequence[Found], key: str, notes: list[str]) -> list[_Measured]:
    """Read every file once, so that errors are found before the work begins."""
    files, unreadable, empty = [], [], []
    for text in found:
        try:
            documents = characters = 0
            for document in _documents([text.path], key):
                documents, characters = documents + 1, characters + _size(document)
        except UserError as error:
            if text.named or kind(text.path) == "jsonl":
                raise
            unreadable.append((text.path, error))
            continue
        if characters:
            files.append(_Measured(text.path, text.split, documents, characters))
        elif text.named:
            raise UserError(f"{text.path}: no text in it")
        else:
            empty.append(text.path)
    if unreadable:
        notes.append(f"{_left_out(unreadable[0][0], len(unreadable), 'not text')} ({unreadable[0][1]})")
    if empty:
        notes.append(_left_out(empty[0], len(empty), "empty"))
    return files


def _size(document: Document) -> int:
    """Number of characters; 0 if all are white space."""
    size, blank = 0, True
    for part in document:
        size += len(part)
        blank = blank and part.isspace()
    return 0 if blank else size


def _left_out(first: Path, count: int, why: str) -> str:
    return f"{first} left out: {why}" if count == 1 else f"{count:,} files left out: {why}; the first is {first}"


# Holding out.


def _whole(files: Sequence[_Measured], key: str) -> Text:
    paths = [file.path for file in files]
    return Text(partial(_documents, paths, key), sum(file.characters for file in files))


def _end(files: Sequence[_Measured], held_out: float) -> str:
    """The part that `_parted` holds out, in words."""
    count = sum(file.documents for file in files)
    if last := int(count * held_out):
        return f"the last {last:,} of {count:,} documents are" if last > 1 else f"the last of {count:,} documents is"
    return f"the last {100 * held_out:g}% of the text is"


def _parted(files: Sequence[_Measured], key: str, held_out: float) -> tuple[Text, Text]:
    """(training text, held-out text)."""
    whole, count = _whole(files, key), sum(file.documents for file in files)
    kept = int(whole.characters * (1 - held_out))
    if last := int(count * held_out):
        return (Text(lambda: islice(whole.documents(), count - last), kept),
                Text(lambda: islice(whole.documents(), count - last, None), whole.characters - kept))
    if not 0 < kept < whole.characters:
        raise UserError(f"{files[0].path}: {whole.characters:,} characters are too few to hold "
                        f"data.held_out={held_out} of them out")
    return (Text(lambda: _before(whole.documents(), kept), kept),
            Text(lambda: _after(whole.documents(), kept), whole.characters - kept))


def _before(documents: Iterable[Document], cut: int) -> Iterator[Document]:
    """The first `cut` characters."""
    left = cut

    def until_cut(document: Document) -> Document:
        nonlocal left
        for part in document:
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    for document in documents:
        if left <= 0:
            return
        yield until_cut(document)


def _after(documents: Iterable[Document], cut: int) -> Iterator[Document]:
    """The text after the first `cut` characters."""
    left = cut
    for document in documents:
        for part in document:
            if len(part) > left:
                yield chain([part[left:]], document)
                left = 0
                break
            left -= len(part)
