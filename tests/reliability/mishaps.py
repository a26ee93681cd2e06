"""`regard`, with a diary of what each process does at each step, and with mishaps.

    DIARY=folder MISHAPS='nan:1:3 kill:0:5' torchrun … mishaps.py train …

A mishap is what happens, to which process, at which step; it happens once. `kill` and `term` are signals to that
process alone, `nan` spoils its loss, `raise` is an exception. PACE is the least time of a step, in seconds. With
PATIENCE, processes wait no longer than that for each other, and the first takes twice as long to read its data.
"""

import faulthandler
import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

PACE = float(os.environ.get("PACE", "0"))
PATIENCE = float(os.environ.get("PATIENCE", "0"))
DIARY = Path(os.environ.get("DIARY", ""))
RANK = int(os.environ.get("RANK", "0"))
MISHAPS = {int(step): what for what, rank, step in (text.split(":") for text in os.environ.get("MISHAPS", "").split())
           if int(rank) == RANK}


def happens(step: int) -> str | None:
    """What befalls this process now; not again after a restart."""
    what = MISHAPS.get(step)
    if what is not None:
        try:
            (DIARY / f"{what}-{RANK}-{step}").touch(exist_ok=False)
        except FileExistsError:
            return None
    return what


def main() -> None:
    from regard.cli import main
    from regard.training import loop, parallel
    from regard.training.update import Update

    make, call = loop.make, Update.__call__
    if PATIENCE:
        parallel.LOST_AFTER = timedelta(seconds=PATIENCE)

    def noting(run: Any) -> Any:
        """A task whose batches know their examples."""
        task = make(run)
        collate, prepare = task.data.collate, task.data.prepare

        def collated(split: str, chosen: Any) -> Any:
            batch = collate(split, chosen)
            object.__setattr__(batch, "examples", chosen.indices.tolist())
            return batch

        def prepared(folder: Path) -> Any:
            time.sleep(0 if RANK else 2 * PATIENCE)
            return prepare(folder)

        task.data.collate, task.data.prepare = collated, prepared  # type: ignore[method-assign]
        return task

    def noted(self: Update, batch: Any, step: int, counts: Mapping[str, float] | None = None) -> Any:
        time.sleep(PACE)
        whole = self.loss
        match happens(step):
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "raise":
                raise ValueError("a mishap")
            case "nan":
                self.loss = lambda model, piece: tuple(
                    replace(term, total=term.total * float("nan")) for term in whole(model, piece))
        report = call(self, batch, step, counts)
        self.loss = whole
        note(step, batch.examples, self.parameters)
        return report

    loop.make, Update.__call__ = noting, noted  # type: ignore[assignment,method-assign]
    main()


def note(step: int, examples: list[int], parameters: list[Any]) -> None:
    """A line in the diary: what was learned from, and what of the weights this process holds now."""
    held = hashlib.sha256()
    for parameter in parameters:
        part = parameter.detach()
        held.update((part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes())
    line = {"step": step, "rank": RANK, "examples": examples, "weights": held.hexdigest(), "process": os.getpid(),
            "time": time.time(), "size": int(os.environ.get("WORLD_SIZE", "1"))}
    with open(DIARY / f"{RANK}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(90)  # a start that hangs says where
    main()
