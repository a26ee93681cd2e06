"""The pixels of a split: every image decoded once, in threads, into one array of bytes, which is then mapped.

Images that cannot be read are left out and named. Nothing is lost silently: if more than half cannot be read, or all
images of a label, that is an error.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from regard.data.images.decode import BadImage, ImageFile
from regard.data.images.files import Found
from regard.data.progress import progress
from regard.data.ragged import UNREADABLE, damaged
from regard.settings.errors import UserError, out_of
from regard.settings.opening import refuse_irregular, replacing
from regard.settings.schema import Image

__all__ = ["Kept", "Pixels", "Store", "load_store", "notes_on", "save_pixels", "write_stores"]

TOGETHER = 32  # images that a thread decodes at once,
BYTES_TOGETHER = 1 << 23  # or fewer, if they have been read into memory from an archive
BYTES_AHEAD = 1 << 28  # read from archives before the images before them are decoded
TOLD = 3  # unreadable images in a note
GREY = np.array([0.299, 0.587, 0.114])  # of red, green and blue, by ITU-R BT.601
HEADER = 128  # bytes before the pixels in a .npy file


@runtime_checkable
class Pixels(Protocol):
    """The pixels of images that are asked for by their numbers."""

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> UInt8[np.ndarray, "rows channels size size"]: ...


@dataclass(frozen=True)
class Store:
    """Pixels in memory, or mapped from a file."""

    array: UInt8[np.ndarray, "images channels size size"] = field(repr=False)

    def __len__(self) -> int:
        return len(self.array)

    def take(self, indices: NDArray[np.int64]) -> UInt8[np.ndarray, "rows channels size size"]:
        return self.array[indices]


@dataclass
class Kept:
    """The images of a split that could be read, and a digest of the pixels of each."""

    found: list[Found] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    bad: list[tuple[Found, str]] = field(default_factory=list)


def write_stores(splits: Mapping[str, Sequence[Found]], files: Mapping[str, Path], image: Image) -> dict[str, Kept]:
    """Decode the images of every split into its file. An image keeps its place among those of its archive or folder."""
    kept = {split: Kept() for split in splits}
    shape = (1 if image.grey else 3, image.size, image.size)
    with ExitStack() as stack, progress("reading images", sum(map(len, splits.values()))) as tell:
        writers = {split: _Writer(stack.enter_context(replacing(files[split])), shape) for split in splits}
        for job, result in _decoded(iter(_jobs(splits)), image):
            for split, found in job.uses:
                if isinstance(result, str):
                    kept[split].bad.append((found, result))
                else:
                    writers[split].append(result.pixels)
                    kept[split].found.append(found)
                    kept[split].digests.append(result.digest)
                tell(1)
        for writer in writers.values():
            writer.finish()
    return kept


def notes_on(kept: Mapping[str, Kept], *, have_labels: bool = True) -> Iterator[str]:
    """Notes about images that are left out, and about those that several splits share; or an error if too many are."""
    for split, its in kept.items():
        if its.bad:
            yield _left_out(split, its, have_labels)
    yield from _shared({split: its.digests for split, its in kept.items()})


def _left_out(split: str, its: Kept, have_labels: bool) -> str:
    total = len(its.found) + len(its.bad)
    told = "; ".join(why for _, why in its.bad[:TOLD]) + ("; …" if len(its.bad) > TOLD else "")
    part = out_of(len(its.bad), total, "image", f"of {split} cannot be read", f"of {split} cannot be read")
    if 2 * len(its.bad) > total:
        raise UserError(f"{part}: {told}")
    left = {label for found in its.found for label in found.texts}
    if have_labels and split == "train" and (lost := {label for found, _ in its.bad for label in found.texts} - left):
        whys = [why for found, why in its.bad if min(lost) in found.texts]
        raise UserError(f"{split}: no image of the label {min(lost)!r} can be read: {whys[0]}")
    return f"{part} and {'is' if len(its.bad) == 1 else 'are'} left out: {told}"


def _shared(digests: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """A note for each split: how many of its images are also in train."""
    train = set(digests["train"]) if "train" in digests else set()
    for split, its in digests.items():
        known = sum(digest in train for digest in its)
        if known and split != "train":
            yield out_of(known, len(its), "image", f"of {split} is also in train", f"of {split} are also in train")


def save_pixels(path: Path, pixels: UInt8[np.ndarray, "images channels size size"], *, grey: bool = False) -> None:
    """Pixels that are in memory already; if asked for, of colours as grey."""
    if grey:
        pixels = (pixels * GREY[:, None, None]).sum(1, keepdims=True).round().astype(np.uint8)
    with replacing(path) as file:
        np.save(file, pixels, allow_pickle=False)


def load_store(path: Path, image: Image) -> Store:
    """The pixels in a file, mapped; they must be those of a model with these settings."""
    try:
        refuse_irregular(path)
        array = np.lib.format.open_memmap(path, mode="r")
    except UNREADABLE as error:
        raise damaged(path, str(getattr(error, "strerror", None) or error).splitlines()[0]) from error
    wanted = (1 if image.grey else 3, image.size, image.size)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1:] != wanted or not array.flags.c_contiguous:
        raise damaged(path, f"it holds {array.dtype} of {' × '.join(map(str, array.shape))} instead of images of "
                            f"{' × '.join(map(str, wanted))} bytes")
    return Store(array)


class _Writer:
    """A .npy file that is written image after image; how many there are is known at the end."""

    def __init__(self, file: BinaryIO, shape: tuple[int, ...]) -> None:
        self.file, self.shape, self.count = file, shape, 0
        file.write(bytes(HEADER))

    def append(self, pixels: UInt8[np.ndarray, "channels size size"]) -> None:
        self.file.write(pixels.data)
        self.count += 1

    def finish(self) -> None:
        about = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {(self.count, *self.shape)}, }}"
        start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
        self.file.seek(0)
        self.file.write(start + about.encode().ljust(HEADER - len(start) - 1) + b"\n")


class _Job(NamedTuple):
    image: ImageFile
    uses: list[tuple[str, Found]]
    """The splits that it is in; usually one."""


class _Decoded(NamedTuple):
    pixels: UInt8[np.ndarray, "channels size size"]
    digest: int  # of 64 bits, for this process only


def _jobs(splits: Mapping[str, Sequence[Found]]) -> Iterator[tuple[_Job, str | None]]:
    """The images of one tree after the other, each in the order in which it is read fastest; or why there is none."""
    trees = {id(found.tree): found.tree for every in splits.values() for found in every}
    uses: dict[tuple[int, str], list[tuple[str, Found]]] = {}
    for split, every in splits.items():
        for found in every:
            uses.setdefault((id(found.tree), found.name), []).append((split, found))
    for key, tree in trees.items():
        for name, read in tree.contents([name for its, name in uses if its == key]):
            path, content, wrong = tree.place(name), None, None
            try:
                content = read()
            except UserError as error:
                wrong = str(error)
            yield _Job(ImageFile(path, content), uses[key, name]), wrong


def _decoded(jobs: Iterator[tuple[_Job, str | None]], image: Image) -> Iterator[tuple[_Job, _Decoded | str]]:
    """In the order of the jobs. Some are decoded ahead, in threads: pillow holds no lock while it does."""
    def decode(several: Sequence[tuple[_Job, str | None]]) -> list[tuple[_Job, _Decoded | str]]:
        return [(job, wrong or _one(job.image, image)) for job, wrong in several]

    threads = min(32, os.cpu_count() or 1)
    waiting: deque[tuple[Future[list[tuple[_Job, _Decoded | str]]], int]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            while several := _some(jobs):
                waiting.append((pool.submit(decode, several), _bytes(several)))
                while len(waiting) > 2 * threads or sum(size for _, size in waiting) > BYTES_AHEAD:
                    yield from waiting.popleft()[0].result()
            while waiting:
                yield from waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()


def _some(jobs: Iterator[tuple[_Job, str | None]]) -> list[tuple[_Job, str | None]]:
    several, size = list[tuple[_Job, str | None]](), 0
    for job, wrong in islice(jobs, TOGETHER):
        several.append((job, wrong))
        size += len(job.image.content or b"")
        if size > BYTES_TOGETHER:
            break
    return several


def _bytes(several: Sequence[tuple[_Job, str | None]]) -> int:
    return sum(len(job.image.content or b"") for job, _ in several)


def _one(file: ImageFile, image: Image) -> _Decoded | str:
    try:
        pixels = file.pixels(image)
    except BadImage as error:
        return str(error)
    some = pixels[:, :: 1 + image.size // 64]  # of a large image a part of the rows is enough to know it again
    return _Decoded(pixels, hash(some.tobytes()))
