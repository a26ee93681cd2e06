"""The manifest of a run: which files it vouches for, when, and what becomes of a run whose files are not those."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from killing import killed_at
from regard import manifest
from regard.checkpoint import Checkpoint, save_checkpoint
from regard.cli import main
from regard.runs.lock import hold
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run
from regard.training import loop
from regard.training.loop import train
from regard.training.resume import Progress

TEXTS = ["the red car", "a blue house"]


def settings(data: Path, *more: str) -> Run:
    return load(None, [
        "task=classify", f"data.paths={data}", "device=cpu", "model.width=16", "model.depth=1", "model.heads=2",
        "tokens.vocabulary=300", "train.steps=4", "train.save_every=2", "train.evaluate_every=2",
        "train.batch_tokens=64", "train.warmup=2", *more])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "colours.tsv"
    path.write_text("".join(f"a {colour} thing {i}\t{colour}\n" for i in range(20) for colour in ("red", "blue")))
    return path


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(settings(data), folder, quiet=True)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def begun(data: Path, tmp_path: Path) -> Path:
    with killed_at(3):
        train(settings(data), tmp_path / "begun", quiet=True)
    return tmp_path / "begun"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        action()
    return str(caught.value)


def said(*words: object) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with (patch.object(sys, "argv", ["regard", *map(str, words)]), redirect_stdout(out), redirect_stderr(err),
          pytest.raises(SystemExit) as ended):
        main()
    out.seek(0)
    err.seek(0)
    return int(ended.value.code or 0), out.read(), err.read()


# Which files, and when.


def test_every_file_of_a_run_is_listed_but_its_log_its_lock_and_its_checkpoints(whole: Path) -> None:
    there = {path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()}
    others = {name for name in there if name.startswith("checkpoints/")} | {"metrics.jsonl", "lock", manifest.NAME}
    assert set(manifest.listed(whole, *manifest.EVERYTHING)) == there - others
    assert {"model.safetensors", "config.json", "run.json", "scores.json", "labels.json", "tokenizer.json",
            "data/key.json", "data/train.ids.ids.npy"} <= there - others


def test_a_run_that_is_interrupted_lists_its_data_and_settings_only(begun: Path) -> None:
    names = set(manifest.listed(begun, *manifest.EVERYTHING))
    assert {"run.json", "data/key.json", "tokenizer.json"} <= names
    assert not names & {"model.safetensors", "config.json", "scores.json"}


def test_a_model_is_not_listed_while_it_is_written_anew(run: Path, data: Path) -> None:
    """The old model is listed while a lengthened run goes on, until the moment it is written over."""
    longer = settings(data, "train.steps=6")
    shutil.copy(run / "run.json", run / "old.json")
    (run / "scores.json").unlink()
    manifest.forget(run, *manifest.SCORES, *manifest.SETTINGS)
    (run / "run.json").unlink()

    def killed(folder: Path, *arguments: Any) -> None:
        assert "model.safetensors" not in manifest.listed(folder, *manifest.MODEL)
        assert "run.json" in manifest.listed(folder, *manifest.SETTINGS)
        raise KeyboardInterrupt

    with patch.object(loop, "write_run_model", killed), pytest.raises(KeyboardInterrupt):
        train(longer, run, quiet=True)
    assert "not listed in MANIFEST.json" in refusal(lambda: regard.load(run, device="cpu"))
    train(longer, run, quiet=True)
    assert regard.load(run, device="cpu").predict(TEXTS)


# What predict reads.


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "labels.json", "config.json", "run.json"])
def test_a_flipped_bit_of_what_a_run_needs_to_answer_is_refused(run: Path, name: str) -> None:
    flip(run / name)
    told = refusal(lambda: regard.load(run, device="cpu"))
    assert told.startswith(f"{run / name}: damaged: its SHA-256 is not the one in MANIFEST.json")
    assert "--no-verify" in told


def test_no_verify_reads_a_run_as_it_is(run: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    tensors[min(tensors)].flatten()[0] += 1  # as a person might
    save_file(tensors, run / "model.safetensors")
    code, out, err = said("predict", "--run", run, *TEXTS)
    assert (code, out) == (2, "")
    assert "model.safetensors" in err
    code, out, err = said("predict", "--no-verify", "--run", run, *TEXTS)
    assert (code, err, len(out.splitlines())) == (0, "", 2)


def test_predict_does_not_open_the_prepared_data(run: Path, whole: Path) -> None:
    for path in (run / "data").iterdir():
        path.write_bytes(b"harmed")
    assert regard.load(run, device="cpu").predict(TEXTS) == regard.load(whole, device="cpu").predict(TEXTS)


def test_a_run_without_a_manifest_is_read_with_a_note(
    run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = regard.load(whole, device="cpu").predict(TEXTS)
    assert capsys.readouterr().err == ""
    (run / manifest.NAME).unlink()
    assert regard.load(run, device="cpu").predict(TEXTS) == answers
    assert capsys.readouterr().err == f"note: {run} has no MANIFEST.json: its files are read unchecked\n"


def test_harm_to_the_manifest_is_not_taken_for_harm_to_the_files(run: Path) -> None:
    text = (run / manifest.NAME).read_text()
    for old, new in (("model.safetensors", "modal.safetensors"), ('"size": ', '"size": 1'), ("}", "")):
        (run / manifest.NAME).write_text(text.replace(old, new, 1))
        assert refusal(lambda: regard.load(run, device="cpu")).startswith(f"{run / manifest.NAME}: damaged")


def test_weights_that_are_not_finite_are_refused_whatever_the_manifest_says(run: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    tensors[min(tensors)].flatten()[0] = float("nan")
    save_file(tensors, run / "model.safetensors", metadata={"format": "pt"})
    manifest.seal(run, "model.safetensors")
    assert f"{min(tensors)} has values that are not finite" in refusal(lambda: regard.load(run, device="cpu"))


# What is prepared again.


def test_damaged_data_is_prepared_again_to_the_same_bytes(run: Path, whole: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    flip(run / "data" / "val.ids.ids.npy")
    assert regard.load(run, device="cpu").evaluate("val") == regard.load(whole, device="cpu").evaluate("val")
    assert "val.ids.ids.npy: damaged: its SHA-256 is not the one in MANIFEST.json; the data is prepared again" in (
        capsys.readouterr().err)
    for path in (whole / "data").iterdir():
        assert (run / "data" / path.name).read_bytes() == path.read_bytes()


def test_an_interrupted_run_whose_data_is_gone_ends_as_if_it_were_not(begun: Path, whole: Path, data: Path) -> None:
    shutil.rmtree(begun / "data")
    (begun / "tokenizer.json").write_text("{}")
    train(settings(data), begun, quiet=True)
    assert (begun / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_data_that_is_prepared_again_from_other_files_is_refused_and_leaves_the_old(begun: Path, data: Path) -> None:
    before = data.read_text()
    flip(begun / "data" / "key.json")
    tokens = (begun / "tokenizer.json").read_bytes()
    try:
        data.write_text(before.replace("thing", "matter"))
        told = refusal(lambda: train(settings(data), begun, quiet=True))
    finally:
        data.write_text(before)
    assert "prepared again from the data, it is not what this run began with" in told
    assert (begun / "tokenizer.json").read_bytes() == tokens
    train(settings(data), begun, quiet=True)


def test_damaged_data_is_not_prepared_while_another_process_trains(run: Path) -> None:
    path = next((run / "data").glob("*.npy"), None) or run / "data" / "key.json"
    flip(path)
    before = path.read_bytes()
    with hold(run):  # as another process that trains it does
        assert f"{run} is being trained by process" in refusal(lambda: regard.load(run).read_data())
    assert path.read_bytes() == before
    regard.load(run).read_data()  # the other is done
    assert path.read_bytes() != before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_data_that_another_process_prepares_is_waited_for_and_not_prepared_again(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, said = run / "data" / "key.json", ""
    whole = path.read_bytes()
    flip(path)
    reader = threading.Thread(target=regard.load(run).read_data, daemon=True)
    with hold(run, work="prepare"):  # as another process does
        reader.start()
        for _ in range(100):
            if said := said + capfd.readouterr().err:
                break
            time.sleep(0.1)
        assert said.startswith(f"note: {run} has its data prepared by process {os.getpid()} on ")
        path.write_bytes(whole)
    reader.join(30)
    assert "prepared again" not in capfd.readouterr().err
    assert path.read_bytes() == whole


# Another run's checkpoint, and those that do not fit.


def put_newest(run: Path, checkpoint: Checkpoint, **changed: Any) -> Checkpoint:
    """Save it as the newest of a run, with a part of it changed."""
    newest = Checkpoint.all(run)[0]
    parts = {"weights": checkpoint.weights(), "optimizer": checkpoint.optimizer(), "state": checkpoint.state()}
    return save_checkpoint(run, newest.step, **(parts | changed))


def test_a_checkpoint_of_a_run_with_other_settings_is_refused_with_what_differs(
    begun: Path, data: Path, tmp_path: Path
) -> None:
    with killed_at(3):
        train(settings(data, "seed=7", "train.learning_rate=0.5"), tmp_path / "other", quiet=True)
    put_newest(begun, Checkpoint.all(tmp_path / "other")[0])
    told = refusal(lambda: train(settings(data), begun, quiet=True))
    assert "step-00000002 is of a run with other settings:" in told
    assert "seed: 7 → 0" in told
    assert "train.learning_rate: 0.5 → " in told


def test_the_model_is_not_made_of_another_runs_checkpoint(whole: Path, data: Path, tmp_path: Path) -> None:
    """What the mean is made of are older ones, too, than the newest, from which the run goes on."""
    run = settings(data, "train.average_checkpoints=2")
    train(run, tmp_path / "run", quiet=True)
    older = Checkpoint.all(tmp_path / "run")[1]
    shutil.rmtree(older.folder)
    shutil.copytree(whole / "checkpoints" / older.folder.name, older.folder)
    (tmp_path / "run" / "model.safetensors").unlink()
    assert "step-00000002 is of a run with other settings" in refusal(lambda: train(run, tmp_path / "run", quiet=True))


def widened(tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {**tensors, name: torch.cat([tensors[name].flatten(), torch.ones(1)])}


@pytest.mark.parametrize(("part", "change", "told"), [
    ("optimizer", lambda t: widened(t, "0.exp_avg"), "0.exp_avg: "),
    ("optimizer", lambda t: {**t, "0.exp_avg": t["0.exp_avg"] * float("nan")}, "0.exp_avg: not all of it is finite"),
    ("optimizer", lambda t: {**t, "0.exp_avg_sq": -t["0.exp_avg_sq"] - 1}, "0.exp_avg_sq: not all of it is at least 0"),
    ("optimizer", lambda t: {**t, "0.exp_avg": t["0.exp_avg"].half()}, "0.exp_avg: float16 instead of float32"),
    ("optimizer", lambda t: {**t, "0.step": torch.tensor(99.0)}, "0.step: 99.0 of 2 steps"),
    ("optimizer", lambda t: {**t, "99.exp_avg": t["0.exp_avg"]}, "99.exp_avg: unknown"),
    ("optimizer", lambda t: {k: v for k, v in t.items() if k != "1.exp_avg_sq"}, "1.exp_avg_sq: missing"),
    ("weights", lambda t: {**t, "head.output.bias": t["head.output.bias"] * float("inf")}, "head.output.bias: not all"),
    ("weights", lambda t: {**t, "head.output.bias": t["head.output.bias"].double()}, "float64 instead of float32"),
    ("weights", lambda t: widened(t, "head.output.bias"), "head.output.bias: (3,) instead of (2,)"),
])
def test_a_checkpoint_whose_tensors_are_not_those_of_the_run_is_refused(
    begun: Path, data: Path, part: str, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], told: str
) -> None:
    found = Checkpoint.all(begun)[0]
    tensors = found.weights() if part == "weights" else found.optimizer()
    assert put_newest(begun, found, **{part: change(tensors)}).verify() is None
    assert told in refusal(lambda: train(settings(data), begun, quiet=True))


@pytest.mark.parametrize(("changed", "told"), [
    ({"step": 99}, "progress.step=99: in the folder of step 2"), ({"goal": 1}, "progress.step=2: more than goal, 1"),
    ({"goal": 99}, "progress.goal=99: more than the run's steps, 4"), ({"step": "2"}, "progress.step='2'"),
    ({"evaluated": 3}, "progress.evaluated=3"), ({"best": "low"}, "progress.best='low'"),
    ({"best": float("nan")}, "progress.best=nan"), ({"best": None}, "progress.best_step=2"),
    ({"waited": -1}, "progress.waited=-1"), ({"skipped_in_row": 1}, "progress.skipped_in_row=1"),
    ({"more": 1}, "written by another version"),
])
def test_progress_that_cannot_be_is_refused(begun: Path, data: Path, changed: dict[str, Any], told: str) -> None:
    found = Checkpoint.all(begun)[0]
    state = found.state()
    put_newest(begun, found, state={**state, "progress": {**state["progress"], **changed}})
    assert told in refusal(lambda: train(settings(data), begun, quiet=True))


def test_what_a_run_passes_through_is_progress_that_can_be() -> None:
    progress = Progress(goal=9)
    for step, loss in enumerate([3.0, 4.0, float("nan"), 2.0, 2.5], 1):
        progress.step = step
        progress.judge(loss)
        assert progress.wrong(step, 9) is None, progress
        assert Progress(**json.loads(json.dumps(asdict(progress)))) == progress
    assert replace(progress, skipped=5, skipped_in_row=2).wrong(5, 9) is None


# The command again.


def test_the_same_command_mends_a_run_that_has_ended(run: Path, whole: Path, data: Path) -> None:
    words = ["train", "--recipe", whole / "run.json", "--out", run]
    for name in ("model.safetensors", "scores.json", "run.json", "labels.json"):
        flip(run / name)
        code, _, err = said(*words)
        assert code == 0, err
        assert f"note: {run / name}: damaged" in err
        assert (run / name).read_bytes() == (whole / name).read_bytes()
        assert manifest.damage(run, *manifest.EVERYTHING) is None


def test_a_damaged_model_without_checkpoints_is_not_trained_anew_in_silence(run: Path, whole: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    flip(run / "model.safetensors")
    code, _, err = said("train", "--recipe", whole / "run.json", "--out", run)
    assert code == 2
    assert "no checkpoint is left to mend the run from" in err


def test_a_run_without_model_and_checkpoints_says_that_it_is_trained_from_the_first_step_again(
        run: Path, whole: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "model.safetensors").unlink()
    code, _, err = said("train", "--recipe", whole / "run.json", "--out", run)
    assert code == 0
    assert "neither its model nor a checkpoint is left: it is trained from the first step again" in err


def test_a_damaged_run_is_listed_beside_good_ones(run: Path, whole: Path) -> None:
    shutil.copytree(whole, run.parent / "good")
    flip(run / "scores.json")
    code, out, _ = said("runs", run.parent)
    assert code == 0
    assert out.splitlines()[1].startswith("good  finished")
    assert "scores.json: damaged" in out


@pytest.mark.parametrize("name", ["../a", "data/../../a", "/etc/hostname"])
def test_a_manifest_that_names_a_file_outside_of_the_run_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).write_text(manifest._text({name: manifest.Written(size=0, sha256="")}))
    assert "damaged, or of another version" in refusal(lambda: manifest.listed(tmp_path, "*"))


@pytest.mark.parametrize("files", [[], "", None, 1])
def test_a_manifest_whose_files_are_no_mapping_is_refused_whatever_its_digest(files: object, tmp_path: Path) -> None:
    own = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    (tmp_path / manifest.NAME).write_text(manifest.text_of({"format": 1, "files": files, "sha256": own}))
    asked = "import pathlib, sys; from regard import manifest; print(manifest.damage(pathlib.Path(sys.argv[1]), '*'))"
    plain = subprocess.run([sys.executable, "-c", asked, tmp_path], capture_output=True, text=True, check=False)
    assert "damaged, or of another version" in plain.stdout, plain.stderr  # where no types are checked as it runs
