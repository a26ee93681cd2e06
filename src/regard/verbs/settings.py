"""`regard settings`: every knob there is, or those whose names hold a word."""

import json
import shutil
import textwrap

from regard.settings.knobs import describe
from regard.settings.near import unknown

__all__ = ["main"]


def main(word: str | None, as_json: bool) -> None:
    found = [about for about in describe() if word is None or word.lower() in about[0]]
    if word is not None and not found:
        raise unknown(word)
    if as_json:
        listed = {path: {"type": kind, "default": default, "doc": doc} for path, kind, default, doc in found}
        print(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    width = max(60, shutil.get_terminal_size().columns)
    for path, kind, default, doc in found:
        print(f"{path} = {default}")
        print(textwrap.fill(f"{doc} ({kind})", width, initial_indent="    ", subsequent_indent="    "))
