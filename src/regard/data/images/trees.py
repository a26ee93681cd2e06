"""Trees of files: a folder, a zip or a tar. All give names and contents, and nothing is unpacked.

An archive with names that lead out of it, or with links, is refused. Sizes are bounded: a small archive can claim
terabytes.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from io import BufferedIOBase, BufferedReader
from itertools import count as count_from
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, cast

from regard.data.images.formats import is_archive
from regard.data.layout import is_directory
from regard.settings.errors import UserError, amount, count
from regard.settings.opening import to_read

Content = Callable[[], bytes | None]
"""Reads the bytes of a file; None: it is to be opened by its `place`. An error is one of this file only."""

__all__ = ["MAX_MEMBER_BYTES", "Archive", "Content", "Folder", "Tar", "Tree", "Zip", "leaves", "tree_of"]

MAX_MEMBERS = 1 << 22
MAX_MEMBER_BYTES = 1 << 29
MAX_KEPT_BYTES = 1 << 28  # of a tar in memory
MAX_INFLATION = 1_000  # times the size of the archive: images are compressed already
ALWAYS_FINE = 1 << 30  # bytes
PIECE = 1 << 16  # bytes of a zip's member that are unpacked at once
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others zipfile unpacks more at once than it is asked for

BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, LookupError,
          NotImplementedError, RuntimeError, OverflowError, MemoryError, gzip.BadGzipFile)


@dataclass(frozen=True, eq=False)
class Tree(ABC):
    """Files below one place, by their names with `/`."""

    path: Path

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """All regular files that are not hidden, in the order in which they are read fastest."""

    @abstractmethod
    def contents(self, wanted: Collection[str]) -> "Iterator[tuple[str, Content]]":
        """The wanted names in their order with their contents, each to be read before the next."""

    def has(self, name: str) -> bool:
        return name in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    def ending_in(self, path: str) -> list[str]:
        """The names that are this path below some folder."""
        depth = path.count("/") + 1
        if depth not in self._by_ending:
            endings = self._by_ending.setdefault(depth, {})
            for name in self.names:
                endings.setdefault("/".join(name.split("/")[-depth:]), []).append(name)
        return self._by_ending[depth].get(path, [])

    @cached_property
    def _by_ending(self) -> dict[int, dict[str, list[str]]]:
        """By a number of parts: the names by that many of their last parts."""
        return {}

    def place(self, name: str) -> str:
        """The name of a file in messages; outside of archives also its path."""
        return f"{self.path}/{name}"

    def read(self, name: str) -> bytes:
        return next(content() for _, content in self.contents([name])) or b""


@dataclass(frozen=True, eq=False)
class Folder(Tree):
    """A folder. Links are followed, but for those that lead in a circle."""

    @cached_property
    def names(self) -> list[str]:
        return sorted(self.some_names())

    def some_names(self) -> Iterator[str]:
        """The names as the file system gives them, for who does not need them all."""
        seen = set[str]()
        for place, folders, files in os.walk(self.path, onerror=_refuse, followlinks=True):
            if (real := os.path.realpath(place)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            base = Path(place).relative_to(self.path)
            yield from ((base / name).as_posix() for name in files if not _is_hidden(name))

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, Content]]:
        yield from ((name, lambda: None) for name in sorted(wanted))

    def has(self, name: str) -> bool:
        return os.path.isfile(self.path / name)

    def read(self, name: str) -> bytes:
        try:
            with open(self.path / name, "rb", opener=to_read) as file:
                return file.read()
        except OSError as error:
            raise UserError(f"{self.place(name)}: cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True, eq=False)
class Archive(Tree):
    """A zip or a tar."""

    @contextmanager
    def _named_errors(self, name: str | None = None) -> Iterator[None]:
        """Errors of the archive, or of its member `name`."""
        place, thing = (self.path, "archive") if name is None else (self.place(name), "member of an archive")
        try:
            yield
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such file") from None
        except PermissionError:
            raise UserError(f"{self.path}: no permission to read it") from None
        except BROKEN as error:
            why = " ".join(str(error).split())
            raise UserError(f"{place}: a damaged {thing}{f' ({why[:80]})' if why else ''}; fetch or pack it "
                            "again") from None
        except OSError as error:
            raise UserError(f"{place}: cannot be read: {error.strerror or error}") from None

    def _safe(self, name: str, *, is_link: bool) -> str | None:
        """The name without `./`; None: of a hidden file."""
        if is_link:
            raise UserError(f"{self.path}: its member {name!r} is a link; pack the file that it points to")
        if leaves(name):
            raise UserError(f"{self.path}: its member {name!r} leads out of the archive; pack it again with "
                            "plain names")
        parts = PurePosixPath(name.replace("\\", "/")).parts
        return None if any(map(_is_hidden, parts)) or not parts else "/".join(parts)

    def _refuse_large(self, members: int, size: int) -> None:
        if members > MAX_MEMBERS:
            raise UserError(f"{self.path}: has more than {count(MAX_MEMBERS, 'member')}; unpack it, and "
                            "give the folder")
        if size > max(ALWAYS_FINE, MAX_INFLATION * self.path.stat().st_size):
            raise UserError(f"{self.path}: would unpack to more than {MAX_INFLATION:,} times its size, which no images "
                            "do")

    def _refuse_member(self, name: str, size: int) -> None:
        if size > MAX_MEMBER_BYTES:
            raise UserError(f"{self.path}: its member {name!r} has {amount(size)}; at most {amount(MAX_MEMBER_BYTES)} "
                            "are read")


@dataclass(frozen=True, eq=False)
class Zip(Archive):
    """A zip archive."""

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        with self._opened() as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            self._refuse_large(len(infos), sum(info.file_size for info in infos))
            named = ((self._safe(info.filename, is_link=stat.S_ISLNK(info.external_attr >> 16)), info)
                     for info in infos)
            return {name: info for name, info in named if name is not None}

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, Content]]:
        chosen = frozenset(wanted)
        with self._opened() as archive:
            for name, info in self._members.items():
                if name in chosen:
                    if info.flag_bits & 1:
                        raise UserError(f"{self.path}: has a password; unpack it, and give the folder")
                    if info.compress_type not in COMPRESSIONS:
                        raise UserError(f"{self.path}: is compressed in an unusual way; unpack it, and give the folder")
                    yield name, partial(self._content, archive, name, info)

    def _content(self, archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> bytes:
        self._refuse_member(name, info.file_size)
        with self._named_errors(name), archive.open(info) as file:
            # Not all at once: it may unpack to more than the directory tells, and is then refused by its checksum.
            return b"".join(iter(lambda: file.read(PIECE), b""))

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        with ExitStack() as stack:
            with self._named_errors():
                file = stack.enter_context(open(self.path, "rb", opener=to_read))
                archive = stack.enter_context(zipfile.ZipFile(file))
            yield archive


@dataclass(frozen=True, eq=False)
class Tar(Archive):
    """A tar archive, compressed or not. It is read from its beginning to its end: that is fast also when compressed."""

    @property
    def names(self) -> list[str]:
        return self._listed[0]

    @cached_property
    def _listed(self) -> tuple[list[str], dict[str, bytes]]:
        """All names; and all contents, if they are few bytes: to unpack a second time would take as long again."""
        names, kept, size = list[str](), dict[str, bytes](), 0
        for name, member, archive in self._members():
            names.append(name)
            size += member.size
            if size <= MAX_KEPT_BYTES:
                kept[name] = self._content(archive, name, member)
        return names, kept if size <= MAX_KEPT_BYTES else {}

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, Content]]:
        names, kept = self._listed
        chosen = frozenset(wanted)
        if kept:
            yield from ((name, partial(kept.get, name)) for name in names if name in chosen)
            return
        left = len(chosen)
        for name, member, archive in self._members():
            if name in chosen:
                yield name, partial(self._content, archive, name, member)
                left -= 1
                if not left:
                    return

    def _content(self, archive: tarfile.TarFile, name: str, member: tarfile.TarInfo) -> bytes:
        self._refuse_member(name, member.size)
        with self._named_errors(name):
            file = archive.extractfile(member)
            return b"" if file is None else file.read()

    def first_names(self, most: int) -> list[str]:
        """The first names, without reading to the end."""
        return [name for name, *_ in islice(self._members(), most)]

    def _members(self) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
        seen = set[str]()
        with ExitStack() as stack:
            with self._named_errors():
                raw = stack.enter_context(open(self.path, "rb", opener=to_read))
                archive = stack.enter_context(tarfile.TarFile(fileobj=cast(IO[bytes], _Bounded(_unpacked(raw)))))
            for number in count_from(1):
                with self._named_errors():
                    member = archive.next()
                if member is None:
                    return
                archive.members = []  # type: ignore[attr-defined]  # tarfile keeps them all
                self._refuse_large(number, member.offset_data)
                name = self._safe(member.name, is_link=member.issym() or member.islnk())
                if name is not None and member.isreg() and name not in seen:
                    seen.add(name)
                    yield name, member, archive


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    match file.peek(2)[:2]:
        case b"\x1f\x8b":
            return gzip.GzipFile(fileobj=file)
        case b"\xfd7":
            return lzma.LZMAFile(file)
        case b"BZ":
            return bz2.BZ2File(file)
    return file


class _Bounded:
    """A stream that never reads more than one member at once: headers of a tar may claim any size."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self.stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_MEMBER_BYTES:
            raise tarfile.ReadError("a header of impossible size")
        return self.stream.read(size)


def tree_of(path: Path) -> Tree:
    """The tree at a path that a user gave."""
    if is_directory(path):
        return Folder(path)
    if not is_archive(path.name):
        raise UserError(f"{path}: neither a folder nor an archive of images")
    return (Zip if path.name.lower().endswith(".zip") else Tar)(path)


def leaves(name: str) -> bool:
    """Whether a name may lead out of the place that it is relative to.

    >>> [leaves(name) for name in ("cat/1.jpg", "../1.jpg", "/etc/passwd", "C:\\\\1.jpg", "a/../../1.jpg")]
    [False, True, True, True, True]
    """
    plain = name.replace("\\", "/")
    return plain.startswith("/") or plain[1:2] == ":" or ".." in plain.split("/") or "\0" in name


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _refuse(error: OSError) -> None:
    raise UserError(f"{error.filename}: cannot be read: {error.strerror or error}")
