"""`regard predict`: answers, one line for each input."""

import json as jsons
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.load import load as load_settings
from regard.verbs.runs import chosen

__all__ = ["main"]


def main(inputs: Sequence[str], run: Path | None, overrides: Sequence[str], device: str, precision: str,
         json: bool) -> None:
    folder = chosen(run)
    load_settings(None, overrides)  # what is wrong in them is said before torch is imported, which takes seconds
    for text in overrides:
        if not text.startswith("search."):
            raise UserError(f"{text}: only settings of the search, such as search.beam=1, can change after training")

    from regard.data.lines import read_lines
    from regard.tasks.predictor import load

    predictor = load(folder, device=device, precision=precision)
    search = asdict(load_settings(None, overrides, base=predictor.run).search)
    lines: Iterable[str] = inputs or read_lines(sys.stdin.buffer, "stdin")
    # A person who types wants each answer at once; a file is worked off in batches.
    is_typed = not inputs and sys.stdin.isatty()
    said = len(predictor.task.notes)
    for some in _batched(lines, 1 if is_typed else search["batch"] * 8):
        for text, answer in zip(some, predictor.answers(some, **search), strict=True):
            if json:
                print(jsons.dumps({"input": text, **asdict(answer)}, ensure_ascii=False))
            else:
                texts = [_line(each.text) for each in (answer, *answer.others)]
                print("\t".join(texts), flush=is_typed)
        for note in predictor.task.notes[said:]:
            print(f"note: {note}", file=sys.stderr)
        said = len(predictor.task.notes)


def _line(text: str) -> str:
    """On one line and in one column, as the output is; --json gives the text as it is."""
    return re.sub(r"[\t\n\r]", " ", text)


def _batched(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while some := list(islice(iterator, size)):
        yield some
