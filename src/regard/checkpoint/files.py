"""Write one file atomically, and flush it to the disk."""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.manifest import CHUNK, Written, digest, sync, text_of
from regard.settings.errors import Failure, UserError, amount
from regard.settings.opening import remove, to_read, to_write

__all__ = ["Written", "digest", "failing", "read_json", "read_labels", "read_list", "safetensors", "sync", "write",
           "write_json", "write_tensors"]

LARGEST_JSON = 1 << 26  # bytes; parsed, they take twenty times as many
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip


def write(path: Path, pieces: Iterable[bytes | memoryview]) -> Written:
    """Write a new file and flush it to the disk. It is hashed on the way, so that later damage can be detected."""
    sha256 = hashlib.sha256()
    with open(path, "xb", opener=to_write) as file:
        for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(view), CHUNK):
                chunk = view[start : start + CHUNK]
                file.write(chunk)
                sha256.update(chunk)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        if hasattr(os, "posix_fadvise"):  # so that reading it back reads the disk, not the memory
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return Written(size=size, sha256=sha256.hexdigest())


def safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The pieces of a safetensors file: the length of the header, the header, the tensors.

    The library's own writer cannot be hashed on the way.
    """
    # The widest types first: then each tensor begins at a multiple of its element size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


@contextmanager
def failing(path: Path, done: str) -> Iterator[None]:
    """Turn an error of the file system into one sentence that says what could not be `done`."""
    try:
        yield
    except OSError as error:
        elsewhere = f" ({error.filename})" if error.filename else ""
        remedy = "; free some space or lower train.keep_checkpoints" if error.errno in NO_ROOM else ""
        raise Failure(f"{path}: could not be {done}: {error.strerror or error}{elsewhere}{remedy}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    _replace(path, safetensors(tensors))


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    _replace(path, [text_of(content).encode()])


def _replace(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with failing(path, "saved"):
        try:
            remove(temporary)  # left by a killed process, or put here by someone else
            write(temporary, pieces)
            os.replace(temporary, path)
            sync(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def read_json(path: Path) -> dict[str, Any]:
    content = _parsed(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: is not a JSON object")
    return content


def read_list(path: Path) -> list[Any]:
    content = _parsed(path)
    if not isinstance(content, list):
        raise UserError(f"{path}: is not a JSON list")
    return content


def read_labels(path: Path) -> list[str]:
    """The names of a run's labels, in the order of the model's outputs."""
    match read_json(path):
        case {"labels": [*labels]} if labels and all(isinstance(label, str) for label in labels):
            if len(set(labels)) == len(labels):
                return labels
    raise UserError(f"{path}: damaged: must be the names of the labels, all different")


def _parsed(path: Path) -> Any:
    try:
        with open(path, encoding="utf-8", opener=to_read) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_JSON:
                raise UserError(f"{path}: is larger than {amount(LARGEST_JSON)}, too large for a file of regard")
            return json.load(file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
