"""Open files so that nothing hangs, and so that nothing is written through a link.

A file that a user names may be a link: links are followed to read. regard itself creates the files inside a run, so
a link there comes from someone else or from a backup. Writing through it would change a file outside the run.
The run directory itself may be a link, such as `runs/best`.
"""

import errno
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from regard.settings.errors import UserError

__all__ = ["own_folder", "refuse_irregular", "remove", "replacing", "to_read", "to_write"]

# Windows has neither, and no FIFO in the file system.
NO_WAIT, NO_LINK = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
FILE_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def to_read(path: str, flags: int) -> int:
    """An opener: `open(path, "rb", opener=to_read)` accepts only regular files, and never waits for a writer."""
    try:
        return _regular(os.open(path, flags | NO_WAIT), path)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket cannot be opened at all
            raise _irregular(path, stat.S_IFSOCK) from None
        raise


def to_write(path: str, flags: int) -> int:
    """An opener for a file inside a run: it follows no link, and accepts only regular files that have no other name.

    For a new file the mode is "xb": the file must not exist yet. `replacing` uses it for a file that is written whole.
    """
    if not NO_LINK and os.path.islink(path):
        raise _linked(path)
    try:
        # Truncate only after the checks.
        file = _regular(os.open(path, flags & ~os.O_TRUNC | NO_WAIT | NO_LINK, 0o666), path)
    except OSError as error:
        if os.path.islink(path):
            raise _linked(path) from None
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nothing reads
            raise _irregular(path, os.lstat(path).st_mode) from None
        raise
    if (names := os.fstat(file).st_nlink) > 1:
        os.close(file)
        raise _hard_linked(path, names)
    if flags & os.O_TRUNC:
        os.ftruncate(file, 0)
    return file


def refuse_irregular(path: Path) -> None:
    """For libraries that open a path themselves: refuse anything but a regular file, before they wait for it."""
    with open(path, "rb", opener=to_read):
        pass


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`. When it is complete and on the disk, it replaces `path`; on an error it is deleted."""
    temporary = path.with_name(f".{path.name}.tmp")
    remove(temporary)  # left by a killed process, or put here by someone else
    try:
        with open(temporary, "xb", opener=to_write) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def own_folder(path: Path) -> Path:
    """A folder inside a run, created if missing. A link to a folder elsewhere is refused."""
    if path.is_symlink():
        raise _linked(str(path))
    path.mkdir(parents=True, exist_ok=True)
    return path


def remove(path: Path) -> None:
    """Delete a file, a folder with its content, or a link but not its target, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _regular(file: int, path: str) -> int:
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise _irregular(path, mode)


def _irregular(path: str, mode: int) -> UserError:
    kind, remedy = stat.S_IFMT(mode), "; save its content to a file first" if stat.S_ISFIFO(mode) else ""
    return UserError(f"{path}: is {FILE_KINDS.get(kind, 'something else')}, not a regular file{remedy}")


def _linked(path: str) -> UserError:
    return UserError(f"{path}: is a symbolic link, and regard does not write through links inside a run; replace it "
                     "with a copy of its target, or delete it (the run directory itself may be a link)")


def _hard_linked(path: str, names: int) -> UserError:
    own, new = shlex.quote(path), shlex.quote(f"{path}.copy")
    return UserError(f"{path}: is one of {names} names of a file (hard links, as `cp -al` makes them), and what is "
                     f"written here would be changed there; put a copy in its place: cp {own} {new} && mv {new} {own}")
