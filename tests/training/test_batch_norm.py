"""The running statistics of a batch norm are weights that no gradient changes: kept, resumed, averaged and shared."""

import os
import socket
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.checkpoint import Checkpoint, average, load_weights, named_tensors, save_checkpoint
from regard.models.build import captioner, image_encoder
from regard.models.classifier import Classifier
from regard.nn.init import initialize
from regard.settings.schema import Head, Image, Recurrence, Tower, Train
from regard.training.optimizer import adamw
from regard.training.parallel import Processes, World, join

CPU = torch.device("cpu")
TOWER = Tower(width=8, dropout=0.0, head=Head(pool="mean"), image=Image(size=6, stem="resnet", patch=1, stages=(1, 1)))


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("localhost", 0))
        return int(door.getsockname()[1])


def made() -> Classifier:
    model = Classifier(image_encoder(TOWER), TOWER, labels=3)
    initialize(model, seed=0)
    return model


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(1)
    return [(torch.randn(6, 3, 6, 6, generator=random), torch.randint(3, (6,), generator=random))
            for _ in range(count)]


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, some: list[tuple[Tensor, Tensor]]) -> None:
    for pixels, labels in some:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()


def test_a_checkpoint_has_the_running_statistics_and_a_run_goes_on_with_them(tmp_path: Path) -> None:
    """Bit for bit as if it had not stopped."""
    model, first, second = made(), batches(4)[:2], batches(4)[2:]
    optimizer = adamw(model, Train(), device=CPU)
    learn(model, optimizer, first)
    weights, state = deepcopy(named_tensors(model)), deepcopy(optimizer.state_dict())
    assert "encoder.inputs.first.norm.running" in weights
    save_checkpoint(tmp_path, 2, weights=weights, optimizer={}, state={})
    learn(model, optimizer, second)

    other = made()
    load_weights(other, Checkpoint.all(tmp_path)[0].weights(), origin="there")
    again = adamw(other, Train(), device=CPU)
    again.load_state_dict(state)
    learn(other, again, second)
    for name, tensor in named_tensors(model).items():
        assert torch.equal(named_tensors(other)[name], tensor), name
    assert not torch.equal(weights["encoder.inputs.first.norm.running"], model.encoder.inputs.first.norm.running)


def test_the_mean_of_checkpoints_has_the_mean_of_their_statistics(tmp_path: Path) -> None:
    model = made()
    for step in (1, 2):
        learn(model, adamw(model, Train(), device=CPU), batches(step))
        save_checkpoint(tmp_path, step, weights=named_tensors(model), optimizer={}, state={})
    name = "encoder.inputs.first.norm.running"
    both = Checkpoint.all(tmp_path)
    torch.testing.assert_close(average(both)[name], sum(each.weights()[name] for each in both) / 2)


def results(model: nn.Module, pixels: Tensor, labels: Tensor, world: World) -> dict[str, Tensor]:
    """The gradients, and the statistics after the step."""
    nn.functional.cross_entropy(model(pixels), labels, reduction="sum").backward()
    world.finish()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()
                 if parameter.grad is not None}
    return gradients | dict(model.named_buffers())


def work(rank: int, port: int, folder: Path) -> None:
    """One of two processes: its share of a batch, its gradients and statistics."""
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    (pixels, labels), model = batches(1)[0], made()
    mine = slice(4) if rank == 0 else slice(4, 6)  # shares of unequal size
    with join(CPU, timeout=60) as world:
        world.parallelize(model, Train(), precision=torch.float32)
        world.expect(last=True)
        save_file(results(model, pixels[mine], labels[mine], world), folder / f"{rank}.safetensors")
        world.wait()


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path) -> None:
    """The statistics are those of the whole batch, and so are the gradients through them."""
    port = str(free_port())
    both = [subprocess.Popen([sys.executable, __file__, str(rank), port, str(tmp_path)]) for rank in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    expected = results(made(), *batches(1)[0], World())
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_what_is_kept_of_a_batch_is_summed_over_all_processes() -> None:
    """Batch norms, and the baseline of hard attention: else each process would go on with its own."""
    tower = replace(TOWER, score="additive", positions="none", tied="none",
                    recurrent=Recurrence(cell="lstm", attention="hard"))
    model, world = captioner(tower, targets=8), object.__new__(Processes)
    world.size, world.sums, world.sharded = 2, None, None
    world.parallelize(model, Train(), precision=torch.float32)
    found = {type(part).__name__: part.total for part in model.modules() if hasattr(part, "total")}
    assert found.keys() == {"BatchNorm", "MovingBaseline"}
    assert None not in found.values()


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
