"""How processes find each other, and which of them speaks. What they do together is in tests/reliability."""

import signal
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist  # noqa: TID251 (the store of torchrun, played by the test)

from heeding import signals_heeded
from regard.nn.init import initialize
from regard.settings.errors import Failure, Stopped, UserError
from regard.settings.schema import Run, Tokens, Tower, Train
from regard.training.dry_run import make_dry_run
from regard.training.optimizer import adamw
from regard.training.parallel import World, join, speaks
from regard.training.resume import resume
from regard.training.signals import HANG_UP, Stop

CPU = torch.device("cpu")


@pytest.fixture
def started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> Any:
    """This process, as if torchrun had started it; and torchrun's store."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    for name, value in {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "test",
                        "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "localhost",
                        "MASTER_PORT": str(store.port)}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return store


def test_a_lone_process_has_the_world_to_itself() -> None:
    with join(CPU, timeout=60) as world:
        assert (world.rank, world.size) == (0, 1)
        assert world.sum([1.5, 2]) == [1.5, 2]


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_a_world_that_is_half_described_is_refused(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    says = f"WORLD_SIZE is set in the environment, but {missing} is not"
    with pytest.raises(UserError, match=says), join(CPU, timeout=60):
        pass


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "100", "RANK": "99", "LOCAL_RANK": "99", "MASTER_ADDR": "localhost",
                        "MASTER_PORT": "1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    says = "LOCAL_RANK=99: each process needs its own GPU"
    with pytest.raises(UserError, match=says), join(torch.device("cuda"), timeout=60):
        pass


@pytest.mark.parametrize(("task", "how"), [
    ("translate", {}), ("language", {}), ("classify", {"init_from": "there", "trainable": "lora", "freeze_layers": 1})])
def test_a_model_in_pieces_has_the_loss_and_the_gradients_of_the_whole(
        task: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By one process, which holds all the pieces; what several do is in tests/reliability."""
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    run = Run(task=task, model=Tower(width=18, depth=2, heads=2, dropout=0.0), tokens=Tokens(vocabulary=300),
              train=Train(batch_tokens=64, **how))
    dry_run = make_dry_run(run, length=8)
    model, batch = dry_run.model("cpu"), dry_run.batch()
    initialize(model, seed=0)
    pieces = deepcopy(model)
    with join(CPU, timeout=60) as world:
        world.parallelize(pieces, replace(run.train, fsdp=True), precision=torch.float32)
        found = []
        for each in (model, pieces):
            for _ in range(2):  # the second pass meets what the first has left gathered
                each.zero_grad()
                loss = next(term.total for term in dry_run.task.loss(each, batch) if term.name == "loss")
                loss.backward()
            found.append(world.collect({"loss": loss.detach()} | {
                name: p.grad for name, p in each.named_parameters() if p.grad is not None}))
    assert list(found[0]) == list(found[1])
    for name, whole in found[0].items():
        torch.testing.assert_close(found[1][name], whole, msg=name)


class Elsewhere(World):
    """The second process, on a machine that does not see the folder from which the first goes on at step 5."""

    rank, size = 1, 2

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return [5.0]


def test_a_process_that_does_not_see_the_checkpoint_says_so(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = adamw(model, Train(), device=CPU)
    with pytest.raises(Failure, match="process 1 does not see the checkpoint of step 5"):
        resume(tmp_path, Run(), model, optimizer, Elsewhere(), say=print)


def test_a_lone_process_always_speaks() -> None:
    assert speaks()
    assert speaks()


@pytest.mark.usefixtures("started_by_torchrun")
def test_of_the_processes_that_fail_the_first_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [speaks() for _ in range(3)] == [True, False, False]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert [speaks() for _ in range(3)] == [True, False, False]


@pytest.mark.usefixtures("started_by_torchrun")
def test_a_signal_that_torchrun_passes_on_counts_once() -> None:
    with Stop() as stop:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)  # without torchrun, this ends the process
        assert stop.signal == signal.SIGUSR1


@pytest.mark.skipif(HANG_UP is None, reason="Windows has no such signals")
@pytest.mark.parametrize("second", ["SIGHUP", "SIGTERM"])
def test_a_closed_terminal_that_signals_twice_does_not_interrupt_the_cleanup(second: str) -> None:
    cleaned = []

    def hang_up() -> None:
        with signals_heeded(), Stop() as stop, stop.at_once("left"):
            try:
                signal.raise_signal(signal.SIGHUP)
            finally:
                signal.raise_signal(getattr(signal, second))
                cleaned.append(True)

    with pytest.raises(Stopped, match="left"):
        hang_up()
    assert cleaned


def test_a_handler_that_was_installed_from_c_gives_way_to_the_default() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with Stop() as stop:
            stop.before[signal.SIGTERM] = None  # what signal.signal returns for such a handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
