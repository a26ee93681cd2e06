"""Tables that name images: a path and a label, or a path and a caption, on each line.

`.csv`, `.tsv` and `.jsonl`, each also gzipped; and the `token.txt` of Flickr8k, whose paths end in `#0` … `#4`.
The columns are found by their names, or by the endings of the paths.
"""

import csv
import gzip
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.images.formats import has_image_ending
from regard.data.images.trees import Folder, Tree, leaves
from regard.data.jsonl import read_objects, text_of, value_of
from regard.data.labelled import Columns
from regard.data.layout import kind
from regard.data.lines import read_lines, read_text
from regard.settings.errors import UserError

__all__ = ["ANSWERS", "CAPTIONS", "LABELS", "QUESTIONS", "Row", "names_images", "read_table", "tables_of"]

PATHS = ("image", "path", "file", "filename", "file_name", "image_path", "image_name", "image_id", "img", "picture",
         "photo", "images")
LABELS = ("label", "labels", "class", "category", "target", "tag", "tags")
CAPTIONS = ("caption", "captions", "text", "sentence", "comment", "description", "target")
QUESTIONS = ("question", "prompt", "query", "instruction")
ANSWERS = ("answer", "response", "reply", "output", "target", "label")
KINDS = ("csv", "tsv", "jsonl")
LOOKED_AT = 20  # lines of a table that tell whether it names images
SHOWN = 12  # columns in a message
NUMBERED = re.compile(r"#\d+$")  # Flickr8k: the number of the caption


@dataclass(frozen=True)
class Row:
    """A line of a table: where it stands, the path of an image, and its label or caption."""

    place: str
    path: str
    value: Any


def tables_of(names: Iterable[str]) -> list[str]:
    """The names that a table may have."""
    return [name for name in names if kind(Path(name)) in KINDS or name.endswith("token.txt")]


def names_images(tree: Tree, name: str) -> bool:
    """Whether most of the first lines of a table name an image. A damaged table does not."""
    try:
        if kind(Path(name)) == "jsonl":
            rows: Iterator[Collection[Any]] = (record.values() for _, record in _objects(tree, name))
        else:
            rows = (cells for _, cells in _cells(tree, name))
        named = [any(isinstance(cell, str) and _is_path(cell) for cell in row) for row in islice(rows, LOOKED_AT)]
    except UserError:
        return False
    return any(named) and 2 * sum(named) >= len(named) - 1  # one of them may be a header


def read_table(tree: Tree, name: str, columns: Columns, *, wanted: Sequence[str]) -> list[Row]:
    """The rows of a table. `wanted` are the usual names of the column beside the path."""
    rows = list((_of_objects if kind(Path(name)) == "jsonl" else _of_cells)(tree, name, columns, wanted))
    if not rows:
        raise UserError(f"{tree.place(name)}: no image is named in it")
    return rows


def _of_cells(tree: Tree, name: str, columns: Columns, wanted: Sequence[str]) -> Iterator[Row]:
    rows = _cells(tree, name)
    first = next(rows, None)
    if first is None:
        return
    (number, cells), later = first, list(rows)
    is_header = columns[:2] != (None, None) or not any(map(_is_path, cells))
    path, value = _columns(f"{tree.place(name)}:{number}", cells, later[0][1] if later else [], columns, wanted,
                           is_header=is_header)
    for number, row in later if is_header else [first, *later]:
        place = f"{tree.place(name)}:{number}"
        if len(row) != len(cells):
            raise UserError(f"{place}: {len(row)} columns, but the first line has {len(cells)}")
        yield Row(place, _path(row[path], place), row[value])


def _of_objects(tree: Tree, name: str, columns: Columns, wanted: Sequence[str]) -> Iterator[Row]:
    for number, record in _objects(tree, name):
        place = f"{tree.place(name)}:{number}"
        paths = [key for key, cell in record.items() if isinstance(cell, str) and _is_path(cell)]
        path = columns.source or next((key for key in (*PATHS, *paths) if key in record), PATHS[0])
        others = [key for key in record if key != path]
        value = columns.target or next((key for key in wanted if key in others),
                                       others[0] if len(others) == 1 else wanted[0])
        yield Row(place, _path(text_of(record, path, place), place), value_of(record, value, place))


def _columns(place: str, first: Sequence[str], second: Sequence[str], columns: Columns, wanted: Sequence[str], *,
             is_header: bool) -> tuple[int, int]:
    """The numbers of the columns of the path and of the other."""
    there = [cell.strip() for cell in first]
    if len(there) < 2:
        raise UserError(f"{place}: only one column; expected the path of an image and its {wanted[0]}")
    if not is_header:
        path = next(number for number, cell in enumerate(there) if _is_path(cell))
        return path, next(number for number in reversed(range(len(there))) if number != path)
    of_images = [number for number, cell in enumerate(second) if _is_path(cell) and number < len(there)]
    source = _number(place, there, columns.source, PATHS, "--source", of_images[:1])
    others = [number for number in range(len(there)) if number != source]
    target = _number(place, there, columns.target, wanted, "--target", others if len(others) == 1 else [])
    if source == target:
        raise UserError(f"{place}: --source and --target are both {there[source]!r}; they must differ")
    return source, target


def _number(place: str, there: Sequence[str], named: str | None, usual: Sequence[str], option: str,
            guess: Sequence[int]) -> int:
    listed = ", ".join(map(repr, there[:SHOWN])) + " …" * (len(there) > SHOWN)
    if named is not None:
        if named not in there:
            raise UserError(f"{place}: {option} {named}: no such column; the first line has {listed}")
        return there.index(named)
    folded = [cell.casefold() for cell in there]
    found = [folded.index(name) for name in usual if name in folded] or [*guess]
    if not found:
        what = "the paths of images" if option == "--source" else f"the {usual[0]}"
        raise UserError(f"{place}: which column has {what}? The first line has {listed}; choose one with {option}")
    return found[0]


def _is_path(cell: str) -> bool:
    return has_image_ending(NUMBERED.sub("", cell.strip()))


def _path(cell: str, place: str) -> str:
    """A path below the folder of the table."""
    path = NUMBERED.sub("", cell.strip()) if _is_path(cell) else cell.strip()
    if not path:
        raise UserError(f"{place}: no path of an image")
    if leaves(path):
        raise UserError(f"{place}: the path {path!r} leads out of the folder of the data; give one relative to it")
    return "/".join(part for part in path.replace("\\", "/").split("/") if part not in ("", "."))


def _objects(tree: Tree, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    source, place = _source(tree, name)
    return read_objects(read_lines(source, place), place)


def _cells(tree: Tree, name: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, after its number."""
    source, place = _source(tree, name)
    if kind(Path(name)) != "csv":
        for number, line in enumerate(read_lines(source, place), 1):
            if line.strip():
                yield number, line.split("\t")
        return
    reader = csv.reader(read_text(source, place), strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader if any(map(str.strip, cells)))
    except csv.Error as error:
        raise UserError(f"{place}:{reader.line_num}: broken CSV: {error}") from None


def _source(tree: Tree, name: str) -> tuple[Path | Iterable[bytes], str]:
    place = tree.place(name)
    if isinstance(tree, Folder):
        return Path(place), place
    content = tree.read(name)
    return gzip.GzipFile(fileobj=BytesIO(content)) if content[:2] == b"\x1f\x8b" else BytesIO(content), place
