"""The standard streams: results go to stdout, messages to stderr, and either may be closed, broken or a terminal.

A message is for a person and never ends the work: where it cannot be written, it is lost. A result that cannot be
written is an error. On a terminal, control characters in a text are shown, not obeyed: a model's answer could move the
cursor, change the title or, on some terminals, type a command. A pipe or a file gets every text as it is.
"""

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LastingStream", "console", "escape_controls", "is_terminal", "open_closed_streams", "print_drawing",
           "print_message", "print_result", "release"]

Stream = Any  # of text: a file, or what a notebook or a test has put in its place; or None, where there is none

# All of Unicode's control characters but the line feed and the tab, in the notation of JSON: so JSON stays JSON.
ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def escape_controls(text: str) -> str:
    """The text with its control characters shown, but for line feeds and tabs.

    >>> print(escape_controls("a\\x1b[31mb\\r\\n"), end="")
    a\\u001b[31mb\\u000d
    """
    return text.translate(ESCAPES)


def is_terminal(stream: Stream) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):  # closed
        return False


def _shown_on(stream: Stream, text: str) -> str:
    """The text as this stream should get it."""
    return escape_controls(text) if is_terminal(stream) else text


def print_result(text: object, *, end: str = "\n", flush: bool = False) -> None:
    """Print a result to stdout. A closed terminal counts as a broken pipe."""
    try:
        print(_shown_on(sys.stdout, str(text)), end=end, flush=flush)
    except OSError as error:
        if error.errno == errno.EIO and stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode):  # and no failing disk
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error
        raise


def print_drawing(text: str) -> None:
    """A result with colours of our own. Any text from elsewhere that is in it is escaped already."""
    print(text)


def print_message(text: object) -> None:
    """A line for a person, to stderr."""
    if sys.stderr is not None:  # print takes None for stdout
        print(_shown_on(sys.stderr, str(text)), file=LastingStream(sys.stderr), flush=True)


class LastingStream:
    """A text stream that raises nothing when its other end is gone; what is written then is lost.

    The reader of a pipe may have ended (`2>&1 | tee log` dies of Ctrl-C first), a terminal may have been closed, a disk
    may be full.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # the latter where the stream was closed
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.flush()

    def isatty(self) -> bool:
        return is_terminal(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def console() -> "Console":
    """Rich's console on stderr, for a progress bar: rich's own ends the process if the reader has closed the pipe."""
    from rich.console import Console

    return Console(file=LastingStream(sys.stderr))  # type: ignore[arg-type]  # what rich calls of it is there


def open_closed_streams() -> None:
    """Put the null device where a standard stream was closed (`2>&-`): the next opened file would take its number.

    A library's output to stderr would go into that file. `sys.stdin` stays None: there is nothing to read.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # never where the lower ones are open
                os.dup2(opened, number)
                os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def release(stream: Stream) -> None:
    """Throw away what a stream could not write: at the end Python would try again, and make the exit code 120 of it."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
