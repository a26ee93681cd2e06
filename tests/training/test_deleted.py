"""A run whose folder is deleted while it is trained says what is so, and loses no more than was deleted."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from regard.checkpoint import Checkpoint
from regard.training.update import Update
from reliability.jobs import Job, digest

# A checkpoint every 4 steps, an evaluation every 7.
JOB = Job("classify", ("train.steps=16", "train.average_checkpoints=1"))


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@contextmanager
def deleted(folder: Path, *, step: int, then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """In this step the folder goes, and then something else happens."""
    whole, left = Update.step, iter(range(step - 1, -1, -1))

    def call(self: Update, *arguments: Any, **named: Any) -> Any:
        if next(left, None) == 0:
            shutil.rmtree(folder)
            then()
        return whole(self, *arguments, **named)

    with patch.object(Update, "step", call):
        yield


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
@pytest.mark.parametrize(("step", "number", "code", "saved"), [
    (10, None, 1, 12),  # the best is gone
    slow(6, None, 1, 7),  # the step of the best evaluation, which is saved
    slow(10, signal.SIGTERM, 75, 10), slow(16, None, 1, 16)])
def test_a_run_that_was_deleted_is_saved_again_and_the_same_command_goes_on(
        tmp_path: Path, step: int, number: int | None, code: int, saved: int) -> None:
    folder = tmp_path / "run"

    def then() -> None:
        if number is not None:
            os.kill(os.getpid(), number)

    # A checkpoint is written beside the training: it must not be on its way when the folder goes.
    with deleted(folder, step=step, then=then), patch("regard.training.loop.Saver.save", saved_at_once()):
        outcome = JOB.here(folder)
    assert outcome.code == code, outcome.said
    assert outcome.said.endswith(
        f"regard: {folder} was deleted or moved during the training; step {saved} of 16 is saved there, and the same "
        "command resumes from it\n")
    assert [each.step for each in Checkpoint.all(folder)] == [saved]
    again = JOB.here(folder)
    assert again.code == 0, again.said
    assert f"resuming from step {saved} of 16" in again.said
    assert (folder / "scores.json").exists()
    if step == 6:
        whole = tmp_path / "whole"
        assert JOB.here(whole).code == 0
        assert digest(folder / "model.safetensors") == digest(whole / "model.safetensors")


def test_a_run_that_was_deleted_is_not_saved_beside_data_that_has_changed(tmp_path: Path) -> None:
    data, folder = tmp_path / "labels.tsv", tmp_path / "run"
    data.write_text("".join(f"le chat {n}\tcat\nle chien {n}\tdog\n" for n in range(12)))
    once = patch("regard.training.loop.Saver.save", saved_at_once())
    with deleted(folder, step=2, then=lambda: data.write_text(data.read_text() * 2)), once:
        outcome = JOB.but("train.steps=4", f"data.paths={data}").here(folder)
    assert outcome.code == 1, outcome.said
    assert outcome.said.endswith("its data has changed since this run began: nothing more is saved\n")


def saved_at_once() -> Any:
    from regard.checkpoint.saver import Saver

    save = Saver.save

    def call(self: Saver, *arguments: Any, **named: Any) -> None:
        save(self, *arguments, **named)
        self.wait()

    return call
