"""`regard wrong`: a page of the worst mistakes, each with its attention, if it has any, beside it."""

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import out_of
from regard.settings.opening import replacing
from regard.stdio import print_message, print_result
from regard.verbs.runs import chosen, page_file

if TYPE_CHECKING:
    from regard.look.gallery import Mistake

__all__ = ["main"]


def main(run: Path | None, split: str, limit: int | None, worst: int, out: Path | None, device: str,
         json: bool, *, verify: bool = True) -> None:
    if out is not None:
        page_file(out)
    folder = chosen(run)

    from regard.look.gallery import page
    from regard.mistakes import mistakes
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    predictor.read_data()
    found = mistakes(predictor.task, predictor.model, split, limit=limit, worst=worst)
    summary = out_of(found.wrong, found.examples, "answer", f"of {split} is not its reference",
                     f"of {split} are not their reference")
    if found.wrong > len(found.worst):
        summary += f"; the {len(found.worst):,} with the highest loss are here"
    file = out or folder / f"wrong-{split}.html"
    name = folder.resolve().name
    html = page(found.worst, title=f"The worst mistakes of {name}", summary=summary)
    if out is None:
        with replacing(file) as new:
            new.write(html.encode())
    else:
        out.write_text(html, encoding="utf-8")
    print_message(summary)
    print_result(jsons.dumps({"run": str(folder), "split": split, "page": str(file), "examples": found.examples,
                              "wrong": found.wrong, "worst": [_record(each) for each in found.worst]},
                             ensure_ascii=False) if json else file)


def _record(mistake: "Mistake") -> dict[str, Any]:
    return {name: getattr(mistake, name) for name in ("source", "reference", "answer", "loss", "length", "spread")}
