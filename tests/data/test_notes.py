"""What is said of cut texts is counted: a run that answers for months does not grow by it."""

from pathlib import Path
from typing import Any

import pytest

from regard.data.notes import Notes
from regard.settings.load import load
from regard.tasks import make
from regard.tasks.base import Task
from regard.tasks.traits import defaults

TINY = ["model.width=8", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "data.built_in_size=40",
        "data.max_tokens=16", "model.max_positions=16", "model.positions=learned", "search.max_tokens=2",
        "search.beam=1"]
MANY = 10_000


@pytest.mark.parametrize("task", ["translate", "classify", "mask", "language"])
def test_ten_thousand_cut_texts_leave_one_note(task: str, tmp_path: Path) -> None:
    paths = []
    if task == "language":
        (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 40)
        paths = [f"data.paths={tmp_path / 'text.txt'}"]
    made: Task[Any, Any] = make(load(None, [*TINY, *paths], base=defaults(task, built_in=not paths)))
    made.data.prepare(tmp_path / "run")
    made.notes.take()
    before, text = len(made.notes), "the cat sat on the mat and so on and on and on and on"
    for _ in range(MANY // 100 if task in ("translate", "classify") else MANY):
        if task == "language":
            made._prompt(text)  # type: ignore[attr-defined]
        elif task == "mask":
            made._read(text)  # type: ignore[attr-defined]
        elif task == "translate":
            made.data.encode(made.data.source_tokens, [text] * 100, "input")  # type: ignore[attr-defined]
        else:
            made.data.rows([text] * 100)  # type: ignore[attr-defined]
    assert len(made.notes) == before + 1
    assert len(made.notes._counts) == 1
    (note,) = made.notes.take()
    assert "10,000" in note
    assert "cut to" in note
    assert len(made.notes) == before


def test_what_was_taken_is_not_told_again_and_what_comes_is() -> None:
    notes = Notes(["of the training"])
    assert notes.take() == []
    notes.append("new")
    notes.count_up("cut", 1, 1, lambda part, whole, first: f"{part} cut, the first of {first}", size=7)
    notes.append("newer")
    notes.count_up("cut", 1, 1, lambda part, whole, first: f"{part} cut, the first of {first}", size=9)
    assert notes.take() == ["new", "newer", "2 cut, the first of 7"]
    notes.count_up("cut", 1, 1, lambda part, whole, first: f"{part} cut, the first of {first}", size=9)
    assert notes.take() == ["1 cut, the first of 9"]
    assert notes == ["of the training", "new", "newer"]
