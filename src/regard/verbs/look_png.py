"""`regard look --out FILE.png`: maps over a picture as one picture. `regard look --filters`: what a model looks for."""

import json as jsons
from pathlib import Path
from typing import Any

from regard.settings.errors import UserError
from regard.stdio import print_message, print_result
from regard.verbs.look import write
from regard.verbs.runs import chosen

__all__ = ["filters", "maps"]

PNG = ".png"


def maps(argument: str, run: Path | None, output: str | None, only: str, out: Path, device: str, json: bool, *,
         head: int | None = None, verify: bool = True) -> None:
    """A map over the picture for each word of the answer, by one attention."""
    file, folder = _file(out), chosen(run)

    from regard.look.picture_maps import png, sheet, word_maps
    from regard.look.terminal import default_site
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    given = predictor.task.inputs.parse(argument, origin="INPUT")
    record = predictor.look(given, output, only=only, heads=None if head is None else [head])
    site = default_site(record)
    found = word_maps(record, site, head=head)
    write(file, png(sheet(found)))
    for note in predictor.task.notes.take():
        print_message(f"note: {note}")
    _print(file, json, {"input": predictor.task.inputs.show(given), "site": site, "words": list(found)})


def filters(run: Path | None, out: Path | None, device: str, json: bool, *, verify: bool = True) -> None:
    """The principal components of the matrix that reads patches, as colours."""
    file, folder = _file(out or Path("filters.png")), chosen(run)

    from regard.look.filters import components, drawn
    from regard.look.filters import filters as of_model
    from regard.look.picture_maps import png
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    first, shares = components(of_model(predictor.model, predictor.run))
    write(file, png(drawn(first)))
    print_message(f"the first {len(first)} components explain {sum(shares.tolist()):.0%} of the variance")
    _print(file, json, {"shares": shares.tolist()})


def _file(out: Path) -> Path:
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"--out {out}: {'a folder, not a file' if out.is_dir() else 'no such folder'}")
    if out.suffix.lower() != PNG:
        raise UserError(f"--out {out}: a picture is a PNG; name it {out.with_suffix(PNG)}")
    return out


def _print(file: Path, json: bool, about: dict[str, Any]) -> None:
    print_result(jsons.dumps({"picture": str(file), **about}, ensure_ascii=False) if json else file)
