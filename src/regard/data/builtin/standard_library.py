"""The source of the running Python's standard library: the language model's built-in data."""

import hashlib
import os
from pathlib import Path

from regard.settings.errors import UserError

__all__ = ["files"]

# Tests, which are other people's text in many languages and encodings; tables of characters, each nearly a copy of the
# next, so that a held-out one would be known already; and what was installed later.
LEFT_OUT = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages", "__pycache__"}


def files(count: int) -> list[Path]:
    """At most `count` of its files, in a pseudo-random order that is the same everywhere."""
    root, found = Path(os.__file__).parent, list[Path]()
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        sources = (Path(place, name) for name in names if name.endswith(".py"))
        found += [file for file in sources if file.stat().st_size]  # an __init__.py may be empty
    if not found:
        raise UserError(f"{root}: this Python was installed without its source; give your own text with --data")
    return sorted(found, key=lambda file: hashlib.blake2b(file.relative_to(root).as_posix().encode()).digest())[:count]
