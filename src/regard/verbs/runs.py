"""Where runs lie, which one is meant when none is named, and `regard runs`, which shows them all."""

import json as jsons
import shutil
from collections.abc import Sequence
from pathlib import Path

from regard.runs.listing import record, table
from regard.runs.summary import Summary, summaries, summary
from regard.settings.errors import UserError
from regard.settings.setting import ascii_unless_printable
from regard.stdio import print_message, print_result

__all__ = ["ROOT", "chosen", "main", "page_file", "prepare_to_draw"]

ROOT = Path("runs")
PICTURE = "learning-curves.png"
PICTURES = {".png", ".svg", ".pdf"}
PAGES = {".html", ".htm"}
ENDLESS = 100_000  # columns where stdout is no terminal


def main(places: Sequence[Path], run: Path | None, plot: bool, json: bool) -> None:
    folder, picture = _folder_and_picture(places, plot)
    if folder is not None and run is not None:
        raise UserError(f"{folder} and --run {run}: name a folder of runs, or one run")
    place = folder or ROOT
    if run is not None or (place / "run.json").is_file():
        place = chosen(run or place)
        runs = [summary(place)]
    else:
        runs = summaries(place) if place.is_dir() else []
    if not runs:
        print_message(f"no run in {place} yet: train one with `regard train`")
    if plot and runs:
        _plot(runs, picture or place / PICTURE, json)
    else:
        _list(runs, json)


def _folder_and_picture(places: Sequence[Path], plot: bool) -> tuple[Path | None, Path | None]:
    """Which of `[FOLDER] --plot [FILE.png]` is which, in whatever order they come."""
    pictures = [path for path in places if path.suffix.lower() in PICTURES]
    folders = [path for path in places if path not in pictures]
    if pictures and not plot:
        raise UserError(f"{pictures[0]}: a picture is drawn with --plot {pictures[0]}")
    if len(pictures) > 1 or len(folders) > 1:
        raise UserError(f"{' and '.join(map(str, places))}: give at most one folder and one picture")
    for folder in folders:
        if not folder.is_dir():
            wrong = "a file, not a folder of runs" if folder.exists() else "no such folder"
            raise UserError(f"{folder}: {wrong}")
    return next(iter(folders), None), next(iter(pictures), None)


def _list(runs: Sequence[Summary], json: bool) -> None:
    if json:
        print_result(jsons.dumps([record(each) for each in runs], indent=1, ensure_ascii=False))
    elif runs:
        print_result(table(runs, width=shutil.get_terminal_size((ENDLESS, 0)).columns))


def _plot(runs: Sequence[Summary], file: Path, json: bool) -> None:
    curves = {ascii_unless_printable(each.name): each.curves for each in runs if each.curves.step}
    if not curves:
        raise UserError(f"nothing to draw yet: {', '.join(each.name for each in runs)} said no loss")
    try:
        from regard.look.plots.loss_curves import draw
    except ModuleNotFoundError:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from None
    draw(curves, file)
    print_result(jsons.dumps({"picture": str(file), "runs": list(curves)}, ensure_ascii=False) if json else file)


def chosen(run: Path | None) -> Path:
    """The run that was named, or the newest."""
    if run is not None:
        if not run.exists():
            raise UserError(f"{run}: no such run directory")
        if not run.is_dir():
            raise UserError(f"{run}: a file, not a run directory")
        if not (run / "run.json").is_file():
            raise UserError(f"{run}: not a run directory (it has no run.json)")
        return run
    found = sorted(ROOT.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(f"no run under {ROOT}/ yet: train one with `regard train`, or name one with --run DIR")
    if len(found) > 1:
        print_message(f"using the newest run, {found[-1].parent}")
    return found[-1].parent


def page_file(out: Path) -> Path:
    """The path of the page. Refuse an impossible one before the work, not after it."""
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"--out {out}: {'a folder, not a file' if out.is_dir() else 'no such folder'}")
    if out.suffix.lower() not in PAGES:
        raise UserError(f"--out {out}: the page is HTML; name it {out.with_suffix('.html')}")
    return out


def prepare_to_draw(file: Path) -> None:
    """Refuse an impossible plot before the work, not after it."""
    if file.suffix.lower() not in PICTURES:
        raise UserError(f"--plot {file}: a picture ends in {', '.join(sorted(PICTURES))}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from None
