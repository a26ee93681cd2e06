"""The sizes of a few images, by their headers: the defaults of a run depend on them, before its data is read."""

import gzip
import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.data.images.decode import READERS, ImageFile
from regard.data.images.formats import format_of, has_image_ending, is_archive
from regard.data.images.idx import idx_files
from regard.data.images.trees import Folder, Tar, Tree, tree_of
from regard.data.layout import is_directory
from regard.settings.errors import UserError
from regard.settings.opening import to_read

__all__ = ["ImageSize", "some_sizes"]

MOST = 20  # images that are looked at
FIRST_NAMES = 200  # names of a tar, which is read from its beginning
GREY = ("1", "L", "I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # pillow's modes


class ImageSize(NamedTuple):
    """An image by its header."""

    width: int
    height: int
    is_grey: bool


def some_sizes(paths: Sequence[Path]) -> list[ImageSize]:
    """Of some images in these files and folders. Those that cannot be read are left out: who reads them says why."""
    found = list[ImageSize]()
    for path in paths:
        try:
            found += islice(_sizes(path), MOST)
        except (UserError, OSError, ValueError, struct.error):
            continue
    return found


def _sizes(path: Path) -> Iterator[ImageSize]:
    if not is_directory(path):
        if idx_files([path.name]):
            yield _of_idx(path)
        else:
            yield from _of_tree(tree_of(path) if is_archive(path.name) else Folder(path.parent))
        return
    top = sorted(entry for entry in path.iterdir() if entry.is_file())
    if idx := idx_files([file.name for file in top]):
        yield _of_idx(path / next(iter(idx)))
        return
    yield from _of_tree(Folder(path))
    for archive in (file for file in top if is_archive(file.name)):
        yield from _of_tree(tree_of(archive))


def _of_tree(tree: Tree) -> Iterator[ImageSize]:
    names = tree.some_names() if isinstance(tree, Folder) else (
        tree.first_names(FIRST_NAMES) if isinstance(tree, Tar) else tree.names)
    for name, content in tree.contents(list(islice(filter(has_image_ending, names), MOST))):
        read = content()
        yield from _of_image(ImageFile(tree.place(name)).bytes() if read is None else read)


def _of_image(content: bytes) -> Iterator[ImageSize]:
    if (kind := format_of(content)) is not None:
        try:
            with READERS[kind](BytesIO(content)) as opened:
                yield ImageSize(*opened.size, opened.mode in GREY)
        except (OSError, SyntaxError, ValueError, LookupError, TypeError):  # pillow's, of damaged files
            return


def _of_idx(path: Path) -> ImageSize:
    with open(path, "rb", opener=to_read) as file:
        stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        height, width = struct.unpack(">8xII", stream.read(16))
    return ImageSize(width, height, is_grey=True)
