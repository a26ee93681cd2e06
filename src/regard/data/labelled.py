"""Texts with their labels, from files: TSV, CSV, lines of JSON, or plain lines of `LABEL text`; each may be gzipped."""

import csv
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.header import may_name_labels
from regard.data.jsonl import described, read_objects, text_of, value_of
from regard.data.layout import kind
from regard.data.lines import NotUTF8, read_lines, read_text
from regard.data.splits import find_splits
from regard.data.text.parallel_files import by_checksum, shared
from regard.settings.errors import UserError, out_of

__all__ = ["Columns", "LabelledCorpus", "LabelledFile", "Sample", "held_out", "labels_of", "read_corpus", "read_file",
           "some"]

TEXTS, LABELS = ("text", "sentence"), ("label", "labels")  # default names of columns and keys
HELD_OUT_MOST = 10_000  # enough to measure on; more would only slow every evaluation
MAX_SINGLE_TEXT_LABELS = 10  # labels that may have only one text each
MAX_MEAN_LABEL_WORDS = 3  # labels have hardly more words on average
MAX_TOLD_LABELS = 12  # labels whose counts are printed
LONGEST_CELL = 2**31 - 1  # of CSV: Python's own limit is shorter than a long document


@dataclass(frozen=True, slots=True)
class Sample:
    """A text with its labels: those of the whole text, or one for each of its words, separated by spaces."""

    text: str
    labels: tuple[str, ...]


class Columns(NamedTuple):
    """The columns or keys of a file."""

    source: str | None = None
    """The column or key of the text; absent: "text" or "sentence"."""
    target: str | None = None
    """The column or key of the label; absent: "label" or "labels"."""
    several: bool = False
    """Whether a text has any number of labels, with commas between them or as a list."""


@dataclass(frozen=True)
class LabelledFile:
    """The samples of a file, each with its line, and notes for the user."""

    path: Path
    samples: list[Sample]
    lines: list[int]
    notes: tuple[str, ...]

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse labels that the model has not learned: it cannot predict them."""
        for sample, line in zip(self.samples, self.lines, strict=True):
            if unknown := next((label for label in sample.labels if label not in known), None):
                raise UserError(f"{self.path}:{line}: unknown label {unknown!r}; the model knows "
                                f"{some(sorted(known))}")


@dataclass(frozen=True)
class LabelledCorpus:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, Sequence[Sample]]
    notes: tuple[str, ...]
    first: Sample
    """The first sample that was read, in any split."""


def read_corpus(paths: Sequence[Path], columns: Columns, *, held_out: float) -> LabelledCorpus:
    """All splits: of a directory, of files with the split in their names, or of one file.

    Without a `val` split, a share of each label's texts in train is held out as val.
    """
    found, notes = find_splits(paths)
    files = {split: read_file(path, columns) for split, path in found.items()}
    known = {label for sample in files["train"].samples for label in sample.labels}
    _refuse_odd(files["train"], known)
    for file in files.values():
        notes += file.notes
        file.refuse_others(known)
    notes += tuple(_label_notes(files["train"]))
    splits = {split: file.samples for split, file in files.items()}
    if "val" not in splits:
        stays, val = _held_out(files["train"], held_out)
        splits = {"train": stays, "val": val} | {name: its for name, its in splits.items() if name != "train"}
        part = out_of(len(val), len(stays) + len(val), "text", "of train is", "of train are")
        notes += (f"no val split: {part} held out as val",)
    texts = {name: [sample.text for sample in its] for name, its in splits.items()}
    return LabelledCorpus(splits, (*notes, *shared(texts, "text")), files["train"].samples[0])


def read_file(path: Path, columns: Columns) -> LabelledFile:
    """The samples of one file. A TSV or CSV may have a header; without one its columns are text, label.

    Any other file but a .jsonl has a label at the beginning of each line, then a space, then the text.
    """
    reader = {"tsv": _tsv, "csv": _csv, "jsonl": _json}.get(kind(path))
    notes: tuple[str, ...] = ()
    if reader is not None:
        rows, notes = reader(path, columns)
    elif columns.source or columns.target:
        raise UserError(f"{path}: --source and --target name columns of a .tsv or .csv, or keys of a .jsonl")
    else:
        rows, notes = _plain(path, columns)
    if not rows:
        raise UserError(f"{path}: no labelled text in it")
    if empty := sum(not text.strip() for _, text, _ in rows):
        notes += (f"{path}: {out_of(empty, len(rows), 'text', 'is', 'are')} empty",)
    return LabelledFile(path, [Sample(text, labels) for _, text, labels in rows], [line for line, *_ in rows], notes)


def some(labels: Sequence[str]) -> str:
    """The first of many, for a message."""
    return ", ".join(labels[:12]) + (" …" if len(labels) > 12 else "")


# Files -> rows: the line, the text, its labels.

Row = tuple[int, str, tuple[str, ...]]
Read = tuple[list[Row], tuple[str, ...]]  # and notes for the user


def _tsv(path: Path, columns: Columns) -> Read:
    lines = enumerate(read_lines(path, str(path)), 1)
    cells = ((number, line.split("\t")) for number, line in lines if line.strip())
    return _table(cells, path, columns, between="a tab")


def _csv(path: Path, columns: Columns) -> Read:
    def cells() -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(LONGEST_CELL)
        reader = csv.reader(read_text(path, str(path)), strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if any(map(str.strip, cells)))
        except csv.Error as error:
            raise UserError(f"{path}:{reader.line_num}: broken CSV: {error}") from None

    return _table(cells(), path, columns, between="a comma")


def _table(rows: Iterator[tuple[int, list[str]]], path: Path, columns: Columns, *, between: str) -> Read:
    header: list[str] | None = None
    found: list[Row] = []
    text, label = 0, 1
    for place, (number, cells) in enumerate(rows):
        if place == 0 and (named := _header(cells, path, columns)):
            header, (text, label) = cells, named
            continue
        if len(cells) != (2 if header is None else len(header)):
            count = "one column" if len(cells) == 1 else f"{len(cells)} columns"
            wanted = (f", but the first line has {len(header)}" if header is not None else
                      f" instead of two: text, {between}, label; or name the columns in the first line, and choose two "
                      "with --source and --target")
            raise UserError(f"{path}:{number}: {count}{wanted}")
        found.append((number, cells[text], labels_of(cells[label], f"{path}:{number}", columns)))
    return _without_names(found, path, between) if header is None else (found, ())


def _without_names(rows: list[Row], path: Path, between: str) -> Read:
    """Drop a header row. If another text has the same label, the first row is an example."""
    if len(rows) < 2 or len(rows[0][2]) != 1:
        return rows, ()
    (number, text, (label,)), *others = rows
    if not may_name_labels((text, label)) or any(label in labels for _, _, labels in others):
        return rows, ()
    return others, (f"{path}:{number}: {text!r}, {label!r} is read as a header, not as an example; if it is an "
                    f"example, put the line text, {between}, label above it",)


def _header(cells: Sequence[str], path: Path, columns: Columns) -> tuple[int, int] | None:
    """The columns of the text and the label, if the first line names them."""
    there = [cell.strip() for cell in cells]
    if columns.source is None and columns.target is None:  # the usual names, in any case
        there = [cell.lower() for cell in there]
    text, label = _key(there, columns.source, TEXTS), _key(there, columns.target, LABELS)
    is_named = columns.source is not None or columns.target is not None
    if text in there and label in there:
        return there.index(text), there.index(label)
    if is_named or text in there or label in there:
        missing, option = (text, "--source") if text not in there else (label, "--target")
        raise UserError(f"{path}:1: no column {missing!r}; the first line has {', '.join(map(repr, there[:12]))}; "
                        f"choose one with {option}")
    return None


def _json(path: Path, columns: Columns) -> Read:
    return list(_of_objects(path, columns)), ()


def _of_objects(path: Path, columns: Columns) -> Iterator[Row]:
    for number, record in read_objects(read_lines(path, str(path)), str(path)):
        place = f"{path}:{number}"
        text = text_of(record, _key(record, columns.source, TEXTS), place)
        yield number, text, labels_of(value_of(record, _key(record, columns.target, LABELS), place), place, columns)


def _plain(path: Path, columns: Columns) -> Read:
    """Files of this kind are often older than UTF-8."""
    notes: tuple[str, ...] = ()
    try:
        lines = list(read_lines(path, str(path)))
    except NotUTF8:
        lines = list(read_lines(path, str(path), encoding="latin-1"))
        notes = (f"{path}: is not UTF-8; reading it as Latin-1",)
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            label, *text = line.split(None, 1)
            rows.append((number, "".join(text), labels_of(label, f"{path}:{number}", columns)))
    return rows, notes


def _key(there: Collection[str], said: str | None, usual: Sequence[str]) -> str:
    return said or next((name for name in usual if name in there), usual[0])


def labels_of(value: Any, place: str, columns: Columns) -> tuple[str, ...]:
    """The label in a cell or under a key; or the labels, separated by commas or as a list."""
    if not columns.several:
        if isinstance(value, list):
            raise UserError(f"{place}: a list of labels; with --set data.multi_label=true a text may have several")
        label = _label(value, place)
        if not label:
            raise UserError(f"{place}: no label; add one, or delete the line")
        return (label,)
    every: Iterable[Any] = value if isinstance(value, list) else _label(value, place).split(",")
    labels = sorted({_label(each, place) for each in every} - {""})
    if wrong := next((label for label in labels if "," in label), None):
        raise UserError(f"{place}: the label {wrong!r} has a comma, which separates labels")
    return tuple(labels)


def _label(value: Any, place: str) -> str:
    """A label may be a text, a number or a truth value."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise UserError(f"{place}: the label is {described(value)} instead of a text or a number")
    label = text_of({"label": str(value)}, "label", place).strip()
    return " ".join(label.split())  # on one line: it is an answer


# Rows -> splits.


def _refuse_odd(train: LabelledFile, known: Collection[str]) -> None:
    if len(known) < 2:
        what = f"one label, {next(iter(known))!r}" if known else "no label"
        raise UserError(f"{train.path}: all texts have {what}; at least two labels are needed")
    if len(known) > MAX_SINGLE_TEXT_LABELS and 2 * len(known) > len(train.samples):
        raise UserError(f"{train.path}: {len(known):,} different labels of {len(train.samples):,} texts; is the label "
                        "in another column? Without a first line that names them they are text, label")
    long, short = _mean_words(known), _mean_words([sample.text for sample in train.samples])
    if len(known) > MAX_SINGLE_TEXT_LABELS and long > MAX_MEAN_LABEL_WORDS and short < 2:
        raise UserError(f"{train.path}: labels of {long:.0f} words on average, and texts of {short:.0f}; is the label "
                        "in another column? Without a first line that names them they are text, label")


def _mean_words(texts: Collection[str]) -> float:
    return sum(len(text.split()) for text in texts) / len(texts)


def _label_notes(train: LabelledFile) -> Iterator[str]:
    """Notes: the number of texts of each label, and whether the first line may be a header."""
    counts = Counter(label for sample in train.samples for label in sample.labels)
    listed = ", ".join(f"{label} ({count:,})" for label, count in counts.most_common(MAX_TOLD_LABELS))
    yield f"{len(counts):,} labels: {listed}{' …' if len(counts) > MAX_TOLD_LABELS else ''}"
    first = train.samples[0]
    if first.labels and all(counts[label] == 1 for label in first.labels) and len(counts) < len(train.samples) / 10:
        yield (f"{train.path}:{train.lines[0]}: no other text has the label {first.labels[0]!r}; if that line names "
               "the columns, say which they are with --source and --target")


def _held_out(train: LabelledFile, share: float) -> tuple[list[Sample], list[Sample]]:
    """(training samples, held-out samples)"""
    samples = train.samples
    chosen = held_out([sample.text for sample in samples], [sample.labels for sample in samples], share,
                      origin=str(train.path), thing="text")
    return ([sample for place, sample in enumerate(samples) if place not in chosen],
            [samples[place] for place in sorted(chosen)])


def held_out(names: Sequence[str], labels: Sequence[tuple[str, ...]], share: float, *, origin: str,
             thing: str) -> set[int]:
    """The places of a share of the examples of each label, so that no label is left out; chosen by their names.

    An example with several labels counts for the rarest of them.
    """
    share = min(share, HELD_OUT_MOST / len(names))
    often = Counter(label for each in labels for label in each)
    alike: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(labels):
        alike[min(each, key=lambda label: often[label], default="")].append(place)
    chosen: set[int] = set()
    for places in alike.values():
        chosen |= {places[i] for i in by_checksum([names[i] for i in places], int(share * len(places)))}
    if not chosen:  # too few of each: take one from the largest group
        most = max(alike.values(), key=len)
        if len(most) < 2:
            raise UserError(f"{origin}: no label has two {thing}s, one to train on and one to measure by")
        chosen = {most[by_checksum([names[i] for i in most], 1)[0]]}
    return chosen
