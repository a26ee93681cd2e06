"""What becomes of checkpoints when disks are full, files are harmed and processes are killed."""

import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn

from regard.checkpoint import PARTS, Checkpoint, Saver, named_tensors, newest, save_checkpoint
from regard.checkpoint.checkpoint import MANIFEST
from regard.settings.errors import Failure

SOURCE = Path(__file__).parents[2] / "src"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Harm to the files.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a small model."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (400, 500):
        model(torch.arange(20)).square().sum().backward()
        optimizer.step()
        moments = {f"{number}.{name}": tensor for number, values in optimizer.state_dict()["state"].items()
                   for name, tensor in values.items()}
        save_checkpoint(folder, step, weights=named_tensors(model), optimizer=moments,
                        state={"step": step, "best": float("inf"), "waited": 0})
    return folder


def harm(folder: Path, older: Path, dice: random.Random) -> tuple[str, set[str]]:
    """Do something to the checkpoint; what, and to which file (or one of which)."""
    name, other = dice.sample([*PARTS, MANIFEST], 2)
    file = folder / name
    content = file.read_bytes()
    place = dice.randrange(len(content))
    match dice.choice(["truncate", "flip", "swap", "delete", "extend", "replace", "add", "overwrite"]):
        case "truncate":
            file.write_bytes(content[:place])
            return f"{name} cut to {place} bytes", {name}
        case "flip":
            bit = dice.randrange(8)
            file.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            return f"bit {bit} of byte {place} of {name} flipped", {name}
        case "swap":
            file.write_bytes((folder / other).read_bytes())
            (folder / other).write_bytes(content)
            return f"{name} and {other} exchanged", {name, other}
        case "delete":
            file.unlink()
            return f"{name} deleted", {name}
        case "extend":
            more = dice.choice([b"\0", b" ", b"\n", b"}", dice.randbytes(9), content])
            file.write_bytes(content + more)
            return f"{more!r} put behind {name}", {name}
        case "replace":
            shutil.copy(older / name, file)
            return f"{name} of the older checkpoint", {name}
        case "add":
            (folder / "model-00002.safetensors").write_bytes(content)
            return "a file added", {"model-00002.safetensors"}
        case _:
            length = dice.randrange(1, 64)
            noise = dice.randbytes(len(content[place : place + length]))
            file.write_bytes(content[:place] + noise + content[place + length :])
            return f"{name} overwritten at {place}", {name}


def test_any_harm_to_a_checkpoint_is_named_and_the_older_one_taken(run: Path) -> None:
    older, newer = (run / "checkpoints" / f"step-{step:08d}" for step in (400, 500))
    before = contents(newer)
    for seed in range(500):
        dice = random.Random(seed)
        what, blamed = harm(newer, older, dice)
        assert contents(newer) != before, what
        said: list[str] = []
        found = newest(run, say=said.append)
        assert found is not None, what
        assert found.step == 400, what
        (line,) = said
        assert line.startswith(str(newer)), (what, line)
        assert any(name in line for name in blamed), (what, line)
        assert line.endswith("; resuming from step 400 instead"), (what, line)
        assert "\n" not in line, (what, line)
        shutil.rmtree(newer)
        newer.mkdir()
        for name, content in before.items():
            (newer / name).write_bytes(content)
    found = newest(run, say=pytest.fail)
    assert found is not None
    assert found.step == 500


# Disks that are full, or may not be written to.

SAVED = 8_000_000  # bytes


def save(run: Path, step: int) -> None:
    """In the background, as a run does it."""
    with Saver(run, keep=9) as saver:
        saver.save(step, weights={"a": torch.ones(9)}, optimizer={"0.exp_avg": torch.ones(SAVED // 4)}, state={})


def assert_refused(run: Path, says: str) -> None:
    """Step 2 cannot be saved; step 1 is as it was, and nothing else is there."""
    before = contents(run)
    with pytest.raises(Failure) as caught:
        save(run, 2)
    line = str(caught.value)
    assert line.startswith(str(run / "checkpoints" / "step-00000002"))
    assert says in line
    assert "\n" not in line
    assert caught.value.exit_code == 1
    assert contents(run) == before
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000001"]
    found = newest(run, say=pytest.fail)
    assert found is not None
    assert found.step == 1


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing beyond it fails in the middle, for anyone and on any file system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("percent", [10, 50, 99])
def test_a_file_that_may_not_grow_leaves_the_last_checkpoint(tmp_path: Path, percent: int) -> None:
    save(tmp_path, 1)
    with files_of_at_most(SAVED * percent // 100):
        assert_refused(tmp_path, "could not be saved: File too large")
    save(tmp_path, 2)
    assert [checkpoint.verify() for checkpoint in Checkpoint.all(tmp_path)] == [None, None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with 64 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64000000", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(disk: Path, *, leaving: int) -> Path:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - leaving))
    return ballast


def test_a_full_disk_is_noticed_before_anything_is_written(disk: Path) -> None:
    run = disk / "run"
    save(run, 1)
    ballast = fill(disk, leaving=SAVED // 2)
    assert_refused(run, "needs 24.8 MB, the disk has 4.0 MB free; free some space or lower train.keep_checkpoints")
    ballast.unlink()
    save(run, 2)
    assert Checkpoint.all(run)[0].verify() is None


@pytest.mark.parametrize("percent", [0, 10, 50, 99])
def test_a_disk_that_becomes_full_during_a_save_leaves_the_last_checkpoint(disk: Path, percent: int) -> None:
    run = disk / "run"
    save(run, 1)
    usage = shutil.disk_usage(disk)
    ballast = fill(disk, leaving=SAVED * percent // 100)
    with patch("shutil.disk_usage", lambda _: usage):  # as it was before another process filled the disk
        assert_refused(run, "could not be saved: No space left on device; free some space or lower "
                            "train.keep_checkpoints")
    ballast.unlink()
    save(run, 2)
    assert Checkpoint.all(run)[0].verify() is None


def test_a_disk_that_may_only_be_read_is_named(disk: Path) -> None:
    run = disk / "run"
    save(run, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert_refused(run, "could not be saved: Read-only file system")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_only_be_read_is_named(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "checkpoints").chmod(0o555)
    try:
        assert_refused(tmp_path, "could not be saved: Permission denied")
    finally:
        (tmp_path / "checkpoints").chmod(0o755)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("mine")
    with pytest.raises(Failure, match="step-00000002: could not be saved: File exists") as caught:
        save(tmp_path, 2)
    assert str(tmp_path / "checkpoints") in str(caught.value)
    assert contents(tmp_path) == {"checkpoints": b"mine"}


@pytest.mark.slow
def test_a_run_on_a_small_disk_ends_with_one_line_and_goes_on_on_a_larger_one(disk: Path) -> None:
    command = [sys.executable, "-m", "regard", "train", "--out", str(disk / "run"), "--set", "train.steps=12",
               "--set", "train.save_every=1", "--set", "train.evaluate_every=6", "--set", "train.keep_checkpoints=99",
               "--set", "model.width=128", "--set", "model.depth=2", "--set", "data.built_in_size=200",
               "--set", "tokens.vocabulary=400", "--set", "search.max_tokens=8", "--set", "device=cpu"]  # fmt: skip

    def train() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True,
                              capture_output=True, check=False)

    small = train()
    assert small.returncode == 1
    assert "Traceback" not in small.stderr
    last = small.stderr.splitlines()[-1]
    assert last.endswith("free some space or lower train.keep_checkpoints")
    assert [checkpoint.verify() for checkpoint in Checkpoint.all(disk / "run")]
    assert {checkpoint.verify() for checkpoint in Checkpoint.all(disk / "run")} == {None}
    subprocess.run(["mount", "-o", "remount,size=1000000000", str(disk)], check=True)
    large = train()
    assert large.returncode == 0, large.stderr
    assert (disk / "run" / "model.safetensors").exists()


# Processes that are killed.

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from regard.checkpoint import Checkpoint, Saver, newest

torch.set_num_threads(1)
run, times, dice = Path(sys.argv[1]), int(sys.argv[2]), random.Random()

def save_without_end(step, promise):
    with Saver(run, keep=2) as saver:
        tensors = [torch.zeros(200_000) for _ in range(3)]
        while True:
            step += 1
            for tensor in tensors:
                tensor.fill_(step)
            weights, *moments = tensors
            saver.save(step, weights={"a": weights}, optimizer=dict(zip("bc", moments)), state={"step": step}, also=[3])
            if step % 2:
                saver.wait()
                os.pwrite(promise, step.to_bytes(8, "little"), 0)

def promised():
    return int.from_bytes(os.pread(promise, 8, 0), "little")

inside, last = 0, 0
promise = os.open(run / "promise", os.O_RDWR | os.O_CREAT)
for kill in range(times):
    child = os.fork()
    if child == 0:
        save_without_end(last, promise)
    while kill % 2 and promised() <= last:
        time.sleep(0.01)
    time.sleep(dice.uniform(0, 0.3))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    inside += bool(list((run / "checkpoints").glob(".step-*")))
    for checkpoint in Checkpoint.all(run):
        assert checkpoint.verify() is None, checkpoint.verify()
        values = {float(v) for t in (checkpoint.weights() | checkpoint.optimizer()).values() for v in t.unique()}
        assert values == {checkpoint.step}, (checkpoint.step, values)
        assert checkpoint.state() == {"step": checkpoint.step}
    found = newest(run, say=sys.exit)
    last = found.step if found else 0
    assert last >= promised(), "what wait() had returned for is gone"
    assert last < 3 or 3 in {checkpoint.step for checkpoint in Checkpoint.all(run)}
with Saver(run, keep=2) as saver:
    saver.save(last + 1, weights={}, optimizer={}, state={}, also=[3])
assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
    f"step-{step:08d}" for step in sorted({min(3, last + 1), last, last + 1})], "the killed have left something"
print(inside, last)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_process_killed_while_it_saves_leaves_whole_checkpoints_only(tmp_path: Path, times: int) -> None:
    result = subprocess.run([sys.executable, "-c", KILLS, str(tmp_path), str(times)],
                            env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    inside, last = map(int, result.stdout.split())
    assert last > 0
    assert inside > 0 or times < 20, "no kill fell into a save"
