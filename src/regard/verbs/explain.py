"""`regard explain`: the steps of one head for one word, with the model's own numbers."""

import json as jsons
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import UserError
from regard.stdio import print_result
from regard.verbs.runs import chosen

if TYPE_CHECKING:
    from torch import Tensor

    from regard.look.explain import AttentionSteps

__all__ = ["Explained", "main", "place", "table"]

WHOLE, SHOWN_NUMBERS = 3, 2  # up to 3 numbers of a vector are all shown, of more only the first 2


@dataclass(frozen=True)
class Explained:
    """The six steps, with their title and axes."""

    title: str
    words: Sequence[str]
    steps: "AttentionSteps"
    own: "Tensor | None"
    """The model's own output."""
    about: dict[str, Any]

    @property
    def difference(self) -> float | None:
        return None if self.own is None else float((self.steps.sum - self.own).abs().max())


def main(text: str | None, example: bool, run: Path | None, site: str | None, head: int, word: str, device: str,
         json: bool, *, verify: bool = True) -> None:
    if (text is None) != example:
        raise UserError("give an INPUT to explain, or --example" if text is None else
                        f"{text}: --example takes no input: it explains the lecture's two words")
    explained = _example() if text is None else _of_run(text, chosen(run), site, head, word, device, verify)
    if json:
        print_result(jsons.dumps(_record(explained), ensure_ascii=False))
    else:
        print_result(table(explained, digits=1 if example else 4))


def _example() -> Explained:
    from regard.look.explain import example

    return Explained("two words whose scores are 102 and 99; d_k = 3", ["first", "second"], example(), None, {})


def _of_run(argument: str, folder: Path, site: str | None, head: int, word: str, device: str,
            verify: bool) -> Explained:
    from regard.look.explain import catch
    from regard.look.watch import matching, sites
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    reader = predictor.task.inputs
    given = reader.parse(argument, origin="INPUT")
    where = site or matching(sites(predictor.model), predictor.task.acting)[-1]
    # An answer is found step by step; the newest call is that of the one pass over all of it.
    with catch(predictor.model, where) as caught:
        axes = predictor.look(given, only=where, heads=[head]).axes[where]
    row = place(word, axes.targets)
    steps, heads = caught.steps(head=head, row=row), caught.attend.heads
    is_read = axes.targets == axes.sources
    act = "read" if is_read else "written"
    answer = "" if is_read else f" → {predictor.choices(given, best=1).text}"
    title = (f"{' '.join(f'{reader.show(given)}{answer}'.split())}\n"
             f"{where}, head {head} of 0 to {heads - 1}, {steps.score}, d_k = {len(steps.query)}\n"
             f"as {axes.targets[row].strip()!r} is {act} (word {row})")
    about = {"run": str(folder), "input": reader.show(given), "site": where, "head": head, "row": row,
             "word": axes.targets[row]}
    return Explained(title, axes.sources, steps, caught.context(head=head, row=row), about)


def place(word: str, pieces: Sequence[str]) -> int:
    """The row: by its number from 0, or by its word (the word's first piece).

    >>> place("2", [" the", " small", " car"]), place("small", [" the", " sm", "all"]), place("car", [" the", " car"])
    (2, 1, 1)
    """
    bare = [piece.strip() for piece in pieces]
    if word in bare:
        return bare.index(word)
    if word.isdecimal() and int(word) < len(pieces):
        return int(word)
    for first in range(len(bare)):
        if any("".join(bare[first:last]) == word for last in range(first + 1, len(bare) + 1)):
            return first
    raise _no_such(word, pieces)


def _no_such(word: str, pieces: Sequence[str]) -> UserError:
    from regard.look.axes import Grid, unit

    if isinstance(pieces, Grid):
        cells = f"{pieces.height} × {pieces.width} {unit(pieces)} from 0,0 to {pieces.height - 1},{pieces.width - 1}"
        return UserError(f"{word}: no such place; there are {' and '.join([*pieces.before, cells])}")
    rows = ", ".join(f"{number} {piece.strip()}" for number, piece in enumerate(pieces))
    return UserError(f"--word {word}: no such word; there are {rows}")


def table(explained: Explained, *, digits: int) -> str:
    """The six steps; a line for each word that the query attends to."""
    steps = explained.steps
    columns = _columns(steps, digits)
    rows = [["", *columns]]
    for number, word in enumerate(explained.words):
        rows.append([word.strip(), *(column[number] for column in columns.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ["  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(
        row[1:], widths[1:], strict=True))]).rstrip() for row in rows]
    lines = [explained.title, "", f"1 project  the word asks with q = {_vector(steps.query)}", "", *aligned, ""]
    if steps.divisor == 1:
        lines.append(f"3 divide   no division: the score {steps.score} has no √d_k")
    lines.append(f"6 sum      {_vector(steps.sum)}")
    if explained.difference is not None:
        lines.append(f"           the model's own output of this head differs from it by {explained.difference:.1e}")
    return "\n".join(lines)


def _columns(steps: "AttentionSteps", digits: int) -> dict[str, list[str]]:
    """Each step's heading and its column, with a value for each word. Steps that the model lacks are left out."""
    def numbers(values: "Tensor", digits: int = digits) -> list[str]:
        return [f"{value:z.{digits}f}" for value in values.tolist()]

    def if_seen(cells: list[str], otherwise: str) -> list[str]:
        return [cell if seen else otherwise for cell, seen in zip(cells, steps.seen.tolist(), strict=True)]

    columns = {"1 key k": list(map(_vector, steps.keys)), "1 value v": list(map(_vector, steps.values)),
               f"2 score {steps.formula}": numbers(steps.scores)}
    if steps.divisor != 1:
        columns[f"3 ÷ √{round(steps.divisor**2)}"] = numbers(steps.divided)
    if steps.bias is not None:
        columns["+ bias"] = numbers(steps.divided + steps.bias)
    if steps.temperature != 1:
        columns[f"÷ T = {steps.temperature:g}"] = numbers(steps.logits)
    columns["4 softmax"] = if_seen(numbers(steps.weights, digits + 1), "hidden")
    columns["5 softmax · v"] = if_seen(list(map(_vector, steps.parts)), "")
    return columns


def _vector(values: "Tensor") -> str:
    """
    >>> import torch
    >>> _vector(torch.tensor([1.0, 2.0, 3.0])), _vector(torch.arange(32.0))
    ('[1.00 2.00 3.00]', '[0.00 1.00 …]')
    """
    if len(values) <= WHOLE:
        return f"[{' '.join(f'{value:z.2f}' for value in values.tolist())}]"
    return f"[{' '.join(f'{value:z.2f}' for value in values[:SHOWN_NUMBERS].tolist())} …]"


def _record(explained: Explained) -> dict[str, Any]:
    steps = explained.steps
    vectors = {name: getattr(steps, name).tolist() for name in (
        "query", "keys", "values", "scores", "divided", "logits", "seen", "weights", "parts", "sum")}
    return {**explained.about, "score": steps.score, "divisor": steps.divisor, "temperature": steps.temperature,
            "words": list(explained.words), **vectors, "bias": None if steps.bias is None else steps.bias.tolist(),
            "own": None if explained.own is None else explained.own.tolist(), "difference": explained.difference}
