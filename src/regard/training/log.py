"""The log of a run: lines of metrics.jsonl, events for TensorBoard, a progress bar or lines on stderr."""

import json
import math
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.settings.errors import UserError
from regard.settings.opening import own_folder, to_read, to_write
from regard.settings.schema import Train
from regard.stdio import console, escape_controls, is_terminal, print_message

__all__ = ["Log", "check_tracking"]

FILE = "metrics.jsonl"
SAY_AFTER = 20.0  # seconds after which a slow run prints a line before its next log step
SPLITS = {"step": "training", "evaluation": "validation"}  # of the losses, as TensorBoard shows them


class Log:
    """Writes to `metrics.jsonl` and to stderr: on a terminal a bar, elsewhere lines.

    With `track` it also writes all figures as TensorBoard events, under `events/`.
    """

    def __init__(self, folder: Path | None, how: Train, *, quiet: bool = False, counted: str = "tokens") -> None:
        """Without a folder nothing is written: only one of many processes writes. `counted` is the unit."""
        self.folder, self.how, self.quiet, self.counted = folder, how, quiet, counted
        self.steps, self.start, self.latest = how.steps, 0, 0
        self.file = (open(os.devnull, "a", encoding="utf-8") if folder is None  # noqa: SIM115 (closed by __exit__)
                     else open(folder / FILE, "a", encoding="utf-8", opener=to_write))  # noqa: SIM115
        if folder is not None and _is_cut(folder / FILE):
            self.file.write("\n")  # a kill has cut the last line: do not append to it
        self.began = self.newest = time.monotonic()
        self.tokens, self.waited = 0, 0.0
        self.events: Any = None
        self.bar: Any = None
        self.task: Any = None

    def begin(self, step: int) -> None:
        """Start or resume at this step."""
        self.start = self.latest = step
        self.began = self.newest = time.monotonic()
        if self.how.track and self.folder is not None:
            self.events = _events(own_folder(self.folder / "events"), step)
        if step:
            self.write("resumed", step=step)
        if not self.quiet and is_terminal(sys.stderr):
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("train"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(), console=console())
            self.task = self.bar.add_task("", total=self.steps, completed=step)
            self.bar.start()

    def count(self, step: int, tokens: int, waited: float = 0.0) -> None:
        """Count a finished step with its tokens, and the seconds spent waiting for its batch."""
        self.tokens += tokens
        self.waited += waited
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=step)

    def is_due(self, step: int) -> bool:
        """Whether it is time for a line: some steps or seconds after the last one, and at the end."""
        if self.folder is None:
            return False
        waited = time.monotonic() - self.newest
        return step % self.how.log_every == 0 or step == self.steps or waited > SAY_AFTER

    def step(self, step: int, **values: float) -> None:
        """Log the values after `step` steps."""
        now = time.monotonic()
        speed = self.tokens / max(now - self.newest, 1e-9)
        self.write("step", step=step, tokens_per_second=round(speed), waited=round(self.waited, 4), **values)
        self.newest, self.tokens, self.waited = now, 0, 0.0
        text = f"loss {values['loss']:.3f}  {speed:,.0f} {self.counted}/s"
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=step, description=text)
        else:
            left = (now - self.began) / max(step - self.start, 1) * (self.steps - step)
            self.say(f"step {step:>6,}/{self.steps:,}  {text}  {_clock(left)} left")

    def write(self, kind: str, **values: Any) -> None:
        known = {name: None if isinstance(value, float) and not math.isfinite(value) else value
                 for name, value in values.items()}  # JSON has no NaN
        self.file.write(json.dumps({"kind": kind, "time": round(time.time(), 3), **known}) + "\n")
        self.file.flush()
        self.latest = values.get("step", self.latest)
        if self.events is not None:
            split = values.get("split", SPLITS.get(kind, kind))
            for name, value in values.items():
                if isinstance(value, int | float) and name != "step":
                    self.events.add_scalar(f"{name}/{split}", value, self.latest)

    def say(self, text: str) -> None:
        """Print a line."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(escape_controls(text), markup=False, highlight=False, emoji=False)
        else:
            print_message(text)

    def evaluation(self, step: int, loss: float, *, best: bool) -> None:
        """Log the validation loss."""
        self.write("evaluation", step=step, loss=loss)
        self.say(f"step {step:>6,}/{self.steps:,}  validation loss {loss:.4f}" + "  (the best so far)" * best)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.events is not None:
            self.events.close()
        self.file.close()


def check_tracking(how: Train) -> None:
    """Refuse train.track without TensorBoard, before the run begins."""
    if how.track and find_spec("tensorboard") is None:
        raise UserError("train.track: needs TensorBoard; pip install tensorboard, or remove it")


def _events(folder: Path, start: int) -> Any:
    """A writer of events. TensorBoard drops the events of steps that are repeated after a kill."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=start + 1, flush_secs=20)


def _is_cut(file: Path) -> bool:
    with open(file, "rb", opener=to_read) as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - 1))
        return content.read() not in (b"", b"\n")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
