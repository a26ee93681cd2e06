"""`regard explain --word` with several texts: how the vector of a word changes with its context."""

import json as jsons
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import UserError
from regard.stdio import print_message, print_result
from regard.verbs.runs import chosen, prepare_to_draw

if TYPE_CHECKING:
    from regard.data.tokenizer import Tokenizer
    from regard.look.word_in_context import Word

__all__ = ["main", "places"]


def main(texts: Sequence[str], word: str | None, run: Path | None, plot: Path | None, device: str,
         json: bool, *, verify: bool = True) -> None:
    if word is None:
        raise UserError(f"{len(texts)} texts: choose a word in all of them with --word")
    for number, text in enumerate(texts, 1):
        _found(word, text, number)  # before a model is read
    if plot is not None:
        prepare_to_draw(plot)
    folder = chosen(run)
    found = _word(word, texts, folder, device, verify)
    if plot is not None:
        from regard.look.heatmap import save
        from regard.look.plots.word_in_context import picture

        save(picture(found), plot)
        print_message(f"drawn: {plot}")
    if json:
        print_result(jsons.dumps({"run": str(folder), "word": word, "texts": list(texts),
                                  "cosines": found.cosines.round(6).tolist()}, ensure_ascii=False))
    else:
        print_result(table(found))


def _word(word: str, texts: Sequence[str], folder: Path, device: str, verify: bool) -> "Word":
    import numpy as np

    from regard.data.text.rows import rows_of
    from regard.look.encoder_states import layers
    from regard.look.word_in_context import Word
    from regard.predictor import load
    from regard.tasks.traits import traits_of

    predictor = load(folder, device=device, verify=verify)
    task: Any = predictor.task
    if not traits_of(predictor.run.task).encoder_only or task.inputs.noun != "text":
        raise UserError(f"{folder}: the model of {predictor.run.task} is not an encoder of texts; only such a model "
                        "has the vectors of a word in its contexts")
    states = []
    for number, text in enumerate(texts, 1):
        [row] = rows_of(task.data.tokens, [text], longest=predictor.run.data.max_tokens)
        where = [1 + place for place in places(word, text, task.data.tokens, number=number)]  # after the start
        if not where:
            raise UserError(f"text {number}: the model has no token for {word!r}")
        if where[-1] >= len(row) - 1:
            raise UserError(f"text {number}: {word!r} is not among the first {len(row) - 2} tokens, and the model "
                            "reads no more (data.max_tokens)")
        states.append(layers(predictor.model, row, pad=task.data.tokens.pad)[:, where].mean(1).numpy())
    return Word(word, texts, np.stack(states))


def places(word: str, text: str, tokens: "Tokenizer", *, number: int = 1) -> list[int]:
    """The tokens of a word's first occurrence in a text."""
    first, last = _found(word, text, number)
    return [place for place, (start, end) in enumerate(tokens.spans(text)) if start < last and end > first]


def _found(word: str, text: str, number: int) -> tuple[int, int]:
    """
    >>> _found("bank", "Banks? The bank!", 1)
    (11, 15)
    """
    match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
    if not word.strip() or match is None:
        raise UserError(f"text {number}: has no word {word!r}: {' '.join(text.split())[:80]}")
    return match.span()


def table(found: "Word") -> str:
    """A row for each layer, a column for every two texts."""
    cosines = found.cosines
    lines = [f"“{found.word}”: the cosine between its vectors in", ""]
    lines += [f"  {number}  {' '.join(text.split())}" for number, text in enumerate(found.texts, 1)]
    lines += ["", " " * 14 + "".join(f"{f'{a + 1} and {b + 1}':>10}" for a, b in found.pairs)]
    for layer, row in enumerate(cosines):
        name = f"after block {layer}" if layer else "before them"
        lines.append(f"{name:<14}" + "".join(f"{row[pair]:>10.3f}" for pair in found.pairs))
    return "\n".join(lines)
