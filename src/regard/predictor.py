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

from regard import manifest
from regard.checkpoint import load_weights, refuse_not_finite
from regard.convert.import_export import read_run_model
from regard.data.prepared import is_kept, restored
from regard.device import choose_device, large_pages
from regard.kernels.quantize import quantize as quantize_weights
from regard.long_input import cost_in_words, reading
from regard.look.choices import Output
from regard.look.record import Record
from regard.runs.lock import hold
from regard.settings.errors import UserError
from regard.settings.load import load as load_settings
from regard.settings.schema import Run, Search
from regard.settings.setting import SETTINGS, checked
from regard.stdio import print_message
from regard.tasks import make
from regard.tasks.base import Answer, Likelihood, Scores, Task

__all__ = ["Predictor", "load"]


PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Predictor:
    """A model with the task it was trained for. `.run`, `.task` and `.model` are there to be used.

    Several threads may ask at once, each with settings of its own.
    """

    def __init__(self, run: Run, task: Task[Any, Any], model: nn.Module, folder: Path, *, verify: bool = True) -> None:
        self.run, self.task, self.model, self.folder, self.verify = run, task, model, folder, verify
        self._reading = Lock()  # the data is read once

    def predict(self, inputs: Sequence[Any], **search: object) -> list[str]:
        """The best answer to each input. Keywords are settings of the search, such as `beam=1`."""
        return [answer.text for answer in self.answers(inputs, **search)]

    def answers(self, inputs: Sequence[Any], **search: object) -> list[Answer]:
        """Answers with their scores and, with `best=n`, the n − 1 next best."""
        return self.task.predict(self.model, self._checked(inputs), search=self._settled(search))

    def stream(self, given: Any, **search: object) -> Iterator[tuple[int, str]]:
        """The answers to one input as they are written: the number of the answer, and what is new of it."""
        return self.task.stream(self.model, *self._checked([given]), search=self._settled(search))

    def likelihoods(self, texts: Sequence[str]) -> list[Likelihood]:
        """How likely a language model finds each text, token by token."""
        return self.task.likelihoods(self.model, self._checked(texts))

    def compare(self, prompts: Sequence[str], endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """Of a language model: the log-probability of each ending after each prompt, up to a sum they share."""
        return self.task.compare(self.model, prompts, endings)

    def embed(self, inputs: Sequence[Any]) -> Float[np.ndarray, "inputs width"]:
        """A vector for each input, of a run whose model is an encoder."""
        return self.task.embed(self.model, self._checked(inputs))

    def look(self, given: Any, output: str | None = None, *, only: str | Sequence[str] = "*",
             heads: Sequence[int] | None = None, **search: object) -> Record:
        """The attention of the model for its own answer, or for a given output."""
        outputs = None if output is None else [output]
        how = self._settled(search)
        return self.task.look(self.model, self._checked([given]), outputs, only=only, heads=heads, search=how)[0]

    def choices(self, given: Any, output: str | None = None, *, best: int = 5, **search: object) -> Output:
        """The answer, or another output, with the `best` likeliest tokens at each place of it."""
        outputs = None if output is None else [output]
        how = self._settled(search)
        return self.task.choices(self.model, self._checked([given]), outputs, best=best, search=how)[0]

    def evaluate(self, split: str, *, limit: int | None = None, **search: object) -> Scores:
        """Scores on a split of the data that the run was trained with."""
        how = self._settled(search)
        self.read_data()
        return self.task.score(self.model, split, limit=limit, search=how)

    def read_data(self) -> None:
        """The data that the run was trained with, if it has not been read yet.

        A converted run has no prepared data, only a tokenizer: the data is prepared now. So is damaged data, with a
        note. A second task reads it and then replaces the first, which other threads may be using.
        """
        with self._reading:
            if self.task.data.splits():
                return
            task = make(self.run)
            wrong = manifest.damage(self.folder, "data/*") if self.verify else None
            if wrong is None and is_kept(self.folder):
                try:
                    restored(task.data, self.folder)
                except UserError as error:
                    wrong = str(error)
            if wrong is not None or not task.data.splits():
                task = self._prepared(wrong)
            self.task = task

    def read_kept_data(self) -> None:
        """The same, of a run that has any."""
        if (self.folder / "data").is_dir():
            self.read_data()

    def _prepared(self, wrong: str | None) -> Task[Any, Any]:
        """A task whose data was prepared now, because there was none or something was wrong with it."""
        if wrong is not None and not manifest.listed(self.folder, "data/*"):
            raise UserError(wrong)  # its tokens learned again might be others than the model's
        task: Task[Any, Any] = make(self.run)
        tokens = self.run.tokens
        if wrong is None or tokens.file is not None:
            tokens = replace(tokens, file=str(self.folder / "tokenizer.json"))
        task.data.restore(self.folder)
        task.run = replace(self.run, tokens=tokens)
        try:
            # Two processes that prepare it at once would write over each other's files; the second finds it prepared.
            with hold(self.folder, print_message, work="prepare"):
                task.data.prepare(self.folder)
        except UserError as error:
            if wrong is not None:
                error.add_note(wrong)
            raise
        task.run = self.run
        return task

    def _checked(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, if they can be read."""
        reader = self.task.inputs
        if isinstance(inputs, str):  # it is a sequence of texts, too: of its letters
            raise TypeError(f"must be a list of {reader.noun}s, as in predict([{reader.noun}])")
        return [reader.check(given, origin=f"input {number}") for number, given in enumerate(inputs, 1)]

    def _settled(self, given: Mapping[str, object]) -> Search:
        """The search of the run, with these settings in place of its own."""
        for name in given:
            if f"search.{name}" not in SETTINGS:
                known = [field.name for field in fields(Search)]
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"{name}: no such setting of the search; {hint}")
        settings = {name: checked(SETTINGS[f"search.{name}"], list(value) if isinstance(value, tuple) else value)
                    for name, value in given.items()}
        return replace(self.run.search, **settings)


def load(path: str | Path, *, device: str = "auto", precision: str = "float32",
         quantize: str | None = None, verify: bool = True, input_tokens: int | None = None) -> Predictor:
    """The model of a run directory. In `bfloat16` it answers faster, and rounds its scores to two digits or three.

    `quantize` narrows its weights: to `int8`, or on a CPU to `float16`. `verify` first compares the files that are
    read with the run's manifest, which takes about a second per gigabyte. `input_tokens` lets it read longer inputs
    than those of training, to which they are otherwise cut; a note says first what that costs.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision={precision}: there are {' and '.join(PRECISIONS)}")
    folder = Path(path)
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder}: not a run directory (it has no run.json)")
    if verify:
        manifest.check(folder, *manifest.ANSWERING)
        if not manifest.exists(folder):
            print_message(f"note: {folder} has no {manifest.NAME}: its files are read unchecked")
    run = trained = load_settings(folder / "run.json")
    if input_tokens is not None:
        run = reading(run, input_tokens)
    for part in ("model.safetensors", "config.json"):
        if not (folder / part).is_file():
            raise UserError(f"{folder}: the run has not ended yet (it has no {part}); "
                            "start the same `regard train` again to go on with it")
    place = choose_device(device)
    if place.type == "cpu":  # before the first weight has its place: they are read, and perhaps narrowed
        large_pages(3 * (folder / "model.safetensors").stat().st_size)
    task = make(run)
    sizes, weights = read_run_model(folder, run)
    if verify:
        refuse_not_finite(weights, origin=str(folder / "model.safetensors"))
    model = task.build({**task.data.restore(folder), **sizes})
    load_weights(model, weights, origin=str(folder / "model.safetensors"))
    model.to(place).eval()
    if input_tokens is not None:
        cost = cost_in_words(model, input_tokens, trained.data.max_tokens, window=run.model.window)
        print_message(f"note: {cost}")
    if quantize is not None and not next(model.parameters()).is_cuda:
        quantize_weights(model, quantize)  # from the weights as they are
    model.to(PRECISIONS[precision])
    if quantize is not None and next(model.parameters()).is_cuda:
        quantize_weights(model, quantize)  # the scales stay in float32
    return Predictor(run, task, model, folder, verify=verify)
