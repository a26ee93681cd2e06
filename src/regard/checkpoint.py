"""A run directory: what a run leaves, each part written whole or not at all.

    runs/NAME/  run.json  config.json  model.safetensors  tokenizer.json  metrics.jsonl  data/
                checkpoints/step-00000500/  model.safetensors optimizer.safetensors state.json MANIFEST.json
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.settings.errors import Failure, UserError

__all__ = ["Checkpoint", "average", "load_weights", "named_tensors", "prune", "read_json", "save_checkpoint",
           "write_json", "write_model", "write_tensors"]

MANIFEST = "MANIFEST.json"
PARTS = ("model.safetensors", "optimizer.safetensors", "state.json")


class Checkpoint:
    """A folder `step-…` whose manifest was written last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step = int(folder.name.removeprefix("step-"))

    def verify(self) -> str | None:
        """What is wrong with it, or None."""
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text())
            for file, about in ((self.folder / name, manifest[name]) for name in PARTS):
                if file.stat().st_size != about["size"] or _digest(file) != about["sha256"]:
                    return f"{file}: not what was written"
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except (ValueError, KeyError, TypeError) as error:
            return f"{self.folder / MANIFEST}: not a manifest: {error}"
        return None

    def weights(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model.safetensors")

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.folder / "optimizer.safetensors")

    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state.json").read_text()))

    @staticmethod
    def all(run: Path) -> list["Checkpoint"]:
        """Those of a run, the newest first, whether good or not."""
        folders = [f for f in (run / "checkpoints").glob("step-*") if f.name.removeprefix("step-").isdigit()]
        return sorted(map(Checkpoint, folders), key=lambda c: -c.step)


def save_checkpoint(run: Path, step: int, *, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor],
                    state: Mapping[str, Any]) -> Checkpoint:
    """Beside its place first, then renamed: a reader sees all of it or nothing."""
    final = run / "checkpoints" / f"step-{step:08d}"
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        save_file(dict(weights), temporary / "model.safetensors")
        save_file(dict(optimizer), temporary / "optimizer.safetensors")
        (temporary / "state.json").write_text(json.dumps(state))
        manifest = {f.name: {"size": f.stat().st_size, "sha256": _digest(f)} for f in sorted(temporary.iterdir())}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        if final.exists():
            shutil.rmtree(final)
        os.replace(temporary, final)
        _sync(final.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise Failure(f"{final}: could not be saved: {error}") from error
    return Checkpoint(final)


def prune(run: Path, keep: int) -> None:
    """Delete all but the newest, once the newest has been read back and found whole."""
    checkpoints = Checkpoint.all(run)
    if checkpoints and checkpoints[0].verify() is None:
        unfinished = (run / "checkpoints").glob(".step-*")  # from runs that were killed inside a save
        for old in (*(checkpoint.folder for checkpoint in checkpoints[keep:]), *unfinished):
            shutil.rmtree(old)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once, on the CPU, under the first of its names: safetensors knows no sharing."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.detach().cpu().contiguous()
    return tensors


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Every tensor into its place; what is missing, left over or of another shape is named."""
    wanted = named_tensors(model)
    wrong = [f"{name}: {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
             for name in wanted.keys() & tensors.keys() if tensors[name].shape != wanted[name].shape]
    wrong += [f"{name}: missing" for name in wanted.keys() - tensors.keys()]
    wrong += [f"{name}: unknown" for name in tensors.keys() - wanted.keys()]
    if wrong:
        more = f" (and {len(wrong) - 8} more)" if len(wrong) > 8 else ""
        raise UserError(f"{origin} does not fit the model: {'; '.join(sorted(wrong)[:8])}{more}")
    model.load_state_dict(dict(tensors), strict=False)


def write_model(run: Path, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """The finished model, in the layout other tools know."""
    write_tensors(run / "model.safetensors", weights)
    write_json(run / "config.json", config)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        save_file(dict(tensors), temporary, metadata={"format": "pt"})
        _sync(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise Failure(f"{path}: could not be saved: {error}") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        _sync(temporary)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Failure(f"{path}: could not be written: {error.strerror}") from error


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no JSON object")
    return content


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of their weights, summed in float64."""
    first, *others = checkpoints
    sums = {name: tensor.double() for name, tensor in first.weights().items()}
    for checkpoint in others:
        for name, tensor in checkpoint.weights().items():
            sums[name] += tensor
    return {name: (sums[name] / len(checkpoints)).to(tensor.dtype) for name, tensor in first.weights().items()}


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """On Windows a directory cannot be opened to be synced; its file system orders renames itself."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
