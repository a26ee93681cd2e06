"""`regard look`: the attention of a model while it answers, as one page or in the terminal."""

import json as jsons
import os
import shutil
import sys
import webbrowser
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.opening import remove, to_write
from regard.stdio import print_drawing, print_message, print_result
from regard.verbs.runs import chosen, page_file

__all__ = ["main", "write"]


def main(argument: str, run: Path | None, output: str | None, only: str, out: Path | None, show: bool, device: str,
         json: bool, *, head: int | None = None, terminal: bool = False, verify: bool = True) -> None:
    file = page_file(out or Path("look.html"))
    folder = chosen(run)
    if not argument.strip():
        raise UserError("the input is empty: there is nothing to look at")
    if terminal:
        if unused := "--out" if out is not None else "--json" if json else None:
            raise UserError(f"{unused}: has no effect with --terminal, which only prints a heat map; remove it")
        _print(argument, folder, output, only, head, device, verify)
    else:
        _page(argument, folder, output, only, head, file, show, verify, device, json)


def _page(argument: str, folder: Path, output: str | None, only: str, head: int | None, out: Path, show: bool,
          verify: bool, device: str, json: bool) -> None:
    from regard.look.explain import catch_all
    from regard.look.page import page
    from regard.look.vectors import vectors
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    reader = predictor.task.inputs
    given = reader.parse(argument, origin="INPUT")
    shown = reader.show(given)
    told = predictor.choices(given, output)
    # An answer is found step by step; the newest call of each is that of the one watched pass over all of it.
    with catch_all(predictor.model, only) as caught:
        record = predictor.look(given, output, only=only, heads=None if head is None else [head])
    made = page(record, source=shown, output=told if told.choices else None, vectors=vectors(caught, record),
                about=f"{folder.resolve().name}: answered at full speed; the attention is recorded in one more pass")
    write(out, made.html.encode())
    for note in (*predictor.task.notes.take(), *(f"left out: {part}" for part in made.left_out)):
        print_message(f"note: {note}")
    if json:
        print_result(jsons.dumps({"page": str(out), "input": shown, "output": told.text, "bytes": out.stat().st_size,
                                  "left_out": made.left_out}, ensure_ascii=False))
    else:
        print_result(out)
    if show and not json and _has_screen():
        webbrowser.open(out.resolve().as_uri())


def _print(argument: str, folder: Path, output: str | None, only: str, head: int | None, device: str,
           verify: bool) -> None:
    """Heat maps in the terminal's width: of the selected attention, or of the most informative one."""
    from regard.look.terminal import default_site, draw
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    given = predictor.task.inputs.parse(argument, origin="INPUT")
    record = predictor.look(given, output, only=only, heads=None if head is None else [head])
    for note in predictor.task.notes.take():
        print_message(f"note: {note}")
    shown = record if head is not None else record.mean()
    width = shutil.get_terminal_size().columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for number, site in enumerate([default_site(shown)] if only == "*" else shown):
        several = len(record.heads[site]) > 1
        of_heads = f"mean of {len(record.heads[site])} heads" if head is None and several else f"head {head or 0}"
        print_result("\n" * (number > 0) + f"{site}, {of_heads}\n")
        print_drawing(draw(shown, site, shown.heads[site][0], width, colour=colour))


def write(path: Path, content: bytes) -> None:
    """Write a result atomically: a browser may reload it at any moment."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        remove(new)
        with open(new, "xb", opener=to_write) as file:
            file.write(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
