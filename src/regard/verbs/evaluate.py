"""`regard eval`: how good a trained model is."""

import json as jsons
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.settings.errors import NotFinite
from regard.verbs.runs import chosen

__all__ = ["main", "table"]


def main(run: Path | None, splits: Sequence[str], limit: int | None, device: str, precision: str,
         quantize: str | None, json: bool) -> None:
    folder = chosen(run)  # a wrong one is refused at once: importing torch takes seconds

    from regard.tasks.predictor import load

    predictor = load(folder, device=device, precision=precision)
    print(f"evaluating {folder}", file=sys.stderr)
    predictor.read_data()  # before that, a run that has come without it does not know its tests
    wanted = splits or [s for s in predictor.task.splits() if s.startswith("test")] or ["val"]
    scores = {split: predictor.evaluate(split, limit=limit) for split in wanted}
    losses = {split: scores[split].get("loss") for split in wanted}
    if wrong := [split for split, loss in losses.items() if isinstance(loss, float) and math.isnan(loss)]:
        raise NotFinite(f"{folder}: its loss on {wrong[0]} is not a number: its training went wrong")
    first = scores[wanted[0]]
    if quantize is not None:  # what it costs is seen beside what there was
        narrow = load(folder, device=device, precision=precision, quantize=quantize)
        scores |= {f"{split} {quantize}": narrow.evaluate(split, limit=limit) for split in wanted}
        first = {**scores[f"{wanted[0]} {quantize}"], "quantize": quantize}
    if json:
        print(jsons.dumps({"run": str(folder), "split": wanted[0], **first, "splits": scores}, ensure_ascii=False))
    else:
        print(table(scores))
        if quantize is not None:
            print(*_costs(scores, wanted, quantize), sep="\n")


def _costs(scores: Mapping[str, Mapping[str, Any]], splits: Sequence[str], quantize: str) -> Iterator[str]:
    """By how much narrower weights worsen each split, where there is one figure that says it."""
    for split in splits:
        before, after = scores[split], scores[f"{split} {quantize}"]
        if "perplexity" in before:
            change = 100 * (after["perplexity"] / before["perplexity"] - 1)
            yield f"{split}: {quantize} changes the perplexity by {change:+.2f} %"


def table(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each split; then whole tables; then the signatures, which make the figures citable."""
    first = next(iter(scores.values()))
    numbers = [name for name, value in first.items() if isinstance(value, int | float)]
    width = max(len("split"), *map(len, scores))
    lines = ["  ".join([f"{'split':<{width}}", *(f"{name:>{max(9, len(name))}}" for name in numbers)])]
    for split, values in scores.items():
        cells = [f"{_figure(values[name]):>{max(9, len(name))}}" for name in numbers]
        lines.append("  ".join([f"{split:<{width}}", *cells]))
    texts = {name: value for values in scores.values() for name, value in values.items() if isinstance(value, str)}
    lines += [line for name in first if isinstance(first[name], dict)
              for line in _across({split: values[name] for split, values in scores.items()}, name.replace("_", " "))]
    return "\n".join([*lines, *(f"{name.replace('_', ' ')}: {value}" for name, value in texts.items())])


def _across(tables: Mapping[str, Mapping[str, float]], title: str) -> list[str]:
    """A line for each thing that some split has, and a column for each split.

    >>> print(*_across({"val": {"NOUN": 97.5, "VERB": 95.0}, "test": {"NOUN": 100.0}}, "accuracy per tag"), sep="\\n")
    <BLANKLINE>
    accuracy per tag        val       test
    NOUN                  97.50     100.00
    VERB                  95.00
    """
    names = sorted({name for table in tables.values() for name in table})
    width = max(map(len, [title, *names]))
    lines = ["", "  ".join([f"{title:<{width}}", *(f"{split:>9}" for split in tables)])]
    for name in names:
        cells = [f"{_figure(table[name]) if name in table else '':>{max(9, len(split))}}"
                 for split, table in tables.items()]
        lines.append("  ".join([f"{name:<{width}}", *cells]).rstrip())
    return lines


def _figure(value: float) -> str:
    """
    >>> [_figure(value) for value in (1_000, 41.0249, 1.46973)]
    ['1,000', '41.02', '1.4697']
    """
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4f}"  # a loss is told apart by its third digit
