"""Files of tagged words: CoNLL-U, and the simpler column formats before it.

CoNLL-U (universaldependencies.org/format.html) has ten columns with tabs between them, comments after `#`, and a blank
line after each sentence. A range such as `3-4` stands before the words that a written one is made of, and an empty node
such as `5.1` for an omitted word: both are skipped, and the words themselves are kept.

Other files have a word and at the end of its line its tag, with spaces or a tab between them; `-DOCSTART-` is no word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from regard.data.layout import is_directory, kind
from regard.data.lines import read_lines
from regard.data.splits import SPLIT_NAME, find_splits
from regard.settings.errors import UserError, out_of

__all__ = ["Tagged", "Treebank", "find_treebank", "read_sentences", "read_treebank"]

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
TAGS = COLUMNS[2:]
NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")  # the ids of ranges and of empty nodes
FIRST = re.compile(r"\d+([-.]\d+)?(\t[^\t]*){9}")  # line of CoNLL-U
ENDINGS = ("conllu", "conll", "tsv", "txt")  # of a folder's files, the first that there is a split of
BETWEEN = re.compile(r"[ \t]+")
NEW_DOCUMENT = "-DOCSTART-"
NO_BREAK = "\u00a0"  # the space inside a word: those between words are plain ones


class Tagged(NamedTuple):
    """A sentence: its words, and the tag of each. A space inside a word or tag is replaced by a no-break space."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Treebank:
    """Splits by name (`train`, `val`, and every `test…` under its own name), and notes for the user."""

    splits: Mapping[str, Sequence[Tagged]]
    notes: tuple[str, ...]


def read_treebank(paths: Sequence[Path], *, column: str | None = None, held_out: float = 0.1) -> Treebank:
    """The sentences of each split, as `find_treebank` finds them.

    Without a `val`, a share of train, its end, is held out.
    `column` is a name of CoNLL-U's, upos if not given; or in other files a number, the last column if not given.
    """
    files, beside = find_treebank(paths)
    notes = [*beside]
    splits: dict[str, Sequence[Tagged]] = {split: read_sentences(file, column) for split, file in files.items()}
    if "val" not in splits:
        train = splits["train"]
        if len(train) < 2:
            raise UserError(f"{files['train']}: only one sentence; at least two are needed, one to train on and one to "
                            "measure on")
        count = min(max(round(len(train) * held_out), 1), len(train) - 1)
        splits = {"train": train[:-count], "val": train[-count:], **{s: splits[s] for s in splits if s != "train"}}
        last = "sentence" if count == 1 else f"{count:,} sentences"
        notes.append(f"no val split: the last {last} of train held out as val")
    return Treebank(splits, (*notes, *_shared(splits)))


# Which file is which split


def find_treebank(paths: Sequence[Path]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """The file of each split, train first, and notes about files that the user did not name.

    Like `find_splits`; but in a folder, a treebank may have its plain text in files of the same name.
    """
    if len(paths) == 1 and is_directory(paths[0]):
        return find_splits(_in_folder(paths[0]))
    return find_splits(paths)


def _in_folder(folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and SPLIT_NAME.search(path.name))
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}") from None
    by_ending = ([file for file in files if kind(file) == ending] for ending in ENDINGS)
    found = next((some for some in by_ending if some), [])
    if not any("train" in file.name for file in found):
        there = ", ".join(file.name for file in found) or "no split"
        raise UserError(f"{folder}: no split to train on; wanted a file such as train.conllu; found {there}")
    return found


# The content of a file


class Line(NamedTuple):
    place: str
    text: str


def read_sentences(file: Path, column: str | None = None) -> list[Tagged]:
    """All of one file."""
    lines = [Line(f"{file}:{number}", text) for number, text in enumerate(read_lines(file, str(file)), 1)]
    if not lines:
        raise UserError(f"{file}: the file is empty")
    first = next((line for line in lines if line.text.strip() and not line.text.startswith("#")), None)
    if first is None:
        raise UserError(f"{file}: no word in it, only blank lines and comments ({len(lines):,} of them)")
    # A word may be a number: without the name, only all ten columns tell that it is an id.
    is_conllu = kind(file) == "conllu" or FIRST.fullmatch(first.text) is not None
    words = _of_conllu(lines, column) if is_conllu else _of_columns(lines, column)
    found = list(_grouped(words))
    if not found:
        raise UserError(f"{file}: no sentence in it")
    return found


Word = tuple[str, str] | None  # a word and its tag; None: a sentence ends


def _grouped(words: Iterable[Word]) -> Iterator[Tagged]:
    pairs: list[tuple[str, str]] = []
    for word in (*words, None):
        if word is not None:
            pairs.append((word[0].replace(" ", NO_BREAK), word[1].replace(" ", NO_BREAK)))
        elif pairs:
            yield Tagged(*zip(*pairs, strict=True))
            pairs = []


def _of_conllu(lines: Iterable[Line], column: str | None) -> Iterator[Word]:
    name = (column or "upos").lower()
    if name not in TAGS:
        near = get_close_matches(name, TAGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TAGS)}"
        raise UserError(f"--target {column}: no such column of CoNLL-U; {hint}")
    tag, last = COLUMNS.index(name), 0
    for place, line in lines:
        if not line.strip():
            yield None
            last = 0
        elif not line.startswith("#"):
            cells = line.split("\t")
            if len(cells) != len(COLUMNS):
                raise UserError(f"{place}: {_counted(cells)}, where CoNLL-U has ten with tabs between them")
            if NOT_A_WORD.fullmatch(cells[0]):
                continue
            if cells[0] != str(last + 1):
                raise UserError(f"{place}: the word's id is {cells[0]!r} instead of {last + 1}; a blank line "
                                "goes between two sentences")
            last += 1
            yield _checked(cells[1].strip(" "), cells[tag].strip(" "), place)


def _of_columns(lines: Iterable[Line], column: str | None) -> Iterator[Word]:
    if column is not None and not re.fullmatch("[0-9]{1,3}", column):
        raise UserError(f"--target {column}: the columns of such a file have no names; give a number, as in --target 2")
    width = None
    for place, line in lines:
        if not line.strip():
            yield None
        elif not line.startswith(NEW_DOCUMENT):
            cells = line.split("\t") if "\t" in line else BETWEEN.split(line.strip(" "))
            width = width or len(cells)
            if len(cells) < 2 or len(cells) != width:
                wanted = f"{width}, as above," if width > 1 else "two"
                raise UserError(f"{place}: {_counted(cells)} instead of {wanted}: a word, a tab or spaces, its "
                                "tag; a blank line goes between two sentences")
            if column is not None and not 2 <= int(column) <= width:
                raise UserError(f"--target {column}: {place} has the columns 1, the word, to {width}")
            yield _checked(cells[0].strip(" "), cells[int(column or width) - 1].strip(" "), place)


def _checked(word: str, tag: str, place: str) -> tuple[str, str]:
    if not word or not tag:
        raise UserError(f"{place}: {'the tag' if word else 'the word'} is missing: its column is empty")
    return word, tag


def _counted(cells: Sequence[str]) -> str:
    return "one column" if len(cells) == 1 else f"{len(cells)} columns"


def _shared(splits: Mapping[str, Sequence[Tagged]]) -> Iterator[str]:
    train = {sentence.words for sentence in splits["train"]}
    for split, sentences in splits.items():
        shared = sum(sentence.words in train for sentence in sentences)
        if shared and split != "train":
            some, stand = out_of(shared, len(sentences), "sentence"), "stands" if shared == 1 else "stand"
            yield f"{some} of {split} also {stand} in train"
