"""Where runs lie, which one is meant when none is named, and `regard runs`, which shows them all."""

import json as jsons
import shutil
import sys
from pathlib import Path

from regard.settings.errors import UserError

__all__ = ["ROOT", "chosen", "main"]

ROOT = Path("runs")
ENDLESS = 100_000  # columns where stdout is no terminal


def main(folder: Path | None, run: Path | None, json: bool) -> None:
    from regard.verbs.listing import record, table
    from regard.verbs.summary import summaries, summary

    if folder is not None and run is not None:
        raise UserError(f"{folder} and --run {run}: name a folder of runs, or one run")
    if folder is not None and not folder.is_dir():
        wrong = "a file, where a folder of runs is wanted" if folder.exists() else "no such folder"
        raise UserError(f"{folder}: {wrong}")
    place = folder or ROOT
    if run is not None or (place / "run.json").is_file():
        runs = [summary(chosen(run or place))]
    else:
        runs = summaries(place) if place.is_dir() else []
    if not runs:
        print(f"no run in {place} yet: train one with `regard train`", file=sys.stderr)
    if json:
        print(jsons.dumps([record(each) for each in runs], indent=1, ensure_ascii=False))
    elif runs:
        print(table(runs, width=shutil.get_terminal_size((ENDLESS, 0)).columns))


def chosen(run: Path | None) -> Path:
    """The run that was named, or the newest."""
    if run is not None:
        if not run.exists():
            raise UserError(f"{run}: no such run directory")
        if not run.is_dir():
            raise UserError(f"{run}: a file, where a run directory is wanted")
        if not (run / "run.json").is_file():
            raise UserError(f"{run}: not a run directory (it has no run.json)")
        return run
    found = sorted(ROOT.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(f"no run under {ROOT}/ yet: train one with `regard train`, or name one with --run DIR")
    if len(found) > 1:
        print(f"using the newest run, {found[-1].parent}", file=sys.stderr)
    return found[-1].parent
