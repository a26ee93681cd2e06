"""`regard look`: what a model attends to while it answers, as one page."""

import json as jsons
import os
import sys
import webbrowser
from pathlib import Path

from regard.settings.errors import UserError
from regard.verbs.runs import chosen

__all__ = ["main"]


def main(text: str, run: Path | None, output: str | None, only: str, out: Path, show: bool, device: str,
         json: bool) -> None:
    folder = chosen(run)
    if not text.strip():
        raise UserError("the text is empty: there is nothing to look at")
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"{out}: {'a folder, where a file is wanted' if out.is_dir() else 'no such folder'}")

    from regard.look.explain import catch_all
    from regard.look.page import page
    from regard.look.vectors import vectors
    from regard.tasks.predictor import load

    predictor = load(folder, device=device)
    said = len(predictor.task.notes)
    told = predictor.choices(text, output)
    # An answer is found step by step; the newest call of each is that of the one watched pass over all of it.
    with catch_all(predictor.model, only) as caught:
        record = predictor.look(text, output, only=only)
    made = page(record, source=text, output=told, vectors=vectors(caught, record),
                about=f"{folder.resolve().name}: answered at full speed, then one watched pass over the answer")
    _write(out, made.html)
    for note in (*dict.fromkeys(predictor.task.notes[said:]), *(f"left out: {part}" for part in made.left_out)):
        print(f"note: {note}", file=sys.stderr)
    if json:
        print(jsons.dumps({"page": str(out), "input": text, "output": told.text, "bytes": out.stat().st_size,
                           "left_out": made.left_out}, ensure_ascii=False))
    else:
        print(out)
    if show and not json and _has_screen():
        webbrowser.open(out.resolve().as_uri())


def _write(path: Path, html: str) -> None:
    """Whole or not at all: a page that is open in a browser may be loaded again at any moment."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(html, encoding="utf-8", newline="\n")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
