"""A checkpoint: a folder that is written atomically.

It is written to a temporary folder, the manifest last, and flushed to the disk; then one rename puts it in place.
"""

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.checkpoint.files import Written, digest, failing, read_json, safetensors, sync, write
from regard.settings.errors import Failure, UserError, amount
from regard.settings.opening import own_folder, remove, to_read

__all__ = ["PARTS", "Checkpoint", "average", "newest", "prune", "retire", "save_checkpoint", "versions"]

FORMAT = 1
MANIFEST = "MANIFEST.json"
TENSORS = ("model.safetensors", "optimizer.safetensors")
PARTS = (*TENSORS, "state.json")
MARGIN = 1 << 24  # bytes: headers, the JSON files, and what the file system needs for itself
MAX_CHECKPOINT_MANIFEST_BYTES = 1 << 16  # bytes of a manifest


class Checkpoint:
    """A folder `step-…`, valid or not: see `verify`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step = int(folder.name.removeprefix("step-"))

    def verify(self) -> str | None:
        """The reason why it is damaged, or None. Reads every byte."""
        try:
            _check_names(self.folder)
            manifest = _manifest(self.folder / MANIFEST)
            for name in PARTS:
                _compare(self.folder / name, manifest[name])
            for name in TENSORS:
                _check_header(self.folder / name)
            _check_state(self.folder / "state.json", self.step)
        except OSError as error:
            return f"{error.filename or self.folder}: {error.strerror or error}"
        except UserError as error:
            return str(error)
        return None

    def weights(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model.safetensors")

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.folder / "optimizer.safetensors")

    def state(self) -> dict[str, Any]:
        """The content of state.json."""
        state = read_json(self.folder / "state.json")
        del state["format"]
        return state

    @staticmethod
    def all(run: Path) -> list["Checkpoint"]:
        """The checkpoints of a run, the newest first, valid or not."""
        folders = [f for f in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-[0-9]{8,}", f.name)]
        return sorted(map(Checkpoint, folders), key=lambda c: -c.step)


def newest(run: Path, *, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest undamaged checkpoint. Reports the damage of each newer one."""
    refused = []
    found = None
    for checkpoint in Checkpoint.all(run):
        wrong = checkpoint.verify()
        if wrong is None:
            found = checkpoint
            break
        refused.append(wrong)
    for wrong in refused:
        say(f"{wrong}; {f'resuming from step {found.step} instead' if found else 'starting from the first step'}")
    return found


def save_checkpoint(run: Path, step: int, *, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor],
                    state: Mapping[str, Any]) -> Checkpoint:
    """Write a checkpoint. If that fails, nothing changes."""
    final = run / "checkpoints" / f"step-{step:08d}"
    content = {"format": FORMAT, "step": step, **state}
    assert content["step"] == step
    with failing(final, "saved"):
        own_folder(final.parent)
        _clear(final.parent)
        _check_space(final, sum(tensor.nbytes for tensor in (*weights.values(), *optimizer.values())))
        with _beside(final) as folder:
            parts = (safetensors(weights), safetensors(optimizer), [json.dumps(content).encode()])
            manifest = {name: write(folder / name, pieces) for name, pieces in zip(PARTS, parts, strict=True)}
            write(folder / MANIFEST, [_text(manifest)])
            sync(folder)
            _put(folder, final)
    return Checkpoint(final)


def prune(run: Path, keep: int, also: Collection[int] = ()) -> None:
    """Delete all but the `keep` newest and the steps in `also`, after reading the newest back and verifying it."""
    checkpoints = Checkpoint.all(run)
    if checkpoints and checkpoints[0].verify() is None:
        retire(checkpoints[0], keep, also)


def retire(whole: Checkpoint, keep: int, also: Collection[int] = ()) -> None:
    """Delete checkpoints older than a verified one, but keep the newest `keep` and the steps in `also`."""
    parent = own_folder(whole.folder.parent)
    upto = [checkpoint for checkpoint in Checkpoint.all(parent.parent) if checkpoint.step <= whole.step]
    for old in upto[keep:]:
        if old.step not in also:
            # Rename it first: a half deleted folder must not look like a checkpoint.
            with failing(old.folder, "deleted"):
                os.replace(old.folder, old.folder.with_name(f".{old.folder.name}.old"))
    _clear(parent)


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of their weights, summed in float64."""
    first, *others = checkpoints
    sums = {name: tensor.double() for name, tensor in first.weights().items()}
    for checkpoint in others:
        for name, tensor in checkpoint.weights().items():
            sums[name] += tensor
    return {name: (sums[name] / len(checkpoints)).to(tensor.dtype) for name, tensor in first.weights().items()}


def versions() -> dict[str, str]:
    """The versions of everything that a run's numbers depend on."""
    return {"regard": regard.__version__, "torch": torch.__version__, "python": platform.python_version(),
            "numpy": np.__version__}


# Writing.


@contextmanager
def _beside(final: Path) -> Iterator[Path]:
    """A new folder to write in. It is deleted afterwards, unless it was moved into place."""
    temporary = final.with_name(f".{final.name}.new")
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(folder: Path, final: Path) -> None:
    """Replace the final folder. A kill between the two renames leaves neither, but the older checkpoints."""
    old = final.with_name(f".{final.name}.old")
    if os.path.lexists(final):
        os.replace(final, old)
    try:
        os.replace(folder, final)
    except OSError:
        if old.exists():
            os.replace(old, final)
        raise
    sync(final.parent)
    sync(final.parent.parent)  # "checkpoints" itself may be new
    _clear(final.parent)


def _clear(parent: Path) -> None:
    """Delete temporary folders of saves that failed or were killed."""
    for folder in parent.glob(".step-*"):
        with suppress(OSError):
            remove(folder)


def _check_space(final: Path, size: int) -> None:
    needed, free = size + MARGIN, shutil.disk_usage(final.parent).free
    if needed > free:
        raise Failure(f"{final}: needs {amount(needed)}, the disk has {amount(free)} free; "
                      "free some space or lower train.keep_checkpoints")


def _text(manifest: Mapping[str, Written]) -> bytes:
    return json.dumps(manifest, indent=1).encode()


# Verifying. Each error begins with the file.


def _check_names(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.name in (*PARTS, MANIFEST):
            if not path.is_file():  # reading a pipe would block
                raise UserError(f"{path}: not a file")
        elif not path.name.startswith("."):  # the system's own (.DS_Store, .nfs0001): nothing here reads them
            raise UserError(f"{path}: not part of a checkpoint")


def _manifest(path: Path) -> dict[str, Written]:
    if path.stat().st_size > MAX_CHECKPOINT_MANIFEST_BYTES:
        raise UserError(f"{path}: too long for a manifest")
    manifest = read_json(path)
    for name, about in manifest.items():
        if name not in PARTS:
            raise UserError(f"{path}: lists {name!r}, which is not part of a checkpoint")
        match about:
            case {"size": int(), "sha256": str(), **more} if not more:
                continue
        raise UserError(f"{path}: gives no size and SHA-256 of {name}")
    if missing := [name for name in PARTS if name not in manifest]:
        raise UserError(f"{path}: does not name {missing[0]}")
    with open(path, "rb", opener=to_read) as file:
        content = file.read()
    if _text(manifest) != content:  # a key twice, an extra word or space
        raise UserError(f"{path}: was changed after it was written")
    return manifest


def _compare(path: Path, about: Written) -> None:
    size = path.stat().st_size
    if size != about["size"]:
        raise UserError(f"{path}: has {size:,} bytes, but {about['size']:,} in {MANIFEST}")
    if digest(path) != about["sha256"]:
        raise UserError(f"{path}: its SHA-256 is not the one in {MANIFEST}")


def _check_header(path: Path) -> None:
    """The library checks that the header's tensors fill the file, each with its shape's bytes."""
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise UserError(f"{path}: not safetensors: {error}") from error


def _check_state(path: Path, step: int) -> None:
    state = read_json(path)
    if state.get("format") != FORMAT:
        raise UserError(f"{path}: of format {state.get('format')}; this version of regard reads format {FORMAT}")
    if state.get("step") != step:
        raise UserError(f"{path}: of step {state.get('step')}, in the folder of step {step}")
