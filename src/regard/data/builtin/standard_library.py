"""The source of the running Python's own standard library: the language model's built-in data."""

import hashlib
import os
from pathlib import Path

from regard.settings.errors import UserError

__all__ = ["files"]

# Tests, which are other people's text in many languages and encodings, and what was installed later.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def files(count: int) -> list[Path]:
    """At most so many of its files, in an order that looks random and is the same everywhere."""
    root = Path(os.__file__).parent
    found = [file for file in root.rglob("*.py") if not LEFT_OUT.intersection(file.relative_to(root).parts)]
    if not found:
        raise UserError(f"{root}: this Python has come without its source; name your own text with --data")
    names = {file: file.relative_to(root).as_posix() for file in found}
    return sorted(found, key=lambda file: hashlib.blake2b(names[file].encode()).digest())[:count]
