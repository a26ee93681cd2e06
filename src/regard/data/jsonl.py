"""Read texts from lines of JSON by their keys. Errors name the file and the line."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from regard.settings.errors import UserError

__all__ = ["described", "read_objects", "read_texts", "text_of", "value_of"]

MAX_SHOWN_KEYS = 12  # keys listed in a message, at most


def read_texts(lines: Iterable[str], keys: Sequence[str], name: str) -> Iterator[tuple[str, ...]]:
    """The texts under `keys`, in their order, of each line; a blank line gives blank texts.

    >>> list(read_texts(['{"en": "a dog", "de": "ein Hund", "id": 7}'], ("de", "en"), "dogs.jsonl"))
    [('ein Hund', 'a dog')]
    """
    for number, line in enumerate(lines, 1):
        place = f"{name}:{number}"
        record = _object(line, place) if line.strip() else dict.fromkeys(keys, "")
        yield tuple(text_of(record, key, place) for key in keys)


def read_objects(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object of each line that is not blank, after the line's number."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, _object(line, f"{name}:{number}")


class _Refused(Exception):
    """Valid for Python's reader, not for us."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _Refused(f"the key {twice!r} is there twice")
    return record


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not JSON")


def _number(digits: str) -> int | float:
    """Python refuses integers of more than 4,300 digits; as floats they only fail to be a text."""
    return int(digits) if len(digits) < 20 else float(digits)


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_number)
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: broken JSON at column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise UserError(f"{place}: nested too deeply; each line must be one flat object") from None
    except _Refused as error:
        raise UserError(f"{place}: {error}") from None
    if not isinstance(record, dict):
        raise UserError(f'{place}: {described(record)} instead of an object such as {{"source": …}}')
    return record


def value_of(record: dict[str, Any], key: str, place: str) -> Any:
    """The value of a key."""
    if key not in record:
        near = get_close_matches(key, record, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; name the keys with --source and --target"
        there = ", ".join(map(repr, list(record)[:MAX_SHOWN_KEYS])) or "none"
        raise UserError(f"{place}: no key {key!r}; the keys are {there}{hint}")
    return record[key]


def text_of(record: dict[str, Any], key: str, place: str) -> str:
    """The text of a key."""
    value = value_of(record, key, place)
    if not isinstance(value, str):
        raise UserError(f"{place}: {key!r} is {described(value)} instead of a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = ascii(value[error.start]).strip("'")
        raise UserError(f"{place}: {key!r} contains the lone surrogate {lone}, half a character") from None
    return value


def described(value: Any) -> str:
    """The kind of a value, for a message."""
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", int: "a number",
             float: "a number"}
    return names.get(type(value), "null")
