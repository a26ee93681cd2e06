"""ImageReader: a path that a person types becomes an image, and an image is shown by its path."""

import base64
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image as pillow
from PIL import ImageOps

from regard.data.images.decode import ImageFile, decode
from regard.data.reader import Reader
from regard.settings.errors import UserError

__all__ = ["ImageReader", "data_url"]

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
LONGEST_SIDE = 256  # pixels of a picture on a page


class ImageReader(Reader[ImageFile]):
    """An image is given as a path, on stdin as the content of its file, in Python also as an array or open."""

    noun = "image"

    def parse(self, text: str, *, origin: str) -> ImageFile:
        path = text.strip()
        if not path:
            raise UserError(f"{origin}: no path of an image")
        return ImageFile(path).checked()

    def read(self, stream: Iterable[bytes], *, origin: str) -> ImageFile | None:
        content = b"".join(stream)
        return ImageFile(origin, content).checked() if content else None

    def check(self, given: Any, *, origin: str) -> ImageFile:
        if isinstance(given, ImageFile):
            return given
        if isinstance(given, bytes):
            return ImageFile(origin, given).checked()
        if isinstance(given, pillow.Image):
            return ImageFile(origin, _png(given))
        if not isinstance(given, np.ndarray):
            return self.parse(str(given), origin=origin)
        grey = given[..., None] if given.ndim == 2 else given
        if given.dtype != np.uint8 or grey.ndim != 3 or grey.shape[2] not in (1, 3) or not given.size:
            raise UserError(f"{origin}: an array of {given.dtype} and shape {given.shape}; expected uint8 of (height, "
                            "width, 3), or of (height, width)")
        return ImageFile.of(origin, grey.transpose(2, 0, 1))

    def show(self, given: ImageFile) -> str:
        return given.path

    def picture(self, given: ImageFile) -> str:
        return data_url(given)


def _png(given: pillow.Image) -> bytes:
    """An image that pillow has opened: with its transparency, but upright."""
    upright = ImageOps.exif_transpose(given)
    written = BytesIO()
    (upright if upright.mode in PNG_MODES else upright.convert("RGB")).save(written, "PNG")
    return written.getvalue()


def data_url(given: ImageFile) -> str:
    """The image as a small PNG in a URL."""
    image = decode(given.bytes(), given.path)
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    written = BytesIO()
    image.save(written, "PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
