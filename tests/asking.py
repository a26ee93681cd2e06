"""Calls of every kind to tiny runs, for tests that ask from several threads at once.

    python tests/asking.py 10000

asks so many of them from eight threads, and says how many get something else than what they get alone. It stands by
itself because the checks of shapes and types that the tests put into every function take three quarters of the time.
"""

import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from regard.nn.init import initialize
from regard.predictor import Predictor
from regard.tasks import make

__all__ = ["ENGLISH", "FRENCH", "TASKS", "Call", "Runs", "at_once", "same", "tiny"]

TINY = ["data.built_in_size=20", "model.width=16", "model.depth=1",
        "model.heads=2", "tokens.vocabulary=300", "search.max_tokens=3", "data.max_tokens=32", "device=cpu"]
TASKS = ("translate", "language", "classify", "tag", "mask")
THREADS = 8
FRENCH = [["je suis étudiant"], ["il ne la voit pas", "la petite voiture rouge"], ["où est la clé ?"]]
ENGLISH = [["the red car"], ["I do not see it", "give me the key now"], ["where is she?"]]

Call = Callable[[], Any]


@dataclass(frozen=True)
class Runs:
    """A tiny run of each task, by its name."""

    of: dict[str, Predictor]

    def calls(self) -> list[Call]:
        """One of each kind and more: every one always with texts of the same shapes, so that its sums are the same."""
        return [*self._searched(), *self._read()]

    def _searched(self) -> Iterator[Call]:
        translator, writer = self.of["translate"], self.of["language"]
        for texts in FRENCH:
            for how in ({"beam": 1}, {"beam": 3}, {"best": 1}, {"best": 3}, {"beam": 2, "length_penalty": 0.0},
                        {"temperature": 1.5, "seed": 3}, {"temperature": 0.7, "seed": 4, "top_k": 9, "best": 2}):
                yield lambda texts=texts, how=how: translator.answers(texts, **how)  # type: ignore[misc]
        for texts in ENGLISH:
            for how in ({"temperature": 0.0}, {"temperature": 1.0, "seed": 1}, {"temperature": 2.0, "seed": 2},
                        {"best": 3, "seed": 5}, {"best": 1, "max_tokens": 2},
                        {"min_p": 0.01, "repetition_penalty": 1.2}):
                yield lambda texts=texts, how=how: writer.answers(texts, **how)  # type: ignore[misc]
            yield lambda texts=texts: list(writer.stream(texts[0], best=2, temperature=1.0))  # type: ignore[misc]
            yield lambda texts=texts: list(writer.stream(texts[0], temperature=0.0))  # type: ignore[misc]
            yield lambda texts=texts: writer.likelihoods(texts)  # type: ignore[misc]
        yield lambda: list(translator.stream("je suis étudiant", best=2))
        yield lambda: translator.look("je suis étudiant", beam=1)
        yield lambda: translator.choices("je suis étudiant", beam=3)
        yield lambda: writer.look("the red car", temperature=0.0)

    def _read(self) -> Iterator[Call]:
        for texts in ENGLISH:
            for task in ("classify", "tag"):
                for best in (1, 3):
                    yield lambda run=self.of[task], texts=texts, best=best: run.answers(texts, best=best)  # type: ignore[misc]
            for best in (1, 2, 5):
                yield lambda texts=texts, best=best: self.of["mask"].answers(  # type: ignore[misc]
                    [f"{text} [MASK]" for text in texts], best=best)
            yield lambda texts=texts: self.of["classify"].embed(texts)  # type: ignore[misc]
        yield lambda: self.of["tag"].look("where is she?")


def tiny(task: str, folder: Path) -> Predictor:
    """A model that has not learned anything: it answers as fast, and differently to each text."""
    folder.mkdir()
    text = folder / "text.txt"
    text.write_text("the dog sees the cat. where is she? give me the red key.\n" * 40)
    run = regard.recipe(overrides=[f"task={task}", *TINY, *([f"data.paths={text}"] if task == "language" else [])])
    job = make(run)
    model = job.build(job.data.prepare(folder))
    initialize(model, seed=0)
    return Predictor(run, job, model.eval(), folder)


def same(one: Any, other: Any) -> bool:
    """Every text the same, and every number to 1e-6."""
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=0, abs_tol=1e-6)
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and bool(np.allclose(one, other, rtol=0, atol=1e-6))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "keys") and hasattr(one, "__getitem__"):
        return [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)


def at_once(asked: list[Call], threads: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda call: call(), asked))


def main(count: int) -> str:
    """How many of so many calls, in an order drawn by chance, get another answer than alone."""
    torch.set_num_threads(1)  # of each call: eight of them are made at a time
    sys.setswitchinterval(1e-4)  # fifty times as often as by default: what can come between will
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs({task: tiny(task, Path(folder, task)) for task in TASKS})
    calls, settings = runs.calls(), {task: run.task.run for task, run in runs.of.items()}
    alone = [call() for call in calls]
    order = random.Random(0).choices(range(len(calls)), k=count)
    found = at_once([calls[number] for number in order])
    wrong = sum(not same(answer, alone[number]) for number, answer in zip(order, found, strict=True))
    changed = [task for task, run in runs.of.items() if run.task.run is not settings[task]]
    return f"{wrong} of {count} wrong; changed: {', '.join(changed) or 'none'}"


if __name__ == "__main__":
    print(main(int(sys.argv[1])))
