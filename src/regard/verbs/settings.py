"""`regard settings`: every setting there is, or those whose names hold a word."""

import json
import shutil
import textwrap

from regard.settings.errors import UserError
from regard.settings.near import nearest
from regard.settings.setting import ascii_unless_printable, describe
from regard.stdio import print_result

__all__ = ["main"]

OF_WHAT = ("# Defaults of a translator on your own files. Other tasks, presets and the built-in data have others; "
           "the settings of a run are in its run.json.")


def main(word: str | None, as_json: bool) -> None:
    found = [about for about in describe() if word is None or word.lower() in about[0]]
    if word is not None and not found:
        raise _not_found(word)
    if as_json:
        listed = {path: {"type": kind, "default": default, "doc": doc} for path, kind, default, doc in found}
        print_result(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    width = max(60, shutil.get_terminal_size().columns)
    print_result(OF_WHAT)
    for path, kind, default, doc in found:
        print_result(f"{path} = {default}")
        print_result(textwrap.fill(f"{doc} ({kind})", width, initial_indent="    ", subsequent_indent="    "))


def _not_found(word: str) -> UserError:
    near = nearest(word[:80])
    hint = f"did you mean {' or '.join(near)}?" if near else "`regard settings` lists them all"
    return UserError(f"{ascii_unless_printable(word[:80])}: in the name of no setting; {hint}")
