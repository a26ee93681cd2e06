"""IDX files, the format of MNIST: a header, then one byte for each pixel of all images, or for each label.

https://yann.lecun.com/exdb/mnist/ : a magic number (two zeros, 8 for bytes, the number of dimensions), the size of each
dimension as a big-endian number of 4 bytes, and the bytes.
"""

import gzip
import math
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path

from regard.data.images.trees import Content, Tree
from regard.settings.errors import UserError, amount, count

__all__ = ["Idx", "idx_files", "read_idx"]

IMAGES = re.compile(r"(.*)images([-.]idx)3([-.]ubyte)?(\.gz)?")
BYTES = 8  # the code of unsigned bytes, the only kind that MNIST and its relatives have
MAX_IDX_BYTES = 1 << 31


@dataclass(frozen=True, eq=False)
class Idx(Tree):
    """The images of one file, called by their numbers."""

    pixels: bytes = field(repr=False)
    count: int
    height: int
    width: int

    @property
    def names(self) -> list[str]:
        return [f"{number:05}" for number in range(self.count)]

    def contents(self, wanted: Collection[str]) -> Iterator[tuple[str, Content]]:
        """Each as a PGM, which is a header and the same bytes."""
        chosen = frozenset(wanted)
        yield from ((name, partial(self._pgm, number)) for number, name in enumerate(self.names) if name in chosen)

    def _pgm(self, number: int) -> bytes:
        size = self.height * self.width
        return b"P5 %d %d 255\n" % (self.width, self.height) + self.pixels[number * size : (number + 1) * size]


def idx_files(names: Sequence[str]) -> dict[str, str]:
    """The IDX files of images among these, each with that of its labels.

    >>> idx_files(["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", "README.md"])
    {'t10k-images-idx3-ubyte.gz': 't10k-labels-idx1-ubyte.gz'}
    """
    there, found = set(names), dict[str, str]()
    for name in names:
        if match := IMAGES.fullmatch(name):
            plain = f"{match[1]}labels{match[2]}1{match[3] or ''}"
            found[name] = next((label for label in (plain + (match[4] or ""), plain, f"{plain}.gz") if label in there),
                               plain + (match[4] or ""))
    return found


def read_idx(tree: Tree, images: str, labels: str) -> tuple[Idx, list[str]]:
    """The images of a file, and the label of each."""
    place = tree.place(images)
    if labels not in tree.names:
        raise UserError(f"{place}: its labels are missing; expected them in {tree.place(labels)}")
    (total, *sides), pixels = _read(tree, images)
    if len(sides) != 2 or min(sides) < 1:
        raise UserError(f"{place}: holds {' × '.join(map(str, (total, *sides)))} numbers instead of images")
    sizes, numbers = _read(tree, labels)
    if sizes != [total]:
        raise UserError(f"{tree.place(labels)}: holds {' × '.join(map(str, sizes))} labels of {count(total, 'image')}")
    return Idx(Path(place), pixels, total, *sides), [str(number) for number in numbers]


def _read(tree: Tree, name: str) -> tuple[list[int], bytes]:
    """The sizes of the dimensions, and the bytes."""
    place, content = tree.place(name), tree.read(name)
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(MAX_IDX_BYTES)
        except (OSError, EOFError, zlib.error):
            raise UserError(f"{place}: a damaged gzip; fetch it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != BYTES or not 1 <= content[3] <= 4:
        raise UserError(f"{place}: not an IDX file of bytes: it begins with {content[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise UserError(f"{place}: cut short in its header; fetch it again")
    sizes = list(struct.unpack(f">{content[3]}I", content[4:start]))
    if (there := len(content) - start) != (wanted := math.prod(sizes)):
        raise UserError(f"{place}: holds {amount(there)}, but its header tells of {amount(wanted)}; fetch it again")
    return sizes, content[start:]
