"""`regard measure`: metrics of every head of a run, the effect of removing it, and their course over training."""

import json as jsons
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.settings.errors import UserError, count
from regard.stdio import console, is_terminal, print_message, print_result
from regard.verbs.runs import chosen, prepare_to_draw

if TYPE_CHECKING:  # torch takes seconds to import: report errors in the options first
    from regard.data.dataset import Example, Links, Regions
    from regard.look.alignment import HeadOfSite
    from regard.look.record import Record
    from regard.predictor import Predictor

__all__ = ["Best", "ablation", "main", "measured", "over_training"]

Columns = dict[str, float]
"""The metrics of a head, by name."""

NAMES = ("entropy", "distance", "first", "aer", "aer_mutual", "pointing", "loss", "changed")
# The settings of a greedy search, whatever the run has.
GREEDY: dict[str, Any] = {"temperature": 0.0, "best": 1, "no_repeat_ngram": None, "repetition_penalty": 1.0}


class Examples(NamedTuple):
    """Examples and, if known, the word alignment of each input with the right answer, or the words' regions in it."""

    examples: "list[Example[Any]]"
    gold: "list[Links] | None"
    regions: "list[Regions] | None" = None

    @property
    def inputs(self) -> list[Any]:
        return [example.input for example in self.examples]

    @property
    def outputs(self) -> list[str]:
        return [example.wanted for example in self.examples]


@dataclass(frozen=True)
class Best:
    """A head, or a site by the average of its heads: chosen on the validation set, scored on another."""

    site: str
    head: int | None
    measure: str
    """By which it is the best: the lowest "aer" or the highest "pointing"."""
    validation: float
    score: float


def main(run: Path | None, split: str | None, limit: int, ablate: bool, over: bool, plot: Path | None, device: str,
         json: bool, *, verify: bool = True) -> None:
    folder = chosen(run)
    if plot is not None:
        prepare_to_draw(plot)

    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    predictor.read_data()
    split = split or next((s for s in predictor.task.data.splits() if s.startswith("test")), "val")
    val, test = _examples(predictor, "val", limit), _examples(predictor, split, limit)
    if over and test.gold is None:
        raise UserError("--over-training: needs known word alignments, as the built-in phrase book has")
    print_message(f"measuring {folder} on {count(len(test.inputs), 'example')} of {split}")
    heads = measured(predictor, test)
    best = bests(predictor, val, heads)
    if ablate:
        for head, columns in ablation(predictor, test).items():
            heads[head] |= columns
    steps = dict(over_training(predictor, folder, val, test)) if over else {}
    if plot is not None:
        _draw(heads, steps, plot)
    if json:
        print_result(jsons.dumps(
            {"run": str(folder), "split": split, "examples": len(test.inputs), "heads": _rows(heads),
             "best": [_best_row(each) for each in best], "over_training": [
                        {"step": step, "heads": _rows(its.heads), "best": [_best_row(each) for each in its.best]}
                        for step, its in steps.items()]}, ensure_ascii=False))
    else:
        tables = [_heads_table(heads), _best_table(best, split), _steps_table(steps)]
        print_result("\n\n".join(table for table in tables if table))


def measured(predictor: "Predictor", examples: Examples) -> "dict[HeadOfSite, Columns]":
    """Every head, and the average of each site's heads: its metrics and, if known, its alignment error."""
    from regard.look.alignment import error_rates, mutual
    from regard.look.measure import MEASURES, by_head, pointing

    records = _records(predictor, examples)
    together = [*records, *(record.mean() for record in records)]
    columns = {name: by_head(together, measure) for name, measure in MEASURES.items()}
    if examples.gold is not None:
        columns["aer"] = error_rates(records, examples.gold)
        columns["aer_mutual"] = error_rates(records, examples.gold, link=mutual)
    if examples.regions is not None:
        columns["pointing"] = pointing(records, examples.regions, _answers(predictor, examples))
    heads = sorted(columns["entropy"], key=lambda head: (list(records[0]).index(head[0]), head[1] < 0, head[1]))
    return {head: {name: values[head] for name, values in columns.items() if head in values} for head in heads}


def bests(predictor: "Predictor", val: Examples, heads: "Mapping[HeadOfSite, Columns]") -> list[Best]:
    """The head and the layer average that are the best on the validation set, if the right ones are known there."""
    from regard.look.alignment import MEAN, best, error_rates
    from regard.look.measure import pointing

    found = []
    if val.gold is not None:
        rates = error_rates(_records(predictor, val, only="*.cross"), val.gold)
        found += [("aer", head, rates[head]) for head in best(rates)]
    if val.regions is not None:
        records = _records(predictor, val)
        shares = pointing(records, val.regions, _answers(predictor, val))
        lacking = {head: -share for head, share in shares.items()}
        found += [("pointing", head, shares[head]) for head in (best(lacking) if lacking else ())]
    return [Best(site, None if head == MEAN else head, measure, validation, heads[site, head].get(measure, math.nan))
            for measure, (site, head), validation in found]


def ablation(predictor: "Predictor", examples: Examples) -> "dict[HeadOfSite, Columns]":
    """The effect of removing a head: the change of the loss per token, and how many greedy answers change.

    An answer changes exactly if some token along it is no longer the likeliest: no new search is needed to know.
    """
    from regard.look.ablate import without
    from regard.look.watch import matching, sites
    from regard.tasks.base import loss_per_token

    task, model = predictor.task, predictor.model
    device = next(model.parameters()).device
    greedy = replace(predictor.run.search, **GREEDY)
    answers = task.greedy_answers(model, examples.examples, search=greedy)
    right = [batch.to(device) for batch in task.batches(examples.inputs, examples.outputs)]
    own = [batch.to(device) for batch in task.batches(examples.inputs, answers)]

    # Where an answer was cut off, what would have come next is not part of it.
    before, said = loss_per_token(task, model, right), [task.matches_greedy(model, batch) for batch in own]
    effects: dict[HeadOfSite, Columns] = {}
    known = sites(model)
    every = [(site, head) for site in matching(known, task.acting) for head in range(known[site].heads)]
    for site, head in _followed(every):
        with without(model, site, head):
            changed = sum(int((was & ~task.matches_greedy(model, batch)).any(1).sum())
                          for batch, was in zip(own, said, strict=True))
            effects[site, head] = {"loss": loss_per_token(task, model, right) - before, "changed": changed}
    return effects


def _followed(heads: "Sequence[HeadOfSite]") -> "Iterable[HeadOfSite]":
    """The heads one after the other, with a progress bar on a terminal."""
    if not is_terminal(sys.stderr):
        return heads
    from rich.progress import track

    return track(heads, "without each head", console=console(), transient=True)


class Step(NamedTuple):
    """The metrics of a checkpoint's heads."""

    heads: "dict[HeadOfSite, Columns]"
    best: list[Best]


def over_training(predictor: "Predictor", folder: Path, val: Examples, test: Examples) -> Iterator[tuple[int, Step]]:
    """The same for each kept checkpoint, the oldest first. The model ends with the weights of the newest."""
    from regard.checkpoint import Checkpoint, load_weights

    kept = Checkpoint.all(folder)[::-1]
    if not kept:
        raise UserError(f"{folder}: no checkpoint was kept")
    for checkpoint in kept:
        if wrong := checkpoint.verify():
            print_message(f"left out: {wrong}")
            continue
        print_message(f"step {checkpoint.step:,}")
        load_weights(predictor.model, checkpoint.weights(), origin=str(checkpoint.folder))
        heads = measured(predictor, test)
        yield checkpoint.step, Step(heads, bests(predictor, val, heads))


def _examples(predictor: "Predictor", split: str, limit: int) -> Examples:
    task = predictor.task
    data = task.data
    return Examples(data.examples(split, limit), data.alignments(split, limit), data.regions(split, limit))


def _answers(predictor: "Predictor", examples: Examples) -> "list[Callable[[int], Sequence[int]]]":
    """For each example, which rows, of how many, belong to the answer."""
    task = predictor.task
    batches = [batch for pair in zip(examples.inputs, examples.outputs, strict=True)
               for batch in task.batches(*([each] for each in pair))]
    return [partial(task.output_rows, batch) for batch in batches]


def _records(predictor: "Predictor", examples: Examples, only: str = "*") -> "list[Record]":
    return predictor.task.look(predictor.model, examples.inputs, examples.outputs, only=only)


# Printing.


def _rows(heads: "Mapping[HeadOfSite, Columns]") -> list[dict[str, Any]]:
    return [{"site": site, "head": None if head < 0 else head, **columns} for (site, head), columns in heads.items()]


def _best_row(best: Best) -> dict[str, Any]:
    return {"site": best.site, "head": best.head, "validation": best.validation, best.measure: best.score}


def _heads_table(heads: "Mapping[HeadOfSite, Columns]") -> str:
    names = [name for name in NAMES if any(name in columns for columns in heads.values())]
    rows = [["site", "head", *(name.replace("_", " ") for name in names)]]
    rows += [[site, "mean" if head < 0 else str(head), *(_figure(name, columns.get(name)) for name in names)]
             for (site, head), columns in heads.items()]
    return _table(rows)


def _best_table(best: Sequence[Best], split: str) -> str:
    tables = []
    for measure in dict.fromkeys(each.measure for each in best):
        rows = [["best", "site", "head", f"{measure} val", f"{measure} {split}"]]
        rows += [["layer" if each.head is None else "head", each.site, "mean" if each.head is None else str(each.head),
                  f"{each.validation:.3f}", f"{each.score:.3f}"] for each in best if each.measure == measure]
        tables.append(_table(rows))
    return "\n\n".join(tables)


def _steps_table(steps: Mapping[int, Step]) -> str:
    rows = [["step", "best head", "aer", "best layer", "aer"]]
    rows += [[f"{step:,}", f"{head.site} {head.head}", f"{head.score:.3f}", layer.site, f"{layer.score:.3f}"]
             for step, (_, (head, layer, *_)) in steps.items()]
    return _table(rows) if steps else ""


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+.4f}" if name == "loss" else f"{value}" if name == "changed" else f"{value:.3f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Words are aligned left, figures right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    are_words = [column[-1][:1].isalpha() and column[0] != "head" for column in columns]
    lines = ("  ".join(cell.ljust(width) if is_word else cell.rjust(width)
                       for cell, width, is_word in zip(row, widths, are_words, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _draw(heads: "Mapping[HeadOfSite, Columns]", steps: Mapping[int, Step], file: Path) -> None:
    from regard.look.heatmap import save
    from regard.look.plots import charts

    if steps:
        rates = {step: {head: columns["aer"] for head, columns in its.heads.items() if "aer" in columns}
                 for step, its in steps.items()}
        chosen = list(steps.values())[-1].best[0]
        save(charts.over_training(rates, (chosen.site, chosen.head or 0)), file)
    else:
        save(charts.by_head(heads), file)
    print_message(f"drawn: {file}")
