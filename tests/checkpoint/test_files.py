"""A file is there whole or not at all, and other tools can read it."""

import errno
import hashlib
import json
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, load_file
from torch import Tensor

from regard.checkpoint import read_json, write_json, write_model, write_tensors
from regard.checkpoint.files import CHUNK, DTYPES, digest, safetensors, write
from regard.settings.errors import Failure, UserError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


SHAPES = st.lists(st.integers(0, 4), max_size=3)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "__metadata__")


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from(list(DTYPES)), SHAPES), max_size=6), st.integers(0, 2**32))
def test_tensors_come_back_bit_for_bit(named: dict[str, tuple[torch.dtype, list[int]]], seed: int) -> None:
    """Of every type and shape: empty ones, single numbers, not-a-numbers with their payload."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (dtype, shape) in named.items():
        count = torch.Size(shape).numel() * dtype.itemsize
        numbers = torch.randint(2 if dtype == torch.bool else 256, (count,), generator=generator, dtype=torch.uint8)
        tensors[name] = numbers.view(dtype).reshape(shape)
    found = load(b"".join(safetensors(tensors)))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(found[name]) == bits(tensor)


def test_a_tensor_is_written_as_it_is_seen_not_as_it_lies(tmp_path: Path) -> None:
    matrix = torch.arange(12.0, requires_grad=True).reshape(3, 4)
    seen = {"turned": matrix.T, "part": matrix[:, 1:3], "wide": matrix[:1].expand(5, 4)}
    write_tensors(tmp_path / "a.safetensors", seen)
    found = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(found[name], seen[name]) for name in seen)


def test_every_tensor_begins_at_a_multiple_of_its_numbers_width(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(3),
                                               "c": torch.ones(1, dtype=torch.bfloat16), "d": torch.ones(1).double()})
    content = (tmp_path / "a.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    for name, width in {"a": 1, "b": 4, "c": 2, "d": 8}.items():
        assert header[name]["data_offsets"][0] % width == 0


def test_the_model_says_that_it_is_pytorchs(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": torch.ones(2)}, {})
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_what_is_written_is_counted_and_hashed(tmp_path: Path, size: int) -> None:
    content = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    written = write(tmp_path / "file", [content[:5], b"", memoryview(content)[5:]])
    assert (tmp_path / "file").read_bytes() == content
    assert written == {"size": size, "sha256": hashlib.sha256(content).hexdigest()}
    assert digest(tmp_path / "file") == written["sha256"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing beyond it fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("write", [lambda folder: write_json(folder / "config.json", {"new": "x" * 9_000}),
                                   lambda folder: write_model(folder, {"a": torch.ones(9_000)}, {"new": 1})])
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, write: object) -> None:
    assert callable(write)
    write_model(tmp_path, {"a": torch.zeros(2)}, {"old": 1})
    before = contents(tmp_path)
    with files_of_at_most(5_000), pytest.raises(Failure, match="could not be saved: File too large"):
        write(tmp_path)
    assert contents(tmp_path) == before
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch("os.replace", side_effect=full), pytest.raises(Failure, match=r"or lower train\.keep_checkpoints$"):
        write(tmp_path)
    assert contents(tmp_path) == before
    write(tmp_path)
    assert contents(tmp_path) != before


def test_a_file_whose_folder_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("a file")
    with pytest.raises(Failure, match="could not be saved: Not a directory") as caught:
        write_json(tmp_path / "here" / "run.json", {})
    assert str(caught.value).startswith(str(tmp_path / "here" / "run.json"))


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), ("{", "not JSON"), ("[1]", "not a JSON object"),
                                               ("[" * 100_000, "not JSON")], ids=["none", "cut", "list", "deep"])
def test_json_that_is_none_is_refused_by_name(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        read_json(path)
    assert str(caught.value).startswith(str(path))
