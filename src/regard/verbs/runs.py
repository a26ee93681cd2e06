"""Where runs lie, and which one is meant when none is named."""

import sys
from pathlib import Path

from regard.settings.errors import UserError

__all__ = ["ROOT", "chosen"]

ROOT = Path("runs")


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
