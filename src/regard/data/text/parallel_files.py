"""Files become pairs of texts: a corpus of splits, read whole and checked on the way in."""

import heapq
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from regard.data.header import Header, keys, pair_header
from regard.data.jsonl import read_objects, read_texts
from regard.data.layout import Layout, Sides, find_files, find_test_pairs, kind
from regard.data.lines import read_lines
from regard.settings.errors import UserError, count, out_of

__all__ = ["Pair", "ParallelTexts", "by_checksum", "read_pairs", "read_test_pairs", "shared"]

HELD_OUT_SHARE = 100  # one pair in a hundred
HELD_OUT_MOST = 2_000  # enough to measure on; more would only slow every evaluation


@dataclass(frozen=True, slots=True)
class Pair:
    """One example: a text and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class ParallelTexts:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, list[Pair]]
    languages: tuple[str, str]
    notes: tuple[str, ...]
    first: Pair
    """The first pair that was read, in any split."""


def read_pairs(paths: Sequence[Path], *, source: str | None = None, target: str | None = None) -> ParallelTexts:
    """The corpus in one directory, in two parallel files, or in one TSV or JSONL file; each may be gzipped.

    `source` and `target` are languages (`train.en` and `train.de` have `en` and `de`), columns in the header
    of a TSV, or keys of JSON. A TSV without a header has two columns; it has no quoting. A pair with a
    blank side is dropped, and without a `val` split a part of train is held out; both with a note.
    """
    layout = find_files(paths, source=source, target=target)
    whole = _read(layout)
    splits, notes = dict(whole.splits), [*whole.notes]
    if "val" not in splits:
        all_of_them = len(splits["train"])
        splits["train"], splits["val"] = _hold_out(splits["train"], layout.files["train"][0])
        held_out = out_of(len(splits["val"]), all_of_them, "pair", "of train is", "of train are")
        notes.append(f"no val split: {held_out} held out as val")
    sources = {name: [pair.source for pair in its] for name, its in splits.items()}
    return replace(whole, splits=splits, notes=(*notes, *shared(sources, "source line")))


def read_test_pairs(paths: Sequence[Path], *, source: str | None = None, target: str | None = None,
                    own: Sides = (None, None)) -> ParallelTexts:
    """Other data to measure a run on, under the files' names, in the formats of `read_pairs`.

    Parallel files come in pairs; of a directory the tests count, or else val. `own` are the run's sides.
    """
    layout = find_test_pairs(paths, source=source, target=target, own=own)
    return _read(layout, own=own if (source, target) == (None, None) else (None, None))


def _read(layout: Layout, *, own: Sides = (None, None)) -> ParallelTexts:
    splits, notes, languages = dict[str, list[Pair]](), [*layout.notes], layout.languages
    first: Pair | None = None
    for split, files in layout.files.items():
        read = _rows(files, languages, layout.named)
        pairs = [Pair(*row) for row in read.rows if not any(map(_blank, row))]
        if not pairs:
            raise UserError(f"{files[0]}: no pair has text on both sides")
        notes += read.notes
        if dropped := len(read.rows) - len(pairs):
            notes.append(f"{split}: {out_of(dropped, len(read.rows), 'pair')} dropped because a side was blank")
        if read.names is None and None not in own and len(files) == 1:
            notes.append(f"{files[0]}: its first line names no columns; the first is read as {own[0]}, the second as "
                         f"{own[1]}")
        if split == "train" and read.names is not None:
            languages = read.names  # probably also the column names of the other splits
        first = first or pairs[0]
        splits[split] = pairs
    assert first is not None
    return ParallelTexts(splits, languages, tuple(notes), first)


class _Rows(NamedTuple):
    """The rows of a file or of two parallel ones, including rows that lack a side."""

    rows: Sequence[tuple[str, ...]]
    names: tuple[str, str] | None
    """The names of the sides there, if known."""
    notes: Sequence[str] = ()


def _rows(files: tuple[Path, ...], languages: tuple[str, str], named: Sides) -> _Rows:
    columns = [_lines(path) for path in files]
    match files:
        case [source, target]:
            if len(columns[0]) != len(columns[1]):
                raise UserError(
                    f"{source} has {count(len(columns[0]), 'line')} and {target} has {len(columns[1]):,}; "
                    "line for line they must be translations of each other"
                )
            return _Rows(list(zip(*columns, strict=True)), languages)
        case [path] if kind(path) == "tsv":
            return _table(columns[0], path, languages, named)
    path = files[0]
    first = next(read_objects(columns[0], str(path)))[1]
    names = keys(list(first), named=named, own=languages)
    return _Rows(list(read_texts(columns[0], names, str(path))), names)


def _table(lines: Sequence[str], path: Path, languages: tuple[str, str], named: Sides) -> _Rows:
    begin = next(number for number, line in enumerate(lines) if not _blank(line))
    header = pair_header(lines[begin].split("\t"), f"{path}:{begin + 1}", named=named, own=languages)
    rows = [_columns(line, header, f"{path}:{number}") for number, line in enumerate(lines, 1)
            if header.names is None or number > begin + 1]
    if not rows:
        raise UserError(f"{path}: only a header, and no pair below it")
    return _Rows(rows, header.names, () if header.note is None else (header.note,))


def _lines(path: Path) -> list[str]:
    lines = list(read_lines(path, str(path)))
    if not lines:
        raise UserError(f"{path}: the file is empty")
    if all(map(_blank, lines)):
        raise UserError(f"{path}: only blank lines ({len(lines):,} of them)")
    return lines


def _columns(line: str, header: Header, place: str) -> tuple[str, str]:
    cells = line.split("\t")
    if len(cells) == header.width:
        return cells[header.source], cells[header.target]
    if len(cells) == 1 and _blank(line):
        return "", ""
    there = "one column" if len(cells) == 1 else f"{len(cells)} columns"
    if header.names is not None:
        raise UserError(f"{place}: {there}, but the first line has {header.width}")
    more = "; or name the columns in the first line, and choose two with --source and --target" * (len(cells) > 2)
    raise UserError(f"{place}: {there} instead of two: source, a tab, target{more}")


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _hold_out(pairs: list[Pair], path: Path) -> tuple[list[Pair], list[Pair]]:
    """(training pairs, held-out pairs), chosen by the source's checksum."""
    if len(pairs) < 2:
        raise UserError(f"{path}: only one pair; at least two are needed, one to train on and one to measure on")
    size = min(max(len(pairs) // HELD_OUT_SHARE, 1), HELD_OUT_MOST)
    chosen = set(by_checksum([pair.source for pair in pairs], size))
    stays = [pair for index, pair in enumerate(pairs) if index not in chosen]
    return stays, [pairs[index] for index in sorted(chosen)]


def by_checksum(texts: Sequence[str], size: int) -> list[int]:
    """The indices of `size` texts, chosen by their checksums: the same for every run and machine.

    Equal texts have equal checksums and so stay together, except for the last ones, which are cut to the size: a
    held-out text is hardly ever also a training text.
    """
    checksums = (zlib.crc32(text.encode()) for text in texts)
    return [index for _, index in heapq.nsmallest(size, zip(checksums, range(len(texts)), strict=True))]


def shared(splits: Mapping[str, Sequence[str]], thing: str) -> Iterator[str]:
    """A note for each split: how many of its texts are also in train."""
    train = set(splits["train"])
    for split, texts in splits.items():
        known = sum(text in train for text in texts)
        if known and split != "train":
            its = f"of {split} also"
            yield f"{out_of(known, len(texts), thing, f'{its} stands', f'{its} stand')} in train"
