"""`regard predict`: answers, one line for each input."""

import json as jsons
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.load import load as load_settings
from regard.verbs.runs import chosen

__all__ = ["main"]


def main(inputs: Sequence[str], run: Path | None, overrides: Sequence[str], device: str, json: bool) -> None:
    from regard.data.lines import read_lines
    from regard.tasks.predictor import load

    folder = chosen(run)
    for text in overrides:
        if not text.startswith("search."):
            raise UserError(f"{text}: only settings of the search, such as search.beam=1, can change after training")
    predictor = load(folder, device=device)
    search = asdict(load_settings(None, overrides, base=predictor.run).search)
    lines: Iterable[str] = inputs or read_lines(sys.stdin.buffer, "stdin")
    # A person who types wants each answer at once; a file is worked off in batches.
    for some in _batched(lines, 1 if sys.stdin.isatty() and not inputs else predictor.run.search.batch * 8):
        for text, answer in zip(some, predictor.answers(some, **search), strict=True):
            if json:
                print(jsons.dumps({"input": text, **asdict(answer)}, ensure_ascii=False))
            else:
                print("\t".join([answer.text, *(other.text for other in answer.others)]), flush=sys.stdin.isatty())
    sys.stdout.flush()


def _batched(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while some := list(islice(iterator, size)):
        yield some
