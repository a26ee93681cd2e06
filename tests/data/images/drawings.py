"""Images made for tests: a few pixels, which survive any lossless format."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image as pillow


def drawn(seed: int = 0, size: tuple[int, int] = (9, 7), mode: str = "RGB") -> pillow.Image:
    """Random pixels of this width and height."""
    width, height = size
    return pillow.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)).convert(mode)


def packed(image: pillow.Image, kind: str = "PNG", **how: object) -> bytes:
    """The bytes of its file."""
    file = BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def folder_of(root: Path, labels: dict[str, int], *, seed: int = 0) -> Path:
    """A folder for each label, with this many different images in it."""
    for number, (label, count) in enumerate(labels.items()):
        (root / label).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            content = packed(drawn(seed * 7919 + number * 1000 + place))
            (root / label / f"{place:03}.png").write_bytes(content)
    return root
