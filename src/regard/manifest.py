"""MANIFEST.json of a run directory: the size and SHA-256 of each file of the run outside of `checkpoints/`.

A file is listed when it is complete and on the disk. It is removed from the list before it is written again, so a kill
never leaves a listed file half written:

    the prepared data, tokenizers and labels    when the data is prepared
    run.json                                    before the first step
    the model and its config.json               at the end; an older model stays listed while the run is lengthened
    scores.json                                 last

Each reader checks the files that it reads: `predict` those of the model, `train` the prepared data. Not listed are
`metrics.jsonl`, `lock` and the pages that verbs leave in the directory. A checkpoint has a manifest of its own.
A run of an older version has none; it is read as it is, and the next `regard train` that changes it lists its files.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypedDict

from regard.settings.errors import Failure, UserError
from regard.settings.opening import replacing, to_read

__all__ = ["ADAPTER", "ANSWERING", "CHUNK", "EVERYTHING", "MODEL", "NAME", "PREPARED", "SCORES", "SETTINGS", "Written",
           "check", "damage", "digest", "exists", "forget", "listed", "put_text", "seal", "sync", "text_of"]

NAME = "MANIFEST.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 1 << 26  # bytes of a manifest: some 500,000 files
CHUNK = 1 << 24  # large, because a hashing thread waits for Python's GIL between two chunks

# Which files are which, as patterns.
SETTINGS = ("run.json",)
TOKENS = ("tokenizer.json", "tokenizer_config.json", "source_tokenizer.json", "source_tokenizer_config.json",
          "labels.json")
PREPARED = ("data/*", *TOKENS)
MODEL = ("config.json", "generation_config.json", "model.safetensors", "preprocessor_config.json",
         "generator/config.json", "generator/model.safetensors", "modules.json", "sentence_bert_config.json",
         "1_Pooling/config.json")
ADAPTER = ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")
SCORES = ("scores.json",)
ANSWERING = (*SETTINGS, *TOKENS, *MODEL)
"""The files that a run needs to answer: no data."""
EVERYTHING = (*PREPARED, *SETTINGS, *MODEL, *ADAPTER, *SCORES)


class Written(TypedDict):
    """Size and digest of a file."""

    size: int
    sha256: str


def exists(folder: Path) -> bool:
    return (folder / NAME).exists()


def check(folder: Path, *patterns: str) -> None:
    """Refuse a run if a file that matches the patterns has changed since it was written."""
    if wrong := damage(folder, *patterns):
        raise UserError(f"{wrong}; run the same `regard train` (or `regard convert`) again to repair it, or read it as "
                        "it is with --no-verify")


def damage(folder: Path, *patterns: str) -> str | None:
    """The first damage in the listed files that match the patterns, or None. Reads every byte."""
    try:
        files = _read(folder)
        if files is None:
            return None
        for name in sorted(name for name in files if _fits(name, patterns)):
            _compare(folder / name, files[name])
        for name in patterns:
            if name not in files and (folder / name).is_file():
                raise UserError(f"{folder / name}: not listed in {NAME}, so it may be incomplete")
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror or error}"
    except UserError as error:
        return str(error)
    return None


def listed(folder: Path, *patterns: str) -> dict[str, Written]:
    """The entries that match the patterns."""
    return {name: about for name, about in (_read(folder) or {}).items() if _fits(name, patterns)}


def seal(folder: Path, *patterns: str) -> None:
    """Flush the files that match the patterns to the disk, and list them as they are now."""
    files = _read(folder)
    chosen = EVERYTHING if files is None else patterns  # a run of an older version gets its first manifest
    kept = {name: about for name, about in (files or {}).items() if not _fits(name, chosen)}
    found = {path.relative_to(folder).as_posix(): path for pattern in chosen for path in folder.glob(pattern)
             if path.is_file() and not path.name.startswith(".")}
    try:
        new = {name: settled(path) for name, path in found.items()}
        for place in {folder, *(path.parent for path in found.values())}:
            sync(place)
    except OSError as error:
        raise Failure(f"{error.filename or folder}: could not be read back: {error.strerror or error}") from error
    _write(folder, kept | new)


def forget(folder: Path, *patterns: str) -> None:
    """Remove files from the list, before they are written again."""
    files = _read(folder)
    if files is not None and any(_fits(name, patterns) for name in files):
        _write(folder, {name: about for name, about in files.items() if not _fits(name, patterns)})


def settled(path: Path) -> Written:
    """Flush a file to the disk; return its size and digest."""
    with open(path, "rb", opener=to_read) as file:
        if os.name != "nt":  # Windows flushes only files that are open for writing
            os.fsync(file.fileno())
    return Written(size=path.stat().st_size, sha256=digest(path))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    sha256, buffer = hashlib.sha256(), memoryview(bytearray(min(CHUNK, max(1, path.stat().st_size))))
    with open(path, "rb", buffering=0, opener=to_read) as file:
        while count := file.readinto(buffer):
            sha256.update(buffer[:count])
    return sha256.hexdigest()


def text_of(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON in the format of all files of a run."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def put_text(path: Path, text: str) -> None:
    """Write a small file atomically, and flush it to the disk."""
    try:
        with replacing(path) as file:
            file.write(text.encode())
        sync(path.parent)
    except OSError as error:
        raise Failure(f"{path}: could not be saved: {error.strerror or error}") from error


def sync(folder: Path) -> None:
    """Flush a folder's entries to the disk. Windows cannot do that; its file system orders renames."""
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _compare(path: Path, about: Written) -> None:
    if not path.exists():
        raise UserError(f"{path}: missing, but listed in {NAME}")
    if not path.is_file():  # reading a pipe would block
        raise UserError(f"{path}: not a file")
    if (size := path.stat().st_size) != about["size"]:
        raise UserError(f"{path}: damaged: it has {size:,} bytes, but {about['size']:,} in {NAME}")
    if digest(path) != about["sha256"]:
        raise UserError(f"{path}: damaged: its SHA-256 is not the one in {NAME}")


def _read(folder: Path) -> dict[str, Written] | None:
    """The entries; None without a manifest. Refuses a manifest that was changed after it was written."""
    path = folder / NAME
    if not path.exists():
        return None
    if not path.is_file():
        raise UserError(f"{path}: not a file")
    with open(path, "rb", opener=to_read) as file:
        content = file.read(MAX_MANIFEST_BYTES + 1)
    try:
        parsed = json.loads(content)
        files: dict[str, Written] = parsed["files"]
        is_whole = content == _text(files).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        is_whole = False
    if not is_whole or not isinstance(files, dict) or not all(map(_is_entry, files, files.values())):
        raise UserError(f"{path}: damaged, or of another version of regard; if you trust the other files, delete it")
    return files


def _is_entry(name: str, about: object) -> bool:
    if name.startswith("/") or ".." in name.split("/"):  # outside the run's folder
        return False
    match about:
        case {"size": int(), "sha256": str(), **more}:
            return not more
    return False


def _write(folder: Path, files: Mapping[str, Written]) -> None:
    put_text(folder / NAME, _text(dict(sorted(files.items()))))


def _text(files: Mapping[str, Written]) -> str:
    """The manifest's text. It has its own digest, so that damage to the list is not reported as damage to the files."""
    own = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return text_of({"format": FORMAT, "files": files, "sha256": own})
