"""Bytes become text, line by line, the same way for a file, a gzip and standard input.

A line ends at the byte `\\n` and nowhere else: U+2028, U+0085 and the like are characters of a line, because
two parallel files must have the same line 7.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.opening import to_read

__all__ = ["NotUTF8", "is_text", "read_lines", "read_text"]

GZIP = b"\x1f\x8b"
# UTF-32's little-endian mark begins with UTF-16's: it must be tried first.
MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
MAX_START = 4096  # bytes that tell a text from other files


class NotUTF8(UserError):
    """A text in another encoding."""


def read_lines(source: Path | Iterable[bytes], name: str, *, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file (gzipped or not) or of a binary stream, without their ends; `name` is for messages.

    A byte order mark is dropped, and CRLF is read as LF. An empty file has no lines: the caller decides whether that
    is an error.

    >>> from io import BytesIO
    >>> list(read_lines(BytesIO(b"ein Hund\\r\\n\\nzwei"), "dogs.de"))
    ['ein Hund', '', 'zwei']
    >>> list(read_lines(BytesIO(b"gut\\nsch\\xf6n\\n"), "dogs.de"))
    Traceback (most recent call last):
    regard.data.lines.NotUTF8: dogs.de:2: byte 0xf6 at offset 7 is not UTF-8; it looks like Latin-1:
    convert it with `iconv -f ISO-8859-1 -t UTF-8 dogs.de > NEW`
    """
    for line in _read(source, name, encoding):
        yield line.removesuffix("\n").removesuffix("\r")


def read_text(source: Path | Iterable[bytes], name: str) -> Iterator[str]:
    """The same with the line ends, each of them LF: put together, the lines are the text.

    >>> from io import BytesIO
    >>> list(read_text(BytesIO(b"ein Hund\\r\\n\\nzwei"), "dogs.de"))
    ['ein Hund\\n', '\\n', 'zwei']
    """
    for line in _read(source, name, "utf-8"):
        yield f"{line[:-2]}\n" if line.endswith("\r\n") else line


def is_text(file: Path) -> bool:
    """Whether the file begins as a text of some encoding.

    Of one that cannot be read it says yes: whoever reads it says why.
    """
    try:
        with open(file, "rb", opener=to_read) as stream:
            start = stream.read(MAX_START)
    except (OSError, UserError):
        return True
    return b"\0" not in start or start.startswith(tuple(MARKS))


def _read(source: Path | Iterable[bytes], name: str, encoding: str) -> Iterator[str]:
    try:
        if isinstance(source, Path):
            with open(source, "rb", opener=to_read) as file:
                packed = file.peek(2).startswith(GZIP) or source.suffix == ".gz"
                yield from _decoded(gzip.GzipFile(fileobj=file) if packed else file, name, encoding)
        else:
            yield from _decoded(source, name, encoding)
    except FileNotFoundError:
        raise UserError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{name}: is a directory, not a file") from None
    except PermissionError:
        raise UserError(f"{name}: no permission to read it") from None
    except EOFError:
        raise UserError(f"{name}: the gzip is cut short; fetch or pack it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{name}: not a valid gzip ({error}); fetch or pack it again") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from None


def _decoded(stream: Iterable[bytes], name: str, encoding: str) -> Iterator[str]:
    offset = 0
    for number, line in enumerate(stream, 1):
        if number == 1:
            _refuse_wide(line, name)
            if line.startswith(codecs.BOM_UTF8):
                line = line.removeprefix(codecs.BOM_UTF8)
                offset = len(codecs.BOM_UTF8)
        if b"\0" in line:
            place = offset + line.index(b"\0")
            raise UserError(
                f"{name}:{number}: NUL byte at offset {place}; "
                "this looks like a binary file or UTF-16, not a text"
            )
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            bad, place = line[error.start], offset + error.start
            raise NotUTF8(
                f"{name}:{number}: byte 0x{bad:02x} at offset {place} is not UTF-8; {_advice(line, name)}"
            ) from None
        offset += len(line)
        yield text


def _refuse_wide(start: bytes, name: str) -> None:
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            raise UserError(
                f"{name}:1: byte order mark of {encoding} at offset 0, not UTF-8; "
                f"convert it with `iconv -f {encoding} -t UTF-8 {name} > NEW`"
            )


def _advice(line: bytes, name: str) -> str:
    # 0x80–0x9f are control characters in Latin-1: a text that has them is in another encoding.
    if all(byte < 0x80 or byte >= 0xA0 for byte in line):
        return f"it looks like Latin-1: convert it with `iconv -f ISO-8859-1 -t UTF-8 {name} > NEW`"
    return f"convert it with `iconv -f ENCODING -t UTF-8 {name} > NEW`"
