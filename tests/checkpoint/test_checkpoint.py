"""A checkpoint is there whole or not there; one that is not as it was written is never used."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

import regard
from regard.checkpoint import PARTS, Checkpoint, average, newest, prune, save_checkpoint, versions
from regard.checkpoint.checkpoint import MANIFEST, MARGIN
from regard.settings.errors import Failure


def save(run: Path, step: int, value: float | None = None) -> Checkpoint:
    tensor = torch.full((2, 3), float(step) if value is None else value)
    return save_checkpoint(run, step, weights={"a": tensor}, optimizer={"0.step": tensor[0, 0]},
                           state={"step": step, "best": 0.5})


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)


def seal(checkpoint: Checkpoint) -> Checkpoint:
    """Make the manifest anew, as someone would who wants the checkpoint to be believed."""
    contents = {name: (checkpoint.folder / name).read_bytes() for name in PARTS}
    manifest = {name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in contents.items()}
    (checkpoint.folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return checkpoint


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def steps(run: Path) -> list[int]:
    return [checkpoint.step for checkpoint in Checkpoint.all(run)]


# Saving.


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 7)
    assert checkpoint.folder.name == "step-00000007"
    assert checkpoint.verify() is None
    assert equal(checkpoint.weights(), {"a": torch.full((2, 3), 7.0)})
    assert equal(checkpoint.optimizer(), {"0.step": torch.tensor(7.0)})
    assert checkpoint.state() == {"step": 7, "best": 0.5}
    assert sorted(path.name for path in checkpoint.folder.iterdir()) == sorted([*PARTS, MANIFEST])


def test_the_file_of_the_state_says_its_format(tmp_path: Path) -> None:
    assert json.loads((save(tmp_path, 7).folder / "state.json").read_text()) == {"format": 1, "step": 7, "best": 0.5}


def test_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    for step in (9, 100_000_000, 10, 2):
        save(tmp_path, step)
    for name in ("step-none", "step-5", "step-²", "step-٠٠٠٠٠٠٠٥", ".step-00000003.new"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert steps(tmp_path) == [100_000_000, 10, 9, 2]
    assert Checkpoint.all(tmp_path / "nowhere") == []


@pytest.mark.parametrize(("function", "needed"), [("os.replace", 1), ("os.fsync", 7), ("os.mkdir", 2),
                                                  ("builtins.open", 4)])
def test_a_save_that_fails_anywhere_leaves_what_was_there(tmp_path: Path, function: str, needed: int) -> None:
    save(tmp_path, 1)
    before = contents(tmp_path)
    module, name = function.split(".")
    real = getattr(sys.modules[module], name)
    for granted in range(needed):
        left = iter(range(granted))

        def limited(*arguments: object, left: Iterator[int] = left, **more: object) -> object:
            if next(left, None) is None:
                raise OSError(28, "No space left on device")
            return real(*arguments, **more)

        with patch(function, limited), pytest.raises(Failure) as caught:
            save(tmp_path, 2)
        assert "step-00000002: could not be saved: No space left on device; free some space" in str(caught.value)
        # The name may be there before it is known to be on the disk; if it is, so is all of the checkpoint.
        assert names(tmp_path) in (["step-00000001"], ["step-00000001", "step-00000002"])
        assert all(checkpoint.verify() is None for checkpoint in Checkpoint.all(tmp_path))
        shutil.rmtree(tmp_path / "checkpoints" / "step-00000002", ignore_errors=True)
        assert contents(tmp_path) == before
    assert save(tmp_path, 2).verify() is None


def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = contents(tmp_path)
    real = os.replace

    def fail(source: Path, target: Path) -> None:
        if source.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        real(source, target)

    with patch("os.replace", fail), pytest.raises(Failure, match="Input/output error"):
        save(tmp_path, 1, value=5.0)
    assert contents(tmp_path) == before


def test_a_state_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, 1, weights={}, optimizer={}, state={"step": 1, "thing": object()})
    assert names(tmp_path) == []


def test_a_checkpoint_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    seen = []
    whole = os.replace

    def look(source: Path, target: Path) -> None:
        seen.append((steps(tmp_path), (Path(source) / MANIFEST).exists()))
        whole(source, target)

    with patch("os.replace", look):
        save(tmp_path, 1)
        save(tmp_path, 2)
    assert seen == [([], True), ([1], True)]


def test_a_save_takes_the_place_of_a_broken_checkpoint(tmp_path: Path) -> None:
    flip(save(tmp_path, 1).folder / "state.json", 3)
    assert save(tmp_path, 1, value=5.0).verify() is None
    assert float(Checkpoint.all(tmp_path)[0].weights()["a"][0, 0]) == 5.0
    assert names(tmp_path) == ["step-00000001"]


def test_what_a_killed_save_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    for name in (".step-00000001.new", ".step-00000002.new", ".step-00000000.old"):
        (tmp_path / "checkpoints" / name / "deep").mkdir(parents=True)
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-00000002"]


def test_nothing_is_written_where_the_disk_has_no_room_for_it(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = contents(tmp_path)
    tensor = torch.empty(1).expand(300_000_000)  # says that it has 1.2 GB, and has four bytes
    usage = shutil.disk_usage(tmp_path)._replace(free=300_000_000)
    with patch("shutil.disk_usage", lambda _: usage), pytest.raises(Failure) as caught:
        save_checkpoint(tmp_path, 2, weights={"a": tensor}, optimizer={}, state={})
    assert str(caught.value) == (f"{tmp_path / 'checkpoints' / 'step-00000002'}: needs 1.2 GB, "
                                 "the disk has 0.3 GB free; free some space or lower train.keep_checkpoints")
    assert caught.value.exit_code == 1
    assert contents(tmp_path) == before


def test_a_little_more_than_the_tensors_is_asked_for(tmp_path: Path) -> None:
    for free, fits in ((MARGIN + 27, False), (MARGIN + 28, True)):
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        with patch("shutil.disk_usage", lambda _, usage=usage: usage):
            try:
                save(tmp_path, 1)
            except Failure:
                assert not fits
            else:
                assert fits


# Verifying.


def wrong_with(checkpoint: Checkpoint) -> str:
    wrong = checkpoint.verify()
    assert wrong is not None
    assert "\n" not in wrong
    return wrong


def test_each_harm_is_said_in_its_own_words(tmp_path: Path) -> None:
    checkpoint, spare = save(tmp_path / "a", 1), save(tmp_path / "b", 1)
    model = checkpoint.folder / "model.safetensors"

    def mend() -> None:
        shutil.rmtree(checkpoint.folder)
        shutil.copytree(spare.folder, checkpoint.folder)

    flip(model, -1)
    assert wrong_with(checkpoint) == f"{model}: its SHA-256 is not the one in MANIFEST.json"
    mend()
    size = model.stat().st_size
    os.truncate(model, 50)
    assert wrong_with(checkpoint) == f"{model}: has 50 bytes, but {size} in MANIFEST.json"
    mend()
    model.unlink()
    assert wrong_with(checkpoint) == f"{model}: No such file or directory"
    model.mkdir()
    assert wrong_with(checkpoint) == f"{model}: not a file"
    mend()
    (checkpoint.folder / "more.bin").touch()
    assert wrong_with(checkpoint) == f"{checkpoint.folder / 'more.bin'}: not part of a checkpoint"
    mend()
    assert checkpoint.verify() is None


def test_model_and_optimizer_exchanged_are_found(tmp_path: Path) -> None:
    folder = save(tmp_path, 1).folder
    (folder / "model.safetensors").rename(folder / "x")
    (folder / "optimizer.safetensors").rename(folder / "model.safetensors")
    (folder / "x").rename(folder / "optimizer.safetensors")
    assert wrong_with(Checkpoint(folder)).startswith(f"{folder / 'model.safetensors'}: ")


GOOD = {"size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(("manifest", "says"), [
    ("", "not JSON"), ("{" * 9, "not JSON"), ("\xff", "not JSON"), ("[" * 60_000, "not JSON"),
    ("[]", "is not a JSON object"), ("7", "is not a JSON object"), ("null", "is not a JSON object"),
    ("{}", "does not name model.safetensors"), (" " * 70_000, "too long"),
    (json.dumps(dict.fromkeys(PARTS[:2], GOOD)), "does not name state.json"),
    ('{"model.safetensors": 7}', "gives no size and SHA-256 of model.safetensors"),
    ('{"model.safetensors": {"size": "1", "sha256": "0"}}', "gives no size and SHA-256 of model.safetensors"),
    ('{"model.safetensors": {"size": 1, "sha256": null}}', "gives no size and SHA-256 of model.safetensors"),
    ('{"model.safetensors": {"size": 1, "sha256": "0", "run": "x"}}', "gives no size and SHA-256"),
    (json.dumps({"../../../run.json": GOOD}), "lists '../../../run.json', which is not part of a checkpoint"),
    (json.dumps({"/etc/passwd": GOOD}), "lists '/etc/passwd', which is not part of a checkpoint"),
    (json.dumps(dict.fromkeys(PARTS, GOOD)), "was changed after it was written"),
], ids=range(17))  # fmt: skip
def test_a_manifest_that_is_none_is_found(tmp_path: Path, manifest: str, says: str) -> None:
    checkpoint = save(tmp_path, 1)
    (checkpoint.folder / MANIFEST).write_bytes(manifest.encode("latin-1"))
    assert wrong_with(checkpoint).startswith(f"{checkpoint.folder / MANIFEST}: ")
    assert says in wrong_with(checkpoint)


@pytest.mark.parametrize("header", [
    '{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,240]}}',
    '{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,24]}}',
    '{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[24,0]}}',
    '{"a":{"dtype":"F99","shape":[2,3],"data_offsets":[0,24]}}',
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', '{"a":', "[]", '{"a":{"dtype":"F32","shape":[-6]}}',
    '{"a":{"dtype":"F32","shape":[6],"data_offsets":[0,24]},"b":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}',
], ids=range(9))  # fmt: skip
def test_a_header_that_lies_is_found_though_its_hash_is_right(tmp_path: Path, header: str) -> None:
    checkpoint = save(tmp_path, 1)
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = checkpoint.folder / name
        good = path.read_bytes()
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(24))
        assert wrong_with(seal(checkpoint)).startswith(f"{path}: not safetensors: ")
        path.write_bytes(good)
    assert seal(checkpoint).verify() is None


def test_a_header_said_to_be_endless_is_not_believed(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1)
    path = checkpoint.folder / "model.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + path.read_bytes()[8:])
    assert wrong_with(seal(checkpoint)).startswith(f"{path}: not safetensors: ")


@pytest.mark.parametrize(("state", "says"), [
    ('{"format": 1, "step": 2}', "of step 2, in the folder of step 1"), ('{"format": 1}', "of step None"),
    ('{"format": 2, "step": 1}', "of format 2; this version of regard reads format 1"), ('{"step": 1}', "format None"),
    ("[]", "is not a JSON object"), ("", "not JSON"), ("[" * 100_000, "not JSON"),
], ids=range(7))  # fmt: skip
def test_a_state_of_another_step_or_format_is_found_though_its_hash_is_right(
    tmp_path: Path, state: str, says: str
) -> None:
    checkpoint = save(tmp_path, 1)
    (checkpoint.folder / "state.json").write_text(state)
    assert wrong_with(seal(checkpoint)).startswith(f"{checkpoint.folder / 'state.json'}: ")
    assert says in wrong_with(checkpoint)


def test_a_checkpoint_under_the_name_of_another_is_found(tmp_path: Path) -> None:
    folder = save(tmp_path, 1).folder
    renamed = folder.rename(folder.with_name("step-00000900"))
    assert "of step 1, in the folder of step 900" in wrong_with(Checkpoint(renamed))


def test_a_file_in_the_place_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "step-00000001"
    folder.parent.mkdir()
    folder.write_text("no folder")
    assert wrong_with(Checkpoint(folder)) == f"{folder}: Not a directory"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("part", [*PARTS, MANIFEST])
def test_a_pipe_is_not_waited_for(tmp_path: Path, part: str) -> None:
    checkpoint = save(tmp_path, 1)
    (checkpoint.folder / part).unlink()
    os.mkfifo(checkpoint.folder / part)
    assert wrong_with(checkpoint) == f"{checkpoint.folder / part}: not a file"


def test_what_a_file_manager_leaves_does_no_harm(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1)
    (checkpoint.folder / ".DS_Store").write_bytes(b"icons")
    assert checkpoint.verify() is None


# Going on.


def test_the_newest_is_taken_in_silence_if_it_is_whole(tmp_path: Path) -> None:
    said: list[str] = []
    assert newest(tmp_path, say=said.append) is None
    for step in (1, 2):
        save(tmp_path, step)
    found = newest(tmp_path, say=said.append)
    assert found is not None
    assert found.step == 2
    assert said == []


def test_the_next_older_is_taken_and_said_if_it_is_not(tmp_path: Path) -> None:
    folders = {step: save(tmp_path, step).folder for step in (100, 400, 500, 600)}
    flip(folders[600] / "optimizer.safetensors", -1)
    (folders[500] / MANIFEST).unlink()
    said: list[str] = []
    found = newest(tmp_path, say=said.append)
    assert found is not None
    assert found.step == 400
    assert said == [
        f"{folders[600] / 'optimizer.safetensors'}: its SHA-256 is not the one in MANIFEST.json; "
        "resuming from step 400 instead",
        f"{folders[500] / MANIFEST}: No such file or directory; resuming from step 400 instead"]


def test_a_run_with_no_whole_checkpoint_starts_anew_and_says_so(tmp_path: Path) -> None:
    model = save(tmp_path, 1).folder / "model.safetensors"
    flip(model, 9)
    said: list[str] = []
    assert newest(tmp_path, say=said.append) is None
    assert said == [f"{model}: its SHA-256 is not the one in MANIFEST.json; starting from the first step"]


# Pruning.


@pytest.mark.parametrize(("keep", "also", "kept"), [
    (2, (), [5, 4]), (1, (), [5]), (9, (), [5, 4, 3, 2, 1]), (2, (1,), [5, 4, 1]), (2, (4,), [5, 4]),
    (1, (3, 1), [5, 3, 1]), (2, (77,), [5, 4]),
])
def test_the_newest_are_kept_and_the_best(tmp_path: Path, keep: int, also: tuple[int, ...], kept: list[int]) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / "checkpoints" / ".step-00000006.new").mkdir()
    prune(tmp_path, keep, also)
    assert names(tmp_path) == [f"step-{step:08d}" for step in sorted(kept)]
    assert all(checkpoint.verify() is None for checkpoint in Checkpoint.all(tmp_path))


def test_nothing_is_pruned_while_the_newest_is_broken(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    flip(tmp_path / "checkpoints/step-00000005/optimizer.safetensors", 9)
    prune(tmp_path, 1)
    assert steps(tmp_path) == [5, 4, 3, 2, 1]


def test_there_may_be_nothing_to_prune(tmp_path: Path) -> None:
    prune(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_deletion_cut_short_leaves_nothing_that_looks_like_a_checkpoint(tmp_path: Path) -> None:
    for step in range(1, 4):
        save(tmp_path, step)

    class Killed(BaseException):
        pass

    def cut_short(folder: Path, **_: object) -> None:
        (folder / MANIFEST).unlink()
        raise Killed

    with patch("shutil.rmtree", cut_short), pytest.raises(Killed):
        prune(tmp_path, 1)
    assert steps(tmp_path) == [3]
    prune(tmp_path, 1)
    assert names(tmp_path) == ["step-00000003"]


def test_an_average_is_the_mean_of_the_files(tmp_path: Path) -> None:
    kept = [save(tmp_path, step, value) for step, value in ((1, 1.0), (2, 2.0), (3, 6.0))]
    assert equal(average(kept), {"a": torch.full((2, 3), 3.0)})
    assert equal(average(kept[:1]), kept[0].weights())


def test_the_versions_are_of_what_runs() -> None:
    assert versions().keys() == {"regard", "torch", "python", "numpy"}
    assert versions()["regard"] == regard.__version__
    assert versions()["python"] == ".".join(map(str, sys.version_info[:3]))
    assert json.loads(json.dumps(versions())) == versions()
