"""Images and their labels or captions, by split, from the paths that a user gives.

Names, tables and headers are read here; `store` decodes the images.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.images.formats import has_image_ending, is_archive
from regard.data.images.gather import Found, Gathered, gather
from regard.data.images.idx import idx_files
from regard.data.images.tables import ANSWERS, CAPTIONS, LABELS, QUESTIONS, tables_of
from regard.data.images.trees import Folder
from regard.data.jsonl import described
from regard.data.labelled import Columns, held_out, labels_of, some
from regard.data.layout import is_directory
from regard.data.splits import find_splits
from regard.settings.errors import UserError, count, out_of

__all__ = ["Found", "ImageCorpus", "labels_in", "read_asked", "read_asked_tests", "read_captioned",
           "read_captioned_tests", "read_labelled", "read_tests", "source_files"]

MAX_TOLD_LABELS = 12  # labels whose counts are printed
MAX_SINGLE_LABELS = 10  # labels that may have only one image each


@dataclass(frozen=True)
class ImageCorpus:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, Sequence[Found]]
    notes: tuple[str, ...]


def read_labelled(paths: Sequence[Path], columns: Columns, *, share: float) -> ImageCorpus:
    """Images with labels. Without a `val`, a share of each label's images in train is held out as val."""
    where, gathered = str(paths[0]), gather(paths, _of_labels(columns))
    train = _train(gathered, where)
    known = {label for found in train for label in found.texts}
    _refuse_odd(train, known, where)
    for split in gathered.splits.values():
        _refuse_unknown(split, known, "train has")
    gathered.notes += _label_notes(train)
    return _with_val(gathered, share, where)


def labels_in(paths: Sequence[Path], columns: Columns) -> list[str]:
    """The labels of the images to train on, in the order of their first images."""
    train = _train(gather(paths, _of_labels(columns)), str(paths[0]))
    return list(dict.fromkeys(label for found in train for label in found.texts))


def read_captioned(paths: Sequence[Path], columns: Columns, *, share: float) -> ImageCorpus:
    """Images with captions, from tables. Several lines may name the same image: it has several captions."""
    where, gathered = str(paths[0]), gather(paths, _of_captions(columns))
    _train(gathered, where)
    gathered.splits = {split: _merged(found) for split, found in gathered.splits.items()}
    return _with_val(gathered, share, where)


def read_asked(paths: Sequence[Path], columns: Columns, *, share: float) -> ImageCorpus:
    """Images with questions, from tables. The texts of an image are its questions, each with its answer after it."""
    where, gathered = str(paths[0]), gather(paths, _of_questions(columns))
    _train(gathered, where)
    gathered.splits = {split: _merged(found) for split, found in gathered.splits.items()}
    return _with_val(gathered, share, where)


def read_asked_tests(path: Path, columns: Columns) -> ImageCorpus:
    """Other questions to measure a model on."""
    found = _tests(path, gather([path], _of_questions(columns)), "a table of paths, questions and answers")
    return ImageCorpus({name: _merged(its) for name, its in found.splits.items()}, found.notes)


def read_tests(path: Path, columns: Columns, known: Collection[str]) -> ImageCorpus:
    """Other data to measure a run on: its tests, or else its val; without splits, all images."""
    found = _tests(path, gather([path], _of_labels(columns)), "a folder for each label")
    for its in found.splits.values():
        _refuse_unknown(its, known, "the model knows")
    return found


def read_captioned_tests(path: Path, columns: Columns) -> ImageCorpus:
    """Other data to measure a captioner on."""
    found = _tests(path, gather([path], _of_captions(columns)), "a table of paths and captions")
    return ImageCorpus({name: _merged(its) for name, its in found.splits.items()}, found.notes)


def _tests(path: Path, gathered: Gathered, expected: str) -> ImageCorpus:
    tests = [name for name in gathered.splits if name.startswith("test")] or [
        name for name in ("val", "train") if name in gathered.splits][:1]
    if not tests:
        raise UserError(f"{path}: no images to measure on; expected {expected}")
    named = {str(path) if len(tests) == 1 else f"{path} {name}": gathered.splits[name] for name in sorted(tests)}
    return ImageCorpus(named, tuple(gathered.notes))


def source_files(paths: Sequence[Path], columns: Columns) -> list[Path]:
    """All files that are read, in their order, for a digest of them."""
    tables = [path for path in paths if tables_of([path.name])]
    if tables:
        gathered = gather(paths, Gathered(lambda value, place: (), columns, (*LABELS, *CAPTIONS, *ANSWERS)))
        files = set(find_splits(tables)[0].values())
        every = {(found.tree, found.name) for its in gathered.splits.values() for found in its}
        return sorted(files | {Path(tree.place(name)) if isinstance(tree, Folder) else tree.path
                               for tree, name in every})
    files = set()
    for path in paths:
        if not is_directory(path):
            labels = idx_files([path.name]).values()
            files |= {path.parent / name for name in (path.name, *labels) if (path.parent / name).exists()}
        else:
            folder = Folder(path)
            idx = {name for both in idx_files(folder.names).items() for name in both}
            files |= {path / name for name in folder.names
                      if has_image_ending(name) or is_archive(name) or name in idx or tables_of([name])}
    return sorted(files)


def _of_labels(columns: Columns) -> Gathered:
    return Gathered(lambda value, place: labels_of(value, place, columns), columns, LABELS)


def _of_captions(columns: Columns) -> Gathered:
    return Gathered(_captions, columns, CAPTIONS)


def _of_questions(columns: Columns) -> Gathered:
    return Gathered(_question_and_answer, columns, ANSWERS, QUESTIONS)


def _question_and_answer(value: Any, place: str) -> tuple[str, ...]:
    question, answer = (str(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in value)
    for each, what in ((question, QUESTIONS[0]), (answer, ANSWERS[0])):
        if not isinstance(each, str):
            raise UserError(f"{place}: the {what} is {described(each)} instead of a text")
        if not each.strip():
            raise UserError(f"{place}: no {what}; add one, or delete the line")
    if question == answer:
        raise UserError(f"{place}: one text, {question!r}, for both; a line has a {QUESTIONS[0]} and an {ANSWERS[0]}")
    return " ".join(question.split()), " ".join(answer.split())


def _captions(value: Any, place: str) -> tuple[str, ...]:
    several = value if isinstance(value, list) else [value]
    for each in several:
        if not isinstance(each, str):
            raise UserError(f"{place}: the caption is {described(each)} instead of a text")
    texts = tuple(" ".join(each.split()) for each in several)
    if not texts or not all(texts):
        raise UserError(f"{place}: no caption; add one, or delete the line")
    return texts


def _merged(found: Sequence[Found]) -> list[Found]:
    """Each image once, with all its captions."""
    every: dict[tuple[int, str], Found] = {}
    for each in found:
        key = id(each.tree), each.name
        before = every.get(key)
        every[key] = each if before is None else Found(each.tree, each.name, before.texts + each.texts, before.place)
    return list(every.values())


# Checks, and the validation split.


def _train(gathered: Gathered, where: str) -> list[Found]:
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
    listed = ", ".join(f"{label} ({number:,})" for label, number in counts.most_common(MAX_TOLD_LABELS))
    yield f"{len(counts):,} labels, and the images of each: {listed}{' …' if len(counts) > MAX_TOLD_LABELS else ''}"


def _with_val(gathered: Gathered, share: float, where: str) -> ImageCorpus:
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
