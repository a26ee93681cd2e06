"""A message is known by what it names (the setting or file, the value, the way out), not by its wording."""

import re


def says(message: str, parts: str) -> bool:
    """Whether a message begins with the first of the parts and has the others after it; … stands between parts.

    >>> says("model.width: must be a whole number, got 'abc'", "model.width: … whole number … 'abc'")
    True
    """
    return re.match(r".*?".join(re.escape(part.strip()) for part in parts.split("…")), message, re.DOTALL) is not None
