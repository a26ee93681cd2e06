"""`regard eval`: measure a trained model on its own tests, on other data, and on perturbed texts."""

import json as jsons
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import NotFinite, UserError
from regard.settings.load import load as load_settings
from regard.stdio import print_message, print_result
from regard.tasks.traits import traits_of
from regard.verbs.runs import chosen, prepare_to_draw

if TYPE_CHECKING:  # torch takes seconds to import: report errors in the options first
    from regard.look.confusion import Confusion
    from regard.predictor import Predictor

__all__ = ["Others", "main", "table"]

RIGHT = ("accuracy", "exact_match", "bleu")  # the score whose drop is printed


@dataclass(frozen=True)
class Others:
    """Data to measure in addition to the run's own tests."""

    data: Sequence[Path] = ()
    source: str | None = None
    target: str | None = None
    shift: str = ""
    seed: int = 0


OWN_TESTS = Others()


def main(run: Path | None, splits: Sequence[str], limit: int | None, device: str, precision: str,
         quantize: str | None, json: bool, others: Others = OWN_TESTS, plot: Path | None = None, *,
         verify: bool = True) -> None:
    from regard.data.perturb import parse_names

    folder = chosen(run)
    # Errors first: importing torch takes seconds.
    if plot is not None:
        prepare_to_draw(plot)
    trained = load_settings(folder / "run.json")
    how = parse_names(others.shift, traits_of(trained.task).shifts(trained))

    from regard.predictor import load

    predictor = load(folder, device=device, precision=precision, verify=verify)
    print_message(f"evaluating {folder}")
    if splits or not others.data:  # what was trained elsewhere may have no data of its own, and be measured on others
        predictor.read_data()  # before that, it does not know its tests
    else:
        predictor.read_kept_data()  # which knows the languages of a translator
    predictor.task.notes.take()  # what its training has told
    against = _asked(predictor, splits, others, how)
    scores = {split: predictor.evaluate(split, limit=limit) for split in against}
    losses = {split: values.get("loss") for split, values in scores.items()}
    if wrong := next((split for split, loss in losses.items() if isinstance(loss, float) and math.isnan(loss)), None):
        raise NotFinite(f"{folder}: its loss on {wrong} is not finite; train it again with a lower "
                        "train.learning_rate")
    if len(scores) > 1 and (others.data or how):
        scores = _with_drops(scores, against)
    wanted, first = list(scores), next(iter(scores.values()))
    if quantize is not None:  # what it costs is seen beside what there was
        narrow = load(folder, device=device, precision=precision, quantize=quantize, verify=False)
        scores |= {f"{split} {quantize}": predictor.task.score(narrow.model, split, limit=limit) for split in wanted}
        first = {**scores[f"{wanted[0]} {quantize}"], "quantize": quantize}
    confusion = predictor.task.confusion(predictor.model, wanted[0], limit=limit) if json or plot else None
    for note in predictor.task.notes.take():
        print_message(f"note: {note}")
    if plot is not None:
        _draw(confusion, plot, title=f"{folder.resolve().name} on {wanted[0]}", task=predictor.run.task)
    if json:
        about = {} if confusion is None else {
            "confusion": {"labels": list(confusion.labels), "counts": confusion.counts.tolist()}}
        print_result(jsons.dumps({"run": str(folder), "split": wanted[0], **first, "splits": scores, **about},
                                 ensure_ascii=False))
    else:
        costs = [] if quantize is None else _costs(scores, wanted, quantize)
        print_result("\n".join([table(scores), *costs]))


def _asked(predictor: "Predictor", splits: Sequence[str], others: Others, shifts: Sequence[str]) -> dict[str, str]:
    """The splits to measure, each with its reference for the drop: the unshifted split, or else the first."""
    task = predictor.task
    first = [*splits]
    if not first and not others.data:
        first = [split for split in task.data.splits() if split.startswith("test")] or ["val"]
    more = task.data.add_test_data(others.data, source=others.source, target=others.target) if others.data else []
    if same := set(first).intersection(more):
        raise UserError(f"--data {min(same)}: has the name of the run's own split; give its whole path")
    every = [*first, *more]
    against = dict.fromkeys(every, every[0])
    return against | {task.data.shift(split, how, seed=others.seed): split for split in every for how in shifts}


def _with_drops(scores: Mapping[str, Mapping[str, Any]], against: Mapping[str, str]) -> dict[str, Any]:
    name = next((name for name in RIGHT if name in next(iter(scores.values()))), None)
    if name is None:
        return dict(scores)
    return {split: {**values, "drop": scores[against[split]][name] - values[name]} for split, values in scores.items()}


def _draw(confusion: "Confusion | None", file: Path, *, title: str, task: str) -> None:
    if confusion is None:
        raise UserError(f"--plot {file}: draws a confusion matrix, which needs one label per text; this is a run of "
                        f"{task}")
    from regard.look.heatmap import save
    from regard.look.plots.charts import taken_for

    save(taken_for(confusion, title=title), file)
    print_message(f"drawn: {file}")


def _costs(scores: Mapping[str, Mapping[str, Any]], splits: Sequence[str], quantize: str) -> Iterator[str]:
    """The loss in quality from quantization for each split, if there is one metric for it."""
    for split in splits:
        before, after = scores[split], scores[f"{split} {quantize}"]
        if "perplexity" in before:
            change = 100 * (after["perplexity"] / before["perplexity"] - 1)
            yield f"{split}: {quantize} changes the perplexity by {change:+.2f} %"
        for name in RIGHT:
            if name in before:
                yield f"{split}: {quantize} changes the {name.replace('_', ' ')} by {after[name] - before[name]:+.4f}"


def table(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each split; then tables; then the signatures, for citing the figures."""
    first = next(iter(scores.values()))
    numbers = list(dict.fromkeys(name for values in scores.values() for name, value in values.items()
                                 if isinstance(value, int | float)))
    width = max(len("split"), *map(len, scores))
    lines = ["  ".join([f"{'split':<{width}}", *(f"{name:>{max(9, len(name))}}" for name in numbers)])]
    for split, values in scores.items():
        cells = [f"{_figure(values[name]) if name in values else '':>{max(9, len(name))}}" for name in numbers]
        lines.append("  ".join([f"{split:<{width}}", *cells]).rstrip())
    texts = {name: value for values in scores.values() for name, value in values.items() if isinstance(value, str)}
    lines += [line for name in first if isinstance(first[name], dict)
              for line in _across({split: values[name] for split, values in scores.items()}, name.replace("_", " "))]
    return "\n".join([*lines, *(f"{name.replace('_', ' ')}: {value}" for name, value in texts.items())])


def _across(tables: Mapping[str, Mapping[str, float]], title: str) -> list[str]:
    """A line for each key of any split, and a column for each split.

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
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4f}"  # losses differ in their third digit
