"""A digest of the images of a run: of their files, and of the settings by which they are read."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.data.images.files import source_files
from regard.data.labelled import Columns
from regard.settings.opening import to_read
from regard.settings.schema import Run

__all__ = ["digest_of"]

AT_ONCE = 8  # files


def digest_of(run: Run, columns: Columns, *more: Any) -> str:
    """`more` are other settings by which the data is made."""
    image = run.model.image
    assert image is not None
    fit = [image.size, image.grey, image.fit, image.resize, image.resample]
    digest = hashlib.sha256(json.dumps([asdict(run.data), fit, *more]).encode())
    files = source_files([Path(path) for path in run.data.paths], columns)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for file, content in zip(files, pool.map(_digest, files), strict=True):
            digest.update(f"{file}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _digest(file: Path) -> bytes:
    with open(file, "rb", opener=to_read) as content:
        return hashlib.file_digest(content, "sha256").digest()
