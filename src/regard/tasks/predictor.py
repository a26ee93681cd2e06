"""A trained run, ready to answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from regard.checkpoint import load_weights, read_json
from regard.convert.run import saved
from regard.data.tokenizer import checked_length
from regard.kernels.quantize import quantize as narrow
from regard.look.choices import Output
from regard.look.record import Record
from regard.settings.errors import UserError
from regard.settings.knobs import KNOBS, checked
from regard.settings.load import from_json
from regard.settings.schema import Run, Search
from regard.tasks import make
from regard.tasks.base import Answer, Likelihood, Scores, Task
from regard.tasks.device import choose_device, large_pages

__all__ = ["Predictor", "load"]


PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Predictor:
    """A model with the task it was trained for. `.run`, `.task` and `.model` are there to be used.

    Several threads may ask at once, each with settings of its own.
    """

    def __init__(self, run: Run, task: Task[Any], model: nn.Module, folder: Path) -> None:
        self.run, self.task, self.model, self.folder = run, task, model, folder
        self._reading = Lock()  # the data is read once

    def predict(self, inputs: Sequence[str], **search: object) -> list[str]:
        """The best answer to each input. Keywords are settings of the search, such as `beam=1`."""
        return [answer.text for answer in self.answers(inputs, **search)]

    def answers(self, inputs: Sequence[str], **search: object) -> list[Answer]:
        """Answers with their scores and, with `best=n`, the n − 1 next best."""
        if isinstance(inputs, str):  # it is a sequence of texts, too: of its letters
            raise TypeError("a list of texts is wanted, as in predict([text])")
        return self.task.predict(self.model, _checked(inputs), search=self._settled(search))

    def stream(self, text: str, **search: object) -> Iterator[tuple[int, str]]:
        """The answers to one input as they are written: the number of the answer, and what is new of it."""
        return self.task.stream(self.model, *_checked([text]), search=self._settled(search))

    def likelihoods(self, texts: Sequence[str]) -> list[Likelihood]:
        """How likely a language model finds each text, token by token."""
        return self.task.likelihoods(self.model, _checked(texts))

    def compare(self, prompts: Sequence[str], endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """Of a language model: the log-probability of each ending after each prompt, up to a sum they share."""
        return self.task.compare(self.model, prompts, endings)

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        """A vector for each text, of a run with an encoder alone."""
        return self.task.embed(self.model, _checked(texts))

    def look(self, text: str, output: str | None = None, *, only: str | Sequence[str] = "*",
             heads: Sequence[int] | None = None, **search: object) -> Record:
        """What the model attends to when it answers, or when it is made to give another output."""
        outputs = None if output is None else [output]
        how = self._settled(search)
        return self.task.look(self.model, [text], outputs, only=only, heads=heads, search=how)[0]

    def choices(self, text: str, output: str | None = None, *, best: int = 5, **search: object) -> Output:
        """The answer, or another output, with the `best` likeliest tokens at each place of it."""
        outputs = None if output is None else [output]
        return self.task.choices(self.model, [text], outputs, best=best, search=self._settled(search))[0]

    def evaluate(self, split: str, *, limit: int | None = None, **search: object) -> Scores:
        """Scores on a split of the data that the run was trained with."""
        how = self._settled(search)
        self.read_data()
        return self.task.score(self.model, split, limit=limit, search=how)

    def read_data(self) -> None:
        """If it is not there yet: what was trained elsewhere comes without any, but with its tokens.

        A second task reads it and then takes the place of the first, which others may be asking meanwhile.
        """
        with self._reading:
            if self.task.splits():
                return
            tokens = replace(self.run.tokens, file=str(self.folder / "tokenizer.json"))
            task = make(replace(self.run, tokens=tokens))
            task.restore(self.folder)
            task.notes = self.task.notes
            task.prepare(self.folder)
            task.run = self.run
            self.task = task

    def _settled(self, given: Mapping[str, object]) -> Search:
        """The search of the run, with these settings in place of its own."""
        for name in given:
            if f"search.{name}" not in KNOBS:
                known = [field.name for field in fields(Search)]
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"{name}: no such setting of the search; {hint}")
        settings = {name: checked(KNOBS[f"search.{name}"], list(value) if isinstance(value, tuple) else value)
                    for name, value in given.items()}
        return replace(self.run.search, **settings)


def _checked(texts: Sequence[str]) -> list[str]:
    """The texts, none of them too long to be read."""
    return [checked_length(text, f"input {number}") for number, text in enumerate(texts, 1)]


def load(path: str | Path, *, device: str = "auto", precision: str = "float32",
         quantize: str | None = None) -> Predictor:
    """The model of a run directory. In `bfloat16` it answers faster, and rounds its scores to two digits or three.

    `quantize` narrows its weights: to `int8`, or on a CPU to `float16`.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision={precision}: there are {' and '.join(PRECISIONS)}")
    folder = Path(path)
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder}: not a run directory (it has no run.json)")
    run = from_json(read_json(folder / "run.json"))
    for part in ("model.safetensors", "config.json"):
        if not (folder / part).is_file():
            raise UserError(f"{folder}: the run has not ended yet (it has no {part}); "
                            "start the same `regard train` again to go on with it")
    place = choose_device(device)
    if place.type == "cpu":  # before the first weight has its place: they are read, and perhaps narrowed
        large_pages(3 * (folder / "model.safetensors").stat().st_size)
    task = make(run)
    sizes, weights = saved(folder, run)
    model = task.build({**task.restore(folder), **sizes})
    load_weights(model, weights, origin=str(folder / "model.safetensors"))
    model.to(place).eval()
    if quantize is not None and not next(model.parameters()).is_cuda:
        narrow(model, quantize)  # from the weights as they are
    model.to(PRECISIONS[precision])
    if quantize is not None and next(model.parameters()).is_cuda:
        narrow(model, quantize)  # the scales stay in float32
    return Predictor(run, task, model, folder)
