"""`regard check`: prove properties that must hold for every model on this one."""

import json as jsons
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.settings.errors import Failure
from regard.stdio import print_result
from regard.verbs.runs import chosen

if TYPE_CHECKING:
    from regard.check.consistency import Check

__all__ = ["main"]

WIDTH = 31


def main(run: Path | None, device: str, json: bool, *, verify: bool = True) -> None:
    folder = chosen(run)

    from regard.check.consistency import checks
    from regard.predictor import load

    predictor = load(folder, device=device, verify=verify)
    predictor.read_kept_data()
    found = []
    if not json:
        print_result(f"{'':{WIDTH}}{'largest difference':>18}{'at most':>10}")
    for check in checks(predictor.task.probe(predictor.model)):
        found.append(check)
        if not json:
            print_result(line(check), flush=True)
    failed = [check for check in found if not check.holds]
    if json:
        checked = [_record(check) for check in found]
        print_result(jsons.dumps({"run": str(folder), "holds": not failed, "checks": checked}))
    if failed:
        raise Failure(f"{folder}: {len(failed)} of {len(found)} checks failed: "
                      + ", ".join(check.name for check in failed))


def line(check: "Check") -> str:
    """A check with its difference and, if that is too large, its meaning and place."""
    told = f" ({check.note})" if check.note else ""
    verdict = f"ok{told}" if check.holds else f"FAILED: {check.otherwise} ({check.place})"
    return f"{check.name:{WIDTH}}{_short(check.difference):>18}{_short(check.tolerance):>10}  {verdict}"


def _short(number: float) -> str:
    return f"{number:.2g}"


def _record(check: "Check") -> dict[str, Any]:
    difference = check.difference if math.isfinite(check.difference) else None  # JSON has no infinity
    return {"name": check.name, "holds": check.holds, "difference": difference, "tolerance": check.tolerance,
            "place": check.place, "note": check.note, "otherwise": check.otherwise}
