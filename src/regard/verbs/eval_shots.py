"""`regard eval --shots`: the accuracy of a language model on labelled texts, against the examples in its prompt."""

import json as jsons
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from regard.settings.errors import UserError, count
from regard.stdio import print_message, print_result
from regard.verbs.runs import chosen, prepare_to_draw

if TYPE_CHECKING:  # torch takes seconds to import: report errors in the options first
    from regard.data.few_shot import Shots
    from regard.data.text.parallel_files import Pair

__all__ = ["counts", "main"]

MOST_LABELS = 100  # more are no labels: each is read after each text


def main(shots: str, data: Path | None, source: str | None, target: str | None, run: Path | None, limit: int | None,
         seed: int, plot: Path | None, device: str, precision: str, quantize: str | None, json: bool, *,
         verify: bool = True) -> None:
    wanted = counts(shots)
    if data is None:
        raise UserError("--shots: needs labelled texts, as in --data texts.tsv (text, tab, label)")
    folder = chosen(run)
    if plot is not None:
        prepare_to_draw(plot)
    questions, pool = _read(data, source, target)
    if not questions or not pool:
        raise UserError(f"{data}: all its texts are empty")
    others = len(pool) - (questions is pool)
    if (most := max(wanted)) > others:
        raise UserError(f"--shots {most}: {data} has examples for at most {others:,}")
    questions = questions[:limit]

    from regard.data.few_shot import labels, with_shots
    from regard.predictor import load

    names = labels([*pool, *questions])
    if not 1 < len(names) <= MOST_LABELS:
        there = count(len(names), "different label")
        raise UserError(f"{data}: {there}; there must be from 2 to {MOST_LABELS}")
    predictor = load(folder, device=device, precision=precision, quantize=quantize, verify=verify)
    texts = count(len(questions), "text")
    print_message(f"{folder} predicts the labels of {texts}: {', '.join(names[:12])}")
    found = []
    for number in wanted:
        found.append(with_shots(predictor.compare, questions, pool, shots=number, names=names, seed=seed))
        if not json:
            print_result(_row(found[-1], first=len(found) == 1), flush=True)
    for note in predictor.task.notes.take():
        print_message(f"note: {note}")
    most_common = max(sum(pair.target == name for pair in questions) for name in names) / len(questions)
    if json:
        print_result(jsons.dumps({
            "run": str(folder), "data": str(data), "labels": names, "most_common": most_common, "seed": seed,
            "shots": [{**asdict(each), "accuracy": each.accuracy, "error": each.error} for each in found],
        }, ensure_ascii=False))
    else:
        print_result(f"always the most frequent label: {most_common:.3f}")
    if plot is not None:
        from regard.look.heatmap import save
        from regard.look.plots.charts import by_shots

        save(by_shots(found, most_common, title=f"{folder.name} on {data.name}"), plot)
        print_message(f"drawn: {plot}")


def counts(text: str) -> list[int]:
    """
    >>> counts("8,0,1"), counts("4")
    ([0, 1, 8], [4])
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise UserError(f"--shots {text}: must be numbers of examples, as in 0,1,4,8")
    return sorted(set(map(int, parts)))


def _read(data: Path, source: str | None, target: str | None) -> "tuple[Sequence[Pair], Sequence[Pair]]":
    """The texts to classify and the examples to show. If one file holds both, a text never sees itself."""
    from regard.data.labelled import Columns, read_file
    from regard.data.splits import find_splits
    from regard.data.text.parallel_files import Pair

    columns = Columns(source, target)
    splits = {split: [Pair(sample.text, *sample.labels) for sample in read_file(path, columns).samples
                      if sample.text.strip()] for split, path in find_splits([data])[0].items()}
    if set(splits) == {"train"}:
        return splits["train"], splits["train"]
    asked = next((split for split in splits if split.startswith("test")), "val")
    return splits[asked], splits["train"]


def _row(found: "Shots", *, first: bool) -> str:
    head = f"{'shots':>5}  {'accuracy':>8}  {'± error':>7}  {'right':>6}\n" if first else ""
    return f"{head}{found.shots:>5}  {found.accuracy:>8.3f}  {found.error:>7.3f}  {found.right:>6,}"
