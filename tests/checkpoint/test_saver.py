"""A checkpoint written in the background is the one that was asked for, and no error of it is lost."""

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from regard.checkpoint import Checkpoint, Saver, save_checkpoint
from regard.settings.errors import Failure, NotFinite

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def save(saver: Saver, step: int, value: float, *, also: tuple[int, ...] = ()) -> None:
    saver.save(step, weights={"a": torch.full((3,), value)}, optimizer={"0.step": torch.tensor(value)},
               state={"step": step}, also=also)


def value(checkpoint: Checkpoint) -> float:
    assert checkpoint.verify() is None
    return float(checkpoint.weights()["a"][0])


def steps(run: Path) -> list[int]:
    return [checkpoint.step for checkpoint in Checkpoint.all(run)]


@contextmanager
def held() -> Iterator[threading.Event]:
    """The thread does not begin to write until the event is set."""
    go = threading.Event()

    def write(*arguments: Any, **options: Any) -> Checkpoint:
        assert go.wait(timeout=60)
        return save_checkpoint(*arguments, **options)

    with patch("regard.checkpoint.saver.save_checkpoint", write):
        try:
            yield go
        finally:
            go.set()


def in_the_way(run: Path) -> Path:
    """A file where the checkpoints should go, so that no save succeeds."""
    (run / "checkpoints").write_text("a file")
    return run / "checkpoints"


@pytest.mark.parametrize("device", DEVICES)
def test_a_checkpoint_holds_what_the_tensors_were_when_it_was_asked_for(tmp_path: Path, device: str) -> None:
    weights = {"matrix": torch.randn(64, 64, device=device), "one": torch.tensor(1.5, device=device),
               "none": torch.empty(0, 3, device=device), "half": torch.randn(7, device=device).bfloat16(),
               "turned": torch.randn(4, 6, device=device).T}
    optimizer = {"0.exp_avg": torch.randn(64, 64, device=device), "0.step": torch.tensor(3.0)}
    state = {"step": 1, "order": [1, 2]}
    before = {name: tensor.cpu().clone() for name, tensor in (weights | optimizer).items()}
    with held() as go, Saver(tmp_path, keep=1) as saver:
        saver.save(1, weights=weights, optimizer=optimizer, state=state)
        for tensor in (weights | optimizer).values():
            tensor.zero_()
        weights.clear()
        state["step"] = 7
        go.set()
    (checkpoint,) = Checkpoint.all(tmp_path)
    assert checkpoint.verify() is None
    found = checkpoint.weights() | checkpoint.optimizer()
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], before[name]) for name in before)
    assert checkpoint.state() == {"step": 1, "order": [1, 2]}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_copy_from_the_gpu_comes_between_two_steps(tmp_path: Path) -> None:
    """The GPU is far behind: at `save` it has not yet run the step before, and the steps after it wait already."""
    weights = torch.zeros(1 << 24, device="cuda")
    busy = torch.randn(4096, 4096, device="cuda")
    with Saver(tmp_path, keep=99) as saver:
        for step in range(1, 6):
            saver.wait()
            for _ in range(20):
                busy = (busy @ busy).tanh()
            before = torch.cuda.current_stream().record_event()
            weights += 1
            saver.save(step, weights={"a": weights}, optimizer={}, state={})
            assert step == 1 or not before.query()  # pinning, the first time, waits for the GPU
            weights += 100
            torch.cuda.synchronize()
            weights -= 100
    assert [sorted(set(c.weights()["a"].tolist())) for c in Checkpoint.all(tmp_path)] == [[5], [4], [3], [2], [1]]


def test_a_checkpoint_from_the_background_is_bit_for_bit_that_of_the_foreground(tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {"a": torch.randn(5), "b": torch.randn(2, 2).half()}
    with Saver(tmp_path / "back", keep=1) as saver:
        saver.save(3, weights=tensors, optimizer=tensors, state={"x": 0.1})
    save_checkpoint(tmp_path / "fore", 3, weights=tensors, optimizer=tensors, state={"x": 0.1})
    for file in Checkpoint.all(tmp_path / "back")[0].folder.iterdir():
        assert file.read_bytes() == (tmp_path / "fore/checkpoints/step-00000003" / file.name).read_bytes()


def test_many_saves_leave_the_newest_and_the_best(tmp_path: Path) -> None:
    with Saver(tmp_path, keep=2) as saver:
        for step in range(1, 9):
            save(saver, step, float(step), also=(3,))
    assert {checkpoint.step: value(checkpoint) for checkpoint in Checkpoint.all(tmp_path)} == {8: 8, 7: 7, 3: 3}
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


def test_the_best_of_before_goes_when_there_is_a_better_one(tmp_path: Path) -> None:
    with Saver(tmp_path, keep=1) as saver:
        for step, best in ((1, 1), (2, 1), (3, 3), (4, 3)):
            save(saver, step, 0.0, also=(best,))
    assert steps(tmp_path) == [4, 3]


def test_a_broken_checkpoint_of_a_later_step_does_not_keep_the_old_ones(tmp_path: Path) -> None:
    """A run that fell back to an older checkpoint has one before it that it will replace."""
    with Saver(tmp_path, keep=1) as saver:
        save(saver, 9, 0.0)
        saver.wait()
        (tmp_path / "checkpoints/step-00000009/MANIFEST.json").unlink()
        for step in (1, 2, 3):
            save(saver, step, 0.0)
    assert steps(tmp_path) == [9, 3]


def test_save_returns_before_the_writing_begins_and_the_next_one_waits(tmp_path: Path) -> None:
    with held() as go, Saver(tmp_path, keep=9) as saver:
        save(saver, 1, 1.0)
        assert steps(tmp_path) == []
        threading.Timer(0.3, go.set).start()
        save(saver, 2, 2.0)
        assert steps(tmp_path)[-1] == 1
        assert saver.stalled >= 0.2
        assert saver.seconds > 0
    assert steps(tmp_path) == [2, 1]


def test_wait_returns_when_all_is_on_the_disk(tmp_path: Path) -> None:
    with Saver(tmp_path, keep=9) as saver:
        saver.wait()
        for step in (1, 2):
            began = time.monotonic()
            save(saver, step, 1.0)
            saver.wait()
            assert 0 < max(saver.stalled, saver.seconds) <= time.monotonic() - began
            assert steps(tmp_path)[0] == step
            saver.wait()


def test_buffers_are_kept_while_the_tensors_stay_alike(tmp_path: Path) -> None:
    def places() -> dict[str, int]:
        return {name: buffer.data_ptr() for kind in saver.buffers.values() for name, buffer in kind.items()}

    with Saver(tmp_path, keep=1) as saver:
        save(saver, 1, 1.0)
        first = places()
        save(saver, 2, 2.0)
        assert places() == first
        saver.save(3, weights={"a": torch.ones(2, 2), "b": torch.ones(3, dtype=torch.int32)}, optimizer={}, state={})
        assert places().keys() == {"a", "b"}
    (checkpoint,) = Checkpoint.all(tmp_path)
    assert {name: (t.shape, t.dtype) for name, t in checkpoint.weights().items()} == {
        "a": ((2, 2), torch.float32), "b": ((3,), torch.int32)}
    assert checkpoint.optimizer() == {}


# Errors.


def test_an_error_is_raised_by_the_next_save_and_only_there(tmp_path: Path) -> None:
    with Saver(tmp_path, keep=1) as saver:
        place = in_the_way(tmp_path)
        save(saver, 1, 1.0)
        with pytest.raises(Failure, match="step-00000001: could not be saved: File exists"):
            save(saver, 2, 2.0)
        place.unlink()
        save(saver, 3, 3.0)
        saver.wait()
    assert steps(tmp_path) == [3]


def test_an_error_is_raised_by_wait(tmp_path: Path) -> None:
    in_the_way(tmp_path)
    with Saver(tmp_path, keep=1) as saver:
        save(saver, 1, 1.0)
        with pytest.raises(Failure, match="step-00000001"):
            saver.wait()
        saver.wait()


def test_an_error_is_raised_at_the_end(tmp_path: Path) -> None:
    in_the_way(tmp_path)
    with pytest.raises(Failure, match="step-00000001"), Saver(tmp_path, keep=1) as saver:
        save(saver, 1, 1.0)


def end(run: Path, error: BaseException) -> None:
    """A run that ends so while a checkpoint is being written."""
    with Saver(run, keep=1) as saver:
        save(saver, 1, 1.0)
        raise error


def test_another_error_stays_the_one_that_ends_the_run_and_carries_this_one_along(tmp_path: Path) -> None:
    in_the_way(tmp_path)
    with pytest.raises(NotFinite) as caught:
        end(tmp_path, NotFinite("the loss is not a number"))
    assert str(caught.value) == "the loss is not a number"
    (note,) = caught.value.__notes__
    assert "step-00000001: could not be saved" in note


def test_what_ends_a_run_does_not_end_the_writing(tmp_path: Path) -> None:
    with held() as go:
        threading.Timer(0.1, go.set).start()
        with pytest.raises(KeyboardInterrupt):
            end(tmp_path, KeyboardInterrupt())
    assert value(Checkpoint.all(tmp_path)[0]) == 1.0


def test_an_error_outlives_a_wait_that_was_interrupted(tmp_path: Path) -> None:
    in_the_way(tmp_path)
    saver = Saver(tmp_path, keep=1)
    save(saver, 1, 1.0)
    with patch.object(futures, "wait", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        saver.wait()
    with pytest.raises(Failure, match="step-00000001"), saver:
        pass


def test_a_disk_that_gives_back_something_else_is_noticed_at_once(tmp_path: Path) -> None:
    def spoiled(run: Path, step: int, **content: Any) -> Checkpoint:
        checkpoint = save_checkpoint(run, step, **content)
        if step == 2:
            with open(checkpoint.folder / "model.safetensors", "r+b") as file:
                file.seek(-1, 2)
                file.write(b"\x01")
        return checkpoint

    with patch("regard.checkpoint.saver.save_checkpoint", spoiled), Saver(tmp_path, keep=1) as saver:
        save(saver, 1, 1.0)
        save(saver, 2, 2.0)
        with pytest.raises(Failure, match=r"model.safetensors: its SHA-256 is not .*; no older checkpoint was removed"):
            saver.wait()
    assert value(Checkpoint.all(tmp_path)[1]) == 1.0


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with Saver(tmp_path, keep=1) as saver:
        save(saver, 1, 1.0)
    assert threading.active_count() == before
