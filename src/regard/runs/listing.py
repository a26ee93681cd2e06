"""Lists of runs: as a table for a terminal, and as JSON."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from regard.runs.summary import Score, Summary
from regard.settings.schema import Data
from regard.settings.setting import ascii_unless_printable

__all__ = ["record", "table"]

COLUMNS = ("name", "state", "step", "val loss", "score", "task", "data", "size", "touched")
FIGURES = {"step", "val loss", "size", "touched"}  # aligned right; words are aligned left
FIRST_TO_GO = ("data", "task", "size")  # dropped in this order if the terminal is too narrow
SHORTEST_NAME = 12
GAP = "  "


def table(runs: Sequence[Summary], *, width: int) -> str:
    """A heading and a line for each run, shortened to `width` if possible."""
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *map(_cells, runs)]
    columns = list(COLUMNS)
    widths = {column: max(len(row[column]) for row in rows) for column in columns}

    def excess() -> int:
        return sum(widths[column] + len(GAP) for column in columns) - len(GAP) - width

    for column in FIRST_TO_GO:
        if excess() > 0:
            columns.remove(column)
    widths["name"] = max(widths["name"] - max(excess(), 0), min(widths["name"], SHORTEST_NAME))
    lines = []
    for row, problem in zip(rows, [None, *(run.problem for run in runs)], strict=True):
        cells = [row[column].rjust(widths[column]) if column in FIGURES
                 else _cut(row[column], widths[column]).ljust(widths[column]) for column in columns]
        line = GAP.join(cells).rstrip()
        lines.append(line if problem is None else _cut(f"{line}{GAP}{ascii_unless_printable(problem)}", width))
    return "\n".join(lines)


def record(run: Summary) -> dict[str, Any]:
    """Everything that is known about a run, for JSON."""
    settings = run.run
    return {
        "name": run.name, "run": str(run.folder), "state": run.state, "problem": run.problem,
        "task": settings and settings.task, "data": settings and list(settings.data.paths),
        "step": run.curves.step, "steps": settings and settings.train.steps,
        "validation_loss": run.curves.best, "score": run.score and asdict(run.score), "bytes": run.size,
        "touched": datetime.fromtimestamp(run.touched).astimezone().isoformat(timespec="seconds")}


def _cells(run: Summary) -> dict[str, str]:
    cells = dict.fromkeys(COLUMNS, "") | {"name": ascii_unless_printable(run.name), "state": run.state}
    if run.state in ("unreadable", "no run"):
        return cells
    best, settings = run.curves.best, run.run
    return cells | {
        "step": "" if run.state == "converted" else f"{run.curves.step:,}" + (
            f"/{settings.train.steps:,}" if settings else ""),
        "val loss": "" if best is None else f"{best:.4f}",
        "score": _score(run.score) if run.score else "",
        "task": settings.task if settings else "", "data": _data(settings.data) if settings else "",
        "size": _size(run.size), "touched": _ago(time.time() - run.touched)}


def _data(data: Data) -> str:
    return _cut(ascii_unless_printable(", ".join(Path(path).name for path in data.paths)), 24) or "built-in"


def _score(score: Score) -> str:
    return f"{score.name} {score.value:.2f}" + ("" if score.split.startswith("test") else f" ({score.split})")


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _ago(seconds: float) -> str:
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s ago"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 48 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return f"{seconds // (24 * 3600):.0f} days ago"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
