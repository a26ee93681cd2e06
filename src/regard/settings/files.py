"""TOML and JSON files, read strictly. Errors name the file, the line and the column."""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.settings.errors import UserError
from regard.settings.opening import to_read
from regard.settings.setting import ascii_unless_printable

__all__ = ["once_each", "parsed"]

LARGEST_FILE = 1 << 20  # bytes; so that a corpus given as a recipe fails at once, and so does /dev/zero


def parsed(path: Path) -> Any:
    """The content of a TOML or JSON file, or an error with the line and column."""
    text = content_of(path)
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=once_each)
        return tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {toml_place(str(error), text)}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise UserError(f"{path}: {error}") from None


def content_of(path: Path) -> str:
    try:
        with open(path, "rb", opener=to_read) as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory, not a .toml file or the run.json of a run") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path}: is larger than {LARGEST_FILE:,} bytes; is it a recipe?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise UserError(f"{path}: is not UTF-8: byte 0x{byte:02x} at offset {error.start}") from None


def toml_place(message: str, text: str) -> str:
    """tomllib's message with the place in front. At the end of the file tomllib gives no line number; this adds it."""
    what, _, where = message.rpartition(" (at ")
    if where == "end of document)":
        lines = text.split("\n")
        where = f"line {len(lines)}, column {len(lines[-1]) + 1})"
    return f"{where[:-1]}: {what}"


def once_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of the pairs. JSON lets a key come twice, and TOML a quoted "model.width" beside [model]."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise UserError(f"{ascii_unless_printable(key[:80])}: is given twice")
        content[key] = value
    return content
