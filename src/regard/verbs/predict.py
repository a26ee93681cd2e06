"""`regard predict`: answers, one line for each input; the continuation of a single text streams.

Several that go on stand below each other as they are, where a person reads them.
"""

import json as jsons
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import Failure, UserError
from regard.settings.load import load as load_settings
from regard.settings.schema import Run, Search
from regard.stdio import print_message, print_result
from regard.tasks.traits import traits_of
from regard.verbs.runs import chosen

if TYPE_CHECKING:  # torch takes seconds to import: report errors in the options first
    from regard.data.reader import Reader
    from regard.look.choices import Choice
    from regard.predictor import Predictor
    from regard.tasks.base import Answer

__all__ = ["batched", "check_stdin", "main", "read_inputs"]

ALL_OF_STDIN = "-"
SHOWN_CHARACTERS = 60  # characters at the end of an input, by which its answers are headed


def main(inputs: Sequence[str], run: Path | None, overrides: Sequence[str], stop: Sequence[str], score: bool,
         device: str, precision: str, quantize: str | None, json: bool, *, verify: bool = True,
         input_tokens: int | None = None) -> None:
    check_stdin(inputs)
    folder = chosen(run)
    load_settings(None, overrides)  # report errors in them first: importing torch takes seconds
    for text in overrides:
        if not text.startswith("search."):
            raise UserError(f"{text}: only settings of the search, such as search.beam=1, can change after training")
    if "" in stop:
        raise UserError("--stop: an empty text would end every answer before it begins")
    asked = load_settings(folder / "run.json", overrides)
    _refuse_idle(asked, [*overrides, *(f"search.stop={text}" for text in stop)], score)

    from regard.predictor import load

    predictor = load(folder, device=device, precision=precision, quantize=quantize, verify=verify,
                     input_tokens=input_tokens)
    search = load_settings(None, overrides, base=predictor.run).search
    search = replace(search, stop=tuple(stop) or search.stop)
    # Answer typed lines one at a time; process a file in batches.
    is_typed = not inputs and sys.stdin.isatty()
    is_single = is_typed or len(inputs) == 1
    for some in batched(read_inputs(inputs, predictor.task.inputs), 1 if is_typed else search.batch * 8):
        with _within_memory(search):
            if score:
                _score(predictor, some, json)
            elif is_single and predictor.task.streams and search.best == 1 and not json:
                _stream(predictor, some[0], asdict(search))
            else:
                _answer(predictor, some, asdict(search), json, is_single)
        sys.stdout.flush()
        for note in predictor.task.notes.take():
            print_message(f"note: {note}")


def _refuse_idle(run: Run, overrides: Sequence[str], score: bool) -> None:
    """Refuse settings that would have no effect."""
    traits = traits_of(run.task)
    heeded = {"batch"} if score else traits.search(run)
    for text in overrides:
        if text.partition("=")[0].strip().removeprefix("search.") not in heeded:
            why = "--score searches for no answer" if score else traits.why_idle(run)
            raise UserError(f"{text}: has no effect, because {why}; remove it")


@contextmanager
def _within_memory(search: Search) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch has a separate error for GPUs
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory|Storage size", str(error)):
            raise
        raise Failure(f"not enough memory for up to {search.max_tokens:,} tokens of {search.batch:,} answers at once; "
                      "lower --max-tokens or search.batch") from None


def check_stdin(inputs: Sequence[str]) -> None:
    """Refuse a closed stdin if inputs should come from it."""
    if sys.stdin is None and (not inputs or ALL_OF_STDIN in inputs):
        raise UserError("stdin is closed and there is no input: give one as an argument, or a file with < FILE")


def read_inputs(words: Sequence[str], reader: "Reader[Any]") -> Iterator[Any]:
    """The inputs that these arguments describe, or without any the lines of stdin."""
    from regard.data.lines import is_text, read_lines

    if not words:
        for number, line in enumerate(read_lines(sys.stdin.buffer, "stdin"), 1):
            yield reader.parse(line, origin=f"stdin:{number}")
    for number, word in enumerate(words, 1):
        if word != ALL_OF_STDIN:
            if not reader.reads_files and os.path.isfile(word):
                how = f"to read the file, put < before it: < {shlex.quote(word)}" if is_text(Path(word)) else (
                    f"that file holds no {reader.noun}, and the model reads nothing else")
                print_message(f"note: {word} is read as a {reader.noun}, although it is the name of a file; {how}")
            yield reader.parse(word, origin=f"input {number}")
        elif (whole := reader.read(sys.stdin.buffer, origin="stdin")) is not None:
            yield whole


def _stream(predictor: "Predictor", given: Any, search: dict[str, Any]) -> None:
    """Print each piece at once, unchanged: to a terminal or a pipe."""
    for _, piece in predictor.stream(given, **search):
        print_result(piece, end="", flush=True)
    print_result("")


def _answer(predictor: "Predictor", inputs: Sequence[Any], search: dict[str, Any], json: bool,
            is_single: bool) -> None:
    show = predictor.task.inputs.show
    for given, answer in zip(inputs, predictor.answers(inputs, **search), strict=True):
        if json:
            print_result(jsons.dumps({"input": show(given), **_record(answer)}, ensure_ascii=False))
        elif predictor.task.streams and sys.stdout.isatty():
            _show(None if is_single else show(given), [answer, *answer.others])
        else:
            lines = [*(_line(each.text) for each in (answer, *answer.others)), *_places(answer, search["best"])]
            # Below each other to a person; to a program, an input is a line.
            print_result(("\n  " if sys.stdout.isatty() else "\t").join(lines))


def _show(text: str | None, answers: "Sequence[Answer]") -> None:
    """Print texts unchanged, each below a line with the end of its input and its number."""
    headings = [] if text is None else [_line(text)[-SHOWN_CHARACTERS:]]
    for number, answer in enumerate(answers, 1):
        numbers = [f"{number} of {len(answers)}"] if len(answers) > 1 else []
        print_result(" ".join(["──", *headings, *numbers, "──"]))
        print_result(answer.text)


def _places(answer: "Answer", best: int) -> Iterator[str]:
    """Lines of the choices at each place with their probabilities, or of the probability of each label."""
    if plain := [choice for choice in answer.choices if not choice.best]:
        yield ", ".join(f"{_line(choice.token).strip()} {choice.probability:.3f}" for choice in plain)
    if best > 1:
        yield from _weighed([choice for choice in answer.choices if choice.best])


def _record(answer: "Answer") -> dict[str, Any]:
    """An answer for JSON, with probabilities and choices only if it has them."""
    told: dict[str, Any] = {
        "text": answer.text, "score": answer.score, "others": [_record(other) for other in answer.others]}
    if answer.probabilities is not None:
        told["probabilities"] = dict(answer.probabilities)
    if answer.choices:
        told["choices"] = [asdict(choice) for choice in answer.choices]
    return told


def _weighed(choices: "Sequence[Choice]") -> Iterator[str]:
    width = max((len(_line(choice.token).strip()) for choice in choices), default=0)
    for choice in choices:
        likely = "  ".join(f"P({_line(text).strip()})={chance:.3f}" for text, chance in choice.best)
        yield f"{_line(choice.token).strip():<{width}}  {likely}"


def _score(predictor: "Predictor", texts: Sequence[str], json: bool) -> None:
    """For each text, the sum of its tokens' log-probabilities and the bits per byte."""
    for text, found in zip(texts, predictor.likelihoods(texts), strict=True):
        if json:
            print_result(jsons.dumps({"input": text, "log_probability": found.total,
                                      "bits_per_byte": found.bits_per_byte, **asdict(found)}, ensure_ascii=False))
        else:
            print_result(f"{found.total:.4f}\t{found.bits_per_byte:.4f}\t{_line(text)}")


def _line(text: str) -> str:
    """The text on one line and in one column, for the table; --json prints it unchanged."""
    return re.sub(r"[\t\n\r]", " ", text)


def batched(inputs: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(inputs)
    while some := list(islice(iterator, size)):
        yield some
