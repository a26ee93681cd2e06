"""Which checkpoints a run goes on from, and which it refuses."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from killing import killed_at
from regard.checkpoint import Checkpoint, save_checkpoint
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run
from regard.training.loop import train
from regard.training.resume import layout, refuse_unusable, tensors_of


def run_of(folder: Path) -> Run:
    (folder / "a.txt").write_text("".join(f"the {word} thing number {i}\n" for i in range(30) for word in ("a", "b")))
    return load(None, [
        "task=mask", f"data.paths={folder / 'a.txt'}", "device=cpu", "model.width=16", "model.depth=1", "model.heads=2",
        "tokens.vocabulary=300", "model.global_projections=true", "train.steps=4", "train.save_every=2",
        "train.evaluate_every=2", "train.batch_tokens=64", "train.warmup=2"])


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run killed after its checkpoint of step 2, some of whose weights never have a gradient."""
    with killed_at(3):
        train(run_of(tmp_path), tmp_path / "run", quiet=True)
    return tmp_path / "run"


def with_state(folder: Path, change: dict[str, object], averages: dict[str, Tensor] | None = None) -> None:
    """Save the newest checkpoint again, whole, with other contents."""
    checkpoint = Checkpoint.all(folder)[0]
    state = checkpoint.state()
    state["progress"] |= change
    save_checkpoint(folder, checkpoint.step, weights=checkpoint.weights(), state=state,
                    optimizer=checkpoint.optimizer() if averages is None else averages)


def test_a_run_goes_on_though_some_of_its_weights_never_had_a_gradient(begun: Path, tmp_path: Path) -> None:
    numbers = {name.split(".")[0] for name in Checkpoint.all(begun)[0].optimizer()}
    assert str(len(numbers) - 1) != max(numbers, key=int)  # a number is left out: this is such a run
    train(run_of(tmp_path), begun, quiet=True)
    assert Checkpoint.all(begun)[0].step == 4


def test_a_weight_with_a_part_of_its_averages_is_refused(begun: Path, tmp_path: Path) -> None:
    averages = Checkpoint.all(begun)[0].optimizer()
    del averages["0.exp_avg_sq"]
    with_state(begun, {}, averages)
    with pytest.raises(UserError, match=r"0\.exp_avg_sq: missing"):
        train(run_of(tmp_path), begun, quiet=True)


def test_averages_of_no_weight_are_refused(begun: Path, tmp_path: Path) -> None:
    averages = Checkpoint.all(begun)[0].optimizer()
    with_state(begun, {}, averages | {"999.exp_avg": torch.zeros(2)})
    with pytest.raises(UserError, match=r"999\.exp_avg: unknown"):
        train(run_of(tmp_path), begun, quiet=True)


@pytest.mark.parametrize(("name", "value"), [("step", 10**400), ("skipped", 2**53), ("best", 10**400), ("best", 1),
                                             ("best", float("inf")), ("step", True), ("step", -1)],
                         ids=lambda value: str(value)[:16])
def test_progress_that_is_no_usable_number_is_refused_by_name(begun: Path, tmp_path: Path, name: str,
                                                              value: float) -> None:
    with_state(begun, {name: value})
    with pytest.raises(UserError, match=f"progress.{name}=.*must be a"):
        train(run_of(tmp_path), begun, quiet=True)


def test_an_optimizer_whose_every_update_was_skipped_can_be_restored(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.found_inf, optimizer.grad_scale = torch.ones(()), torch.ones(())  # type: ignore[attr-defined]
    weight.grad = torch.full((3,), float("inf"))
    optimizer.step()
    kept = tensors_of(optimizer)
    assert float(kept["0.step"]) == 0
    refuse_unusable(layout(optimizer), kept, origin=tmp_path / "optimizer.safetensors", most=1)
    with pytest.raises(UserError, match=r"0\.step: -1\.0 of 1 steps"):
        refuse_unusable(layout(optimizer), kept | {"0.step": torch.tensor(-1.0)}, most=1,
                        origin=tmp_path / "optimizer.safetensors")
