"""`regard predict --embed` writes a vector for each input, in order, whole or not at all."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import regard
from regard.checkpoint import named_tensors, write_json
from regard.cli import main
from regard.convert.import_export import write_run_model
from regard.data.tokenizer import train
from regard.models.encoder_only import EncoderOnly
from regard.nn.init import initialize
from regard.settings.load import to_json
from regard.settings.presets import PRESETS
from regard.settings.schema import Data, Run

TEXTS = ["the theory", "it", "", "the theme of it — „Maß“", "the theory"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    run = Run(task="encode", data=Data(max_tokens=32),
              model=replace(PRESETS["bert-base"](), width=12, heads=3, depth=1, max_positions=32))
    model = EncoderOnly(run.model, vocabulary=320)
    initialize(model, seed=0)
    train(TEXTS, kind="bpe", vocabulary=300, mask=True).save(place / "tokenizer.json")
    write_json(place / "run.json", to_json(run))
    write_run_model(place, run, {"vocabulary": 320}, named_tensors(model))
    return place


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", ["regard", *arguments]), redirect_stdout(out), redirect_stderr(err),
          patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))), pytest.raises(SystemExit) as ended):
        main()
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
    return int(ended.value.code or 0), out.read(), err.read()


def test_a_numpy_file_has_a_row_for_each_input(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "vectors.npy"
    embed = ["predict", "--run", str(folder), "--device", "cpu", "--embed", str(place)]
    assert run(*embed, *TEXTS)[:2] == (0, f"{place}\n")
    found = np.load(place)
    assert (found.dtype, found.shape) == (np.float32, (5, 12))
    assert np.allclose(found, regard.load(folder, device="cpu").embed(TEXTS), rtol=1e-5, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.npy"]


@pytest.mark.parametrize("together", [2, 4_096])
def test_lines_come_as_lines_and_as_rows_whatever_the_size_of_a_chunk(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr("regard.verbs.embed.MAX_INPUTS_AT_ONCE", together)
    lines = "".join(f"{text}\n" for text in TEXTS).encode()
    options = ("predict", "--run", str(folder), "--embed")
    _, out, _ = run(*options, "-", stdin=lines)
    run(*options, str(tmp_path / "vectors.jsonl"), stdin=lines)
    _, said, _ = run(*options, str(tmp_path / "vectors.npy"), "--json", stdin=lines)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["input"] for row in rows] == TEXTS
    assert (tmp_path / "vectors.jsonl").read_text(encoding="utf-8") == out
    assert np.allclose([row["vector"] for row in rows], np.load(tmp_path / "vectors.npy"), atol=1e-5)
    assert json.loads(said) == {"file": str(tmp_path / "vectors.npy"), "inputs": 5, "width": 12}


def test_nothing_in_is_an_empty_array(folder: Path, tmp_path: Path) -> None:
    assert run("predict", "--run", str(folder), "--embed", str(tmp_path / "none.npy"))[0] == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 12)
    assert run("predict", "--run", str(folder), "--embed", "-")[:2] == (0, "")


@pytest.mark.parametrize(("arguments", "said"), [
    (["vectors.txt", "a"], "must be a .npy or a .jsonl"), (["none/vectors.npy", "a"], "no such folder"),
    (["vectors.npy", "--score", "a"], "--score: has no effect with --embed"),
    (["vectors.npy", "--samples", "2", "a"], "search.best=2: has no effect with --embed"),
])
def test_a_wrong_call_is_one_line_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("predict", "--run", str(folder), "--embed", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_is_not_utf_8_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    code, _, err = run("predict", "--run", str(folder), "--embed", str(tmp_path / "x.npy"), stdin=b"a\nb\xff\n")
    assert code == 2
    assert "UTF-8" in err
    assert list(tmp_path.iterdir()) == []
