"""Only one process at a time trains a run, or prepares its data: it holds `runs/NAME/lock` meanwhile.

The system releases the lock when the process ends in any way. So nothing has to be cleaned up after a
`kill -9`, and a file that is left behind means nothing: only a held lock counts.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from regard.settings.errors import UserError
from regard.settings.opening import own_folder, remove, to_read, to_write

__all__ = ["PREPARED", "hold", "is_held"]

FILE = "lock"
FILES = ("labels.json", "tokenizer.json", "tokenizer_config.json", "source_tokenizer.json",
         "source_tokenizer_config.json", "MANIFEST.json")
PREPARED = {"data", FILE, ".data.new", ".data.old", ".run.json.tmp", *FILES, *(f".{name}.tmp" for name in FILES)}
"""The files of a run that ended before its first step."""
BEGUN = {"run.json", "metrics.jsonl"}  # and at its first step
FOLDERS = ("checkpoints", "data", "events", "adapter", "generator", "1_Pooling")
"""The folders of a run into which it writes."""
RECENT_SECONDS = 60.0  # a run in training writes its log more often than that


Work = Literal["train", "prepare"]
DONE = {"train": "is being trained", "prepare": "has its data prepared"}


@contextmanager
def hold(folder: Path, say: Callable[[str], None] = lambda note: None, *, work: Work = "train") -> Iterator[None]:
    """Prevent other processes from training this run or preparing its data; an error if one of them already does.

    A process that wants to prepare data while another one prepares it waits, with a note through `say`. If files cannot
    be locked (Windows, some network file systems), nothing prevents a second process; `say` gets a note. A new run that
    is refused because of its data or a setting leaves nothing behind. A run that was stopped, or failed on a full disk,
    keeps its prepared data, so that the same command can resume it.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for name in FOLDERS:  # before the work, not at the end of it
        if (folder / name).is_symlink():
            own_folder(folder / name)
    if os.path.lexists(log := folder / "metrics.jsonl"):
        with open(log, "ab", opener=to_write):  # a link there is refused
            pass
    try:
        with _held(folder, say, work):
            absent = {name for name in PREPARED | BEGUN if not (folder / name).exists()}
            try:
                yield
            except UserError as error:
                if error.exit_code == UserError.exit_code and "run.json" in absent:
                    _clear(folder, absent)
                raise
            finally:
                if not (folder / "run.json").exists():  # it ended before the run began: leave nothing behind
                    with suppress(OSError):
                        (folder / FILE).unlink()  # while we hold it
    finally:
        if not (folder / "run.json").exists():
            with suppress(OSError):
                for place in made:
                    place.rmdir()


def _clear(folder: Path, names: set[str]) -> None:
    """Delete the new files, unless other processes also use them, or there is a checkpoint."""
    if os.environ.get("WORLD_SIZE", "1") != "1" or (folder / "checkpoints").exists():
        return
    for name in names:
        with suppress(OSError):
            remove(folder / name)


@contextmanager
def _held(folder: Path, say: Callable[[str], None], work: Work) -> Iterator[None]:
    path, attempts, has_said = folder / FILE, 10, False
    while attempts:
        with open(path, "a+", encoding="utf-8", opener=to_write) as file:
            got = _lock(file.fileno(), shared=False)
            if got is not False and _is_still(path, file.fileno()):
                if got is None and work == "train":
                    file.seek(0)
                    say(_unlocked(folder, file.read()))
                file.truncate(0)
                file.write(json.dumps({"process": os.getpid(), "host": socket.gethostname(), "work": work}) + "\n")
                file.flush()
                yield
                return
            file.seek(0)
            holder, its_work = _holder(written := file.read()), _work(written)
        if work == its_work == "prepare":
            if not has_said:
                say(f"note: {folder} {DONE[its_work]} by {holder}; waiting for it …")
            has_said = True
        else:
            attempts -= 1
        time.sleep(0.05)  # a process that calls `is_held` has the lock for an instant, too
    way = ", or choose another place with --out DIR" if work == "train" else ""
    raise UserError(f"{folder} {DONE[its_work]} by {holder}; wait for it to end{way}")


def _is_still(path: Path, file: int) -> bool:
    """Whether the open file still has this name: its last holder may have deleted it."""
    try:
        return os.fstat(file).st_ino == path.stat().st_ino
    except OSError:
        return False


def is_held(folder: Path) -> bool:
    """Whether a process is training this run now. Without locks: whether it has written its log recently."""
    try:
        with open(folder / FILE, encoding="utf-8", errors="replace", opener=to_read) as file:
            got = _lock(file.fileno(), shared=True)
            if got is False:
                return _work(file.read()) == "train"
    except FileNotFoundError:
        return False
    except OSError:
        got = None
    return _is_recent(folder / "metrics.jsonl") if got is None else not got


def _lock(file: int, *, shared: bool) -> bool | None:
    """Try to take the lock without waiting: true if it was free; None if there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        return None
    return True


def _unlocked(folder: Path, written: str) -> str:
    """The note for a file system without locks."""
    note = (f"note: files cannot be locked in {folder}, so nothing prevents a second process from training this run "
            "and damaging it: start it only once, or choose another place, such as a local disk, with --out DIR")
    if _is_recent(folder / "metrics.jsonl"):
        note += f"; {_holder(written)} has trained it within the last {RECENT_SECONDS:.0f} seconds: has it ended?"
    return note


def _holder(written: str) -> str:
    try:
        about = json.loads(written)
        return f"process {about['process']} on {about['host']}"
    except (ValueError, KeyError, TypeError):  # it holds the lock but has not yet written its name
        return "another process"


def _work(written: str) -> Work:
    """The work of a holder: in an older version always training."""
    try:
        return "prepare" if json.loads(written)["work"] == "prepare" else "train"
    except (ValueError, KeyError, TypeError):
        return "train"


def _is_recent(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < RECENT_SECONDS
    except OSError:
        return False
