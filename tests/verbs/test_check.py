"""`regard check`: a line for each thing that must hold, and an exit code that says whether all of them do."""

import json
from pathlib import Path

import pytest
from torch.nn import functional

from regard.settings.errors import Failure
from regard.settings.load import load
from regard.training.loop import train
from regard.verbs.check import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "pairs.tsv").write_text("".join(f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(30)))
    settings = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
                "train.batch_tokens=64", "search.max_tokens=8", "device=cpu", f"data.paths={folder / 'pairs.tsv'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return folder / "run"


def test_a_trained_run_passes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(run, "cpu", json=False)
    head, *lines = capsys.readouterr().out.splitlines()
    assert "largest difference" in head
    assert len(lines) == 10
    assert all(line.endswith("ok") for line in lines)


def test_a_run_without_its_data_passes_on_made_up_sentences(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "data").rename(run / "elsewhere")
    try:
        main(run, "cpu", json=True)
    finally:
        (run / "elsewhere").rename(run / "data")
    said = json.loads(capsys.readouterr().out)
    assert said["holds"]
    assert len(said["checks"]) == 10


def test_a_fault_is_a_failure_that_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *inputs, scale, **options: sound(
        *inputs, scale=1.01 * scale, **options))
    with pytest.raises(Failure, match=r"2 of 10 checks failed: .*fused = explicit"):
        main(run, "cpu", json=False)
    [other, line] = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert other.startswith("reordered = fresh")  # beams attend by the definition
    assert line.startswith("fused = explicit")
    assert "the fast attention is not the one that is defined (" in line


def test_a_fault_is_there_in_json_too(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *inputs, **options: sound(
        *inputs, **options) / 0.0)
    with pytest.raises(Failure):
        main(run, "cpu", json=True)
    said = json.loads(capsys.readouterr().out)
    assert not said["holds"]
    [fused] = [check for check in said["checks"] if check["name"] == "fused = explicit"]
    assert fused["difference"] is None  # JSON has no infinity
