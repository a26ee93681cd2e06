"""`regard settings`: every knob there is."""

import json
import shutil
import textwrap

from regard.settings.knobs import describe

__all__ = ["main"]


def main(as_json: bool) -> None:
    if as_json:
        about = {path: {"type": kind, "default": default, "doc": doc} for path, kind, default, doc in describe()}
        print(json.dumps(about, indent=1, ensure_ascii=False))
        return
    width = max(60, shutil.get_terminal_size().columns)
    for path, kind, default, doc in describe():
        print(f"{path} = {default}")
        print(textwrap.fill(f"{doc} ({kind})", width, initial_indent="    ", subsequent_indent="    "))
