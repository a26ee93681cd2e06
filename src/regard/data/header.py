"""Find the columns of a table, or the keys of JSON, of the two sides; and detect a header line.

A header line must not become an example, and an example must not be dropped silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from regard.data.languages import language
from regard.settings.errors import UserError

__all__ = ["Header", "keys", "may_name_labels", "pair_header"]

Sides = tuple[str | None, str | None]

USUAL = ("source", "target")
# Words that are hardly ever a whole text, and words that sometimes are.
PLAIN = {"source", "target", "src", "tgt", "trg", "input", "output", "text", "label"}
DOUBTFUL = {"question", "answer", "prompt", "response", "completion", "original", "translation", "sentence", "summary",
            "article", "sentence1", "sentence2"}
OF_TEXTS = {"text", "texts", "sentence", "review", "comment", "document", "question", "title", "tweet", "message",
            "content", "body", "utterance", "source", "input"}
OF_LABELS = {"label", "labels", "class", "category", "sentiment", "topic", "intent", "tag", "tags", "emotion", "target",
             "output"}
SHORTEST_NAME = 4  # letters: shorter ones are codes such as "es" and "it", which are also words
MAX_SHOWN_COLUMNS = 12  # columns listed in a message, at most


@dataclass(frozen=True)
class Header:
    """The columns to read."""

    source: int
    target: int
    names: tuple[str, str] | None
    """Their names in the first line; None: that line is an example like the others."""
    width: int
    """Number of columns in every line."""
    note: str | None = None
    """A note for the user about the first line."""


def pair_header(cells: Sequence[str], place: str, *, named: Sides, own: tuple[str, str]) -> Header:
    """The columns of source and target, given the first line.

    `named` are the columns that the user has asked for: they must be there. `own` are names that may be there.
    """
    there = [cell.strip() for cell in cells]
    if named != (None, None):
        source, target = (_column(name, option, there, place)
                          for name, option in zip(named, ("--source", "--target"), strict=True))
        if source is None or target is None:
            known = source if target is None else target
            assert known is not None
            other = _other(there, known, own[1] if target is None else own[0], place,
                           "--target" if target is None else "--source")
            source, target = (known, other) if target is None else (other, known)
        return Header(source, target, (there[source], there[target]), len(there))
    for names in (own, USUAL):
        if all(there.count(name) == 1 for name in names):
            source, target = map(there.index, names)
            return Header(source, target, names, len(there), _taken(place, names))
    if len(there) == 2 and _is_header(there):
        return Header(0, 1, (there[0], there[1]), 2, _taken(place, there))
    if len(there) == 2 and _may_be_header(there):
        return Header(0, 1, None, 2, f"{place}: {there[0]!r}, {there[1]!r} is read as an example; if it names the "
                      f"columns, add --source {there[0]} --target {there[1]}")
    return Header(0, 1, None, 2)


def keys(there: Sequence[str], *, named: Sides, own: tuple[str, str]) -> tuple[str, str]:
    """The keys of source and target, given those of the first object; of two keys, one determines the other."""
    found = [name or next((key for key in (ours, usual) if key in there), ours)
             for name, ours, usual in zip(named, own, USUAL, strict=True)]
    for place, name in enumerate(named):
        other = named[1 - place]
        if name is None and other in there and found[place] not in there and len(there) == 2:
            found[place] = next(key for key in there if key != other)
    return found[0], found[1]


def may_name_labels(cells: Sequence[str]) -> bool:
    """Whether a text and its label could be the names of their columns.

    >>> may_name_labels(["review", "Sentiment"]), may_name_labels(["a fine review", "sentiment"])
    (True, False)
    """
    text, label = (cell.strip().casefold() for cell in cells)
    return text in OF_TEXTS and label in OF_LABELS and text != label


def _column(name: str | None, option: str, there: Sequence[str], place: str) -> int | None:
    if name is None:
        return None
    if there.count(name) == 1:
        return there.index(name)
    listed = ", ".join(map(repr, there[:MAX_SHOWN_COLUMNS])) + " …" * (len(there) > MAX_SHOWN_COLUMNS)
    if name in there:
        raise UserError(f"{place}: {option} {name}: several columns have this name; the first line has {listed}")
    near = get_close_matches(name.casefold(), [cell.casefold() for cell in there], n=1)
    hint = next((f"; did you mean {cell!r}?" for cell in there if near and cell.casefold() == near[0]),
                "; if that line is an example, leave --source and --target out: the source is the first column")
    raise UserError(f"{place}: {option} {name}: no such column; the first line has {listed}{hint}")


def _other(there: Sequence[str], known: int, usual: str, place: str, option: str) -> int:
    """The column of the other side."""
    if len(there) == 2:
        return 1 - known
    if there.count(usual) == 1 and there.index(usual) != known:
        return there.index(usual)
    raise UserError(f"{place}: the first line has {', '.join(map(repr, there[:MAX_SHOWN_COLUMNS]))}; say which "
                    f"column is the {option.removeprefix('--')} with {option}")


def _is_header(there: Sequence[str]) -> bool:
    """Whether the line is two plain column names, or the names of two languages, which do not translate each other."""
    first, second = (cell.casefold() for cell in there)
    if first in PLAIN and second in PLAIN:
        return first != second
    languages = [language(cell) for cell in there if len(cell) >= SHORTEST_NAME]
    return len(languages) == 2 and None not in languages and languages[0] != languages[1]


def _may_be_header(there: Sequence[str]) -> bool:
    return all(cell.casefold() in PLAIN | DOUBTFUL or language(cell) is not None for cell in there) \
        and there[0].casefold() != there[1].casefold() and not _same_language(there)


def _same_language(there: Sequence[str]) -> bool:
    """As in a dictionary: German, Deutsch."""
    first, second = map(language, there)
    return first is not None and first == second


def _taken(place: str, names: Sequence[str]) -> str:
    return (f"{place}: {names[0]!r}, {names[1]!r} is read as a header, not as an example; if it is an example, put the "
            "line source, a tab, target above it")
