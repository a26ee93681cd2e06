"""One image: from the bytes of its file to its pixels, upright, in grey or in red, green and blue.

JPEG, PNG, WebP, GIF (its first frame), BMP, TIFF and PPM. Every mode becomes 8 bits per channel:

- 16 bits are shifted to 8; a palette and one bit become colours; CMYK becomes RGB;
- where an image is transparent, it is seen on white;
- an orientation in its EXIF data is applied.

The sizes and filters are pillow's, as in the image processors of published weights.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import IO

import numpy as np
from jaxtyping import UInt8
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL import Image as pillow
from PIL.ImageFile import ImageFile as Opened

from regard.data.images.formats import START, described, format_of
from regard.settings.errors import UserError, amount, count
from regard.settings.opening import to_read
from regard.settings.schema import Image

__all__ = ["BadImage", "ImageFile", "decode", "fitted"]

MAX_PIXELS = 1 << 27  # of one image: more than any camera's
MAX_BYTES = 1 << 29  # of one file
MAX_RATIO = 8  # of a side to the other: of a longer image only the middle is scaled

# The classes and not `Image.open`, which loads dozens of other formats, and only warns of images that are too large.
READERS: dict[str, Callable[[IO[bytes]], Opened]] = {
    "JPEG": JpegImagePlugin.JpegImageFile, "PNG": PngImagePlugin.PngImageFile, "WebP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile, "BMP": BmpImagePlugin.BmpImageFile, "TIFF": TiffImagePlugin.TiffImageFile,
    "PPM": PpmImagePlugin.PpmImageFile}
FILTERS = {"nearest": pillow.Resampling.NEAREST, "bilinear": pillow.Resampling.BILINEAR,
           "bicubic": pillow.Resampling.BICUBIC}
# By EXIF's number of an orientation, the turn that makes the pixels upright.
TURNS = {2: pillow.Transpose.FLIP_LEFT_RIGHT, 3: pillow.Transpose.ROTATE_180, 4: pillow.Transpose.FLIP_TOP_BOTTOM,
         5: pillow.Transpose.TRANSPOSE, 6: pillow.Transpose.ROTATE_270, 7: pillow.Transpose.TRANSVERSE,
         8: pillow.Transpose.ROTATE_90}
ORIENTATION, MAX_TAGS = 0x0112, 512
SIXTEEN = ("I;16", "I;16L", "I;16B", "I;16N")
TRANSPARENT = ("RGBA", "LA", "PA", "RGBa", "La")
# Anything that pillow raises for a damaged file, and the warnings of whoever turns them into errors.
DAMAGE = (OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
          AssertionError, NotImplementedError, RecursionError, MemoryError, struct.error, zlib.error, Warning,
          pillow.DecompressionBombError)


class BadImage(UserError):
    """A file that holds no image, or a damaged one."""


@dataclass(frozen=True)
class ImageFile:
    """An image to be read: a file, or a member of an archive."""

    path: str
    content: bytes | None = None
    """The bytes of a file that cannot be opened by its path; absent: they are read from there."""
    is_fitted: bool = False
    """Whether it has been scaled and cropped before, as images of prepared data have."""

    def pixels(self, image: Image) -> UInt8[np.ndarray, "channels size size"]:
        """The pixels as a model with these settings reads them."""
        found = decode(self.bytes(), self.path, grey=image.grey)
        if not self.is_fitted or found.size != (image.size, image.size):
            found = fitted(found, image)
        array = np.frombuffer(found.tobytes(), np.uint8).reshape(image.size, image.size, -1)
        return np.ascontiguousarray(array.transpose(2, 0, 1))

    def bytes(self) -> bytes:
        return _read(self.path) if self.content is None else self.content

    def __repr__(self) -> str:
        return f"ImageFile({self.path!r})"

    @classmethod
    def of(cls, path: str, pixels: UInt8[np.ndarray, "channels height width"], *,
           is_fitted: bool = False) -> "ImageFile":
        """Pixels that are in memory, in grey or in red, green and blue."""
        channels, height, width = pixels.shape
        header = b"P%d %d %d 255\n" % (5 if channels == 1 else 6, width, height)
        return cls(path, header + pixels.transpose(1, 2, 0).tobytes(), is_fitted)

    def checked(self) -> "ImageFile":
        """Itself, if it begins as an image does."""
        start = _read(self.path, START) if self.content is None else self.content[:START]
        _format(start, self.path)
        return self


def decode(content: bytes, name: str, *, grey: bool = False) -> pillow.Image:
    """The image in these bytes, in mode L (`grey`) or RGB; `name` is for messages."""
    kind = _format(content, name)
    try:
        with READERS[kind](BytesIO(content)) as opened:
            _refuse_size(opened.size, name, kind)
            opened.load()
            upright = _upright(opened, kind)
            return _plain(upright, name, "L" if grey else "RGB")
    except DAMAGE as error:
        raise BadImage(f"{name}: {_damage(error, kind)}") from None


def fitted(found: pillow.Image, image: Image) -> pillow.Image:
    """Scaled by its shorter side, or by both; and the middle of that."""
    side, resample = image.resize or image.size, FILTERS[image.resample]
    if image.fit == "stretch":
        width = height = side
    else:
        found = _middle(found, *(min(length, MAX_RATIO * min(found.size)) for length in found.size))
        shorter = min(found.size)
        width, height = (side * length // shorter for length in found.size)
    if found.size != (width, height):
        found = found.resize((width, height), resample)
    return _middle(found, image.size, image.size)


def _middle(found: pillow.Image, width: int, height: int) -> pillow.Image:
    if found.size == (width, height):
        return found
    left, top = (found.width - width) // 2, (found.height - height) // 2
    return found.crop((left, top, left + width, top + height))


def _read(path: str, most: int = MAX_BYTES + 1) -> bytes:
    try:
        with open(path, "rb", opener=to_read) as file:
            return file.read(most)
    except FileNotFoundError:
        raise BadImage(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadImage(f"{path}: is a directory, not an image") from None
    except PermissionError:
        raise BadImage(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadImage(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _format(content: bytes, name: str) -> str:
    if not content:
        raise BadImage(f"{name}: the file is empty")
    if len(content) > MAX_BYTES:
        raise BadImage(f"{name}: is larger than {amount(MAX_BYTES)}, too large for an image")
    kind = format_of(content)
    if kind is None:
        raise BadImage(f"{name}: not an image that can be read; it looks like {described(content)}")
    return kind


def _refuse_size(size: tuple[int, int], name: str, kind: str) -> None:
    """By the header, before memory is taken."""
    width, height = size
    if width * height > MAX_PIXELS:
        raise BadImage(f"{name}: a {kind} of {width:,} × {height:,} pixels; at most {count(MAX_PIXELS, 'pixel')} are "
                       "read, so scale it down first")


def _damage(error: BaseException, kind: str) -> str:
    if isinstance(error, MemoryError):
        return f"a {kind} that does not fit into memory"
    why = " ".join(str(error).split())
    if "truncated" in why.lower() or isinstance(error, EOFError):
        return f"a {kind} that is cut short; fetch or copy it again"
    if "not identified" in why:  # pillow's word for a size of 0, too
        return f"a {kind} of 0 pixels, or with a damaged header"
    return f"a damaged {kind}" + (f" ({why[:80]})" if why else "")


def _upright(opened: Opened, kind: str) -> pillow.Image:
    exif = opened.info.get("exif")
    if kind == "TIFF" or not isinstance(exif, bytes):  # pillow turns a TIFF as it loads it
        return opened
    turn = TURNS.get(_orientation(exif.removeprefix(b"Exif\0\0")))
    return opened if turn is None else opened.transpose(turn)


def _orientation(exif: bytes) -> int:
    """The orientation in EXIF data, 1 if there is none. Damaged EXIF data is no reason to refuse an image."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 8:
        return 1
    start, = struct.unpack_from(f"{order}I", exif, 4)
    if start + 2 > len(exif):
        return 1
    tags, = struct.unpack_from(f"{order}H", exif, start)
    for place in range(start + 2, min(start + 2 + 12 * min(tags, MAX_TAGS), len(exif) - 11), 12):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, place)
        if tag == ORIENTATION and kind == 3:
            return int(value)
    return 1


def _plain(found: pillow.Image, name: str, mode: str) -> pillow.Image:
    """In 8 bits of this mode, on white."""
    if found.mode == mode and "transparency" not in found.info:
        return found
    if found.mode in SIXTEEN or found.mode == "I":
        found = pillow.fromarray((np.asarray(found).astype(np.int64).clip(0, 0xFFFF) >> 8).astype(np.uint8))
    elif found.mode == "F":
        raise BadImage(f"{name}: its pixels are floating-point numbers of unknown range; save it with 8 or 16 bits")
    elif found.mode in TRANSPARENT or "transparency" in found.info:
        seen = found.convert("RGBA")
        white = pillow.new("RGBA", seen.size, "white")
        found = pillow.alpha_composite(white, seen)
    return found.convert(mode)
