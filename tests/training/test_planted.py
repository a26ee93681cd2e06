"""A run may come from anywhere: what others have put into its folder leads no write out of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from regard.checkpoint import save_checkpoint
from regard.checkpoint.files import write
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run
from regard.training.loop import train

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need rights there")
KEPT = b"worth a year of work\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    data = tmp_path_factory.mktemp("data") / "pairs.tsv"
    data.write_text("".join(f"le chat {n}\tthe cat {n}\n" for n in range(40)), encoding="utf-8")
    return load(None, ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
                       "train.batch_tokens=64", "train.save_every=1", "train.keep_checkpoints=1", "train.warmup=1",
                       "search.max_tokens=8", "search.beam=1", "device=cpu", f"data.paths={data}"])


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_bytes(KEPT)
    return path


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_planted_link_in_place_of_a_file_that_grows_is_refused(run: Run, tmp_path: Path, precious: Path,
                                                                 name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(precious)
    with pytest.raises(UserError, match=f"{name}: is a symbolic link"):
        train(run, tmp_path / "run", quiet=True)
    assert precious.read_bytes() == KEPT


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_hard_link_in_place_of_a_file_that_grows_is_refused_before_the_work(run: Run, tmp_path: Path, precious: Path,
                                                                              name: str) -> None:
    (tmp_path / "run").mkdir()
    os.link(precious, tmp_path / "run" / name)
    with pytest.raises(UserError, match=f"{name}: is one of 2 names of a file"):
        train(run, tmp_path / "run", quiet=True)
    assert precious.read_bytes() == KEPT
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != "lock"] == [name] * (name != "lock")


def test_a_run_of_which_a_backup_has_the_files_goes_on_as_the_message_says_and_leaves_the_backup(
    run: Run, tmp_path: Path
) -> None:
    folder, backup = tmp_path / "my run", tmp_path / "backup"
    train(run, folder, quiet=True)
    shutil.copytree(folder, backup, copy_function=os.link)  # cp -al
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    for name in ("metrics.jsonl", "lock"):
        with pytest.raises(UserError, match=f"{name}: is one of 2 names") as refused:
            train(run, folder, quiet=True)
        subprocess.run(str(refused.value).partition("put a copy in its place: ")[2], shell=True, check=True)
    train(run, folder, quiet=True)
    assert (folder / "metrics.jsonl").stat().st_size > (backup / "metrics.jsonl").stat().st_size
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["checkpoints", "data", "events", "adapter"])
def test_a_planted_link_in_place_of_a_folder_is_refused_before_the_work(run: Run, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    for number in (1, 2, 3):
        (elsewhere / f".step-0000000{number}").mkdir(parents=True)
        (elsewhere / f"step-0000000{number}").mkdir()
    before = sorted(elsewhere.iterdir())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"{name}: is a symbolic link"):
        train(run, tmp_path / "run", quiet=True)
    assert sorted(elsewhere.iterdir()) == before
    assert not (tmp_path / "run" / "run.json").exists()


def test_links_in_place_of_files_that_are_replaced_are_replaced_and_not_written_through(run: Run, tmp_path: Path,
                                                                                        precious: Path) -> None:
    whole, planted = tmp_path / "whole", tmp_path / "planted"
    train(run, whole, quiet=True)
    made = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and "checkpoints" not in path.parts]
    assert len(made) > 15
    for path in made:
        if path.name not in ("lock", "metrics.jsonl"):
            (planted / path).parent.mkdir(parents=True, exist_ok=True)
            (planted / path.parent / f".{path.name}.tmp").symlink_to(precious)
            (planted / path).symlink_to(tmp_path / "nothing")
    train(run, planted, quiet=True)
    assert precious.read_bytes() == KEPT
    assert not (tmp_path / "nothing").exists()
    # A link at a temporary name that is not used is left as it was.
    assert sorted(path.relative_to(planted) for path in planted.rglob("*") if path.is_file()
                  and path.suffix != ".tmp") == sorted(
        path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert not [path for path in planted.rglob("*") if path.is_symlink() and path.suffix != ".tmp"]


def test_links_among_checkpoints_are_deleted_and_what_they_lead_to_is_left(tmp_path: Path, precious: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(KEPT)
    (tmp_path / "checkpoints").mkdir()
    for name in (".step-00000002.new", ".step-00000002.old", "step-00000002"):
        (tmp_path / "checkpoints" / name).symlink_to(elsewhere)
    (tmp_path / "checkpoints" / ".step-00000001.new").symlink_to(precious)
    checkpoint = save_checkpoint(tmp_path, 2, weights={"a": torch.zeros(3)}, optimizer={}, state={})
    assert checkpoint.verify() is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
    assert not checkpoint.folder.is_symlink()
    assert precious.read_bytes() == (elsewhere / "precious").read_bytes() == KEPT


def test_a_run_behind_a_link_is_trained_and_gone_on_with(run: Run, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "best").symlink_to(tmp_path / "large disk")
    for _ in range(2):
        train(run, tmp_path / "best", quiet=True)
    assert (tmp_path / "best").is_symlink()
    assert (tmp_path / "large disk" / "model.safetensors").is_file()


def test_a_pipe_in_place_of_a_file_of_a_run_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    for name in ("lock", "metrics.jsonl"):
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / name)
        with pytest.raises(UserError, match=f"{name}: is a pipe, not a regular file"):
            train(run, tmp_path / name, quiet=True)


def test_a_new_file_is_never_written_through_a_link_that_appears_in_its_place(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "link").symlink_to(precious)
    with pytest.raises(UserError, match="link: is a symbolic link"):
        write(tmp_path / "link", [b"new"])
    assert precious.read_bytes() == KEPT
