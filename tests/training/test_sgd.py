"""Gradient descent: the formula, with and without momentum; clipped, spoilt, saved."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from killing import killed_at
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Run, Train
from regard.tasks import make
from regard.training.loop import train
from regard.training.optimizer import make_optimizer, sgd
from regard.training.resume import layout, tensors_of
from regard.training.sgd import SGD
from regard.training.update import Update

CPU = torch.device("cpu")
HOW = Train(optimizer="sgd", learning_rate=0.1, warmup=0, schedule="constant", grad_clip=None, precision="float32")


def started(how: Train) -> tuple[nn.Module, Update]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    optimizer = make_optimizer(model, how, device=CPU)
    return model, Update(model, make(Run()), optimizer, how, precision=torch.float32)


def gradients(model: nn.Module, step: int, spoilt: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    found = [torch.randn(p.shape, generator=generator) for p in model.parameters()]
    if spoilt:
        found[1][0] = torch.inf
    return found


def stepped(model: nn.Module, update: Update, step: int, *, spoilt: bool = False) -> None:
    for p, gradient in zip(model.parameters(), gradients(model, step, spoilt), strict=True):
        p.grad = gradient
    update.step()


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("momentum", [None, 0.0, 0.9])
def test_gradient_descent_is_its_formula_and_a_spoilt_gradient_changes_nothing(
    momentum: float | None, clip: float | None
) -> None:
    """u ← u - η ∂L/∂u; with momentum b ← μ b + ∂L/∂u, u ← u - η b. The very first gradient is spoilt, and the third."""
    model, update = started(replace(HOW, momentum=momentum, grad_clip=clip))
    wanted = [p.detach().clone() for p in model.parameters()]
    averages = [torch.zeros_like(p) for p in wanted]
    for step in range(5):
        stepped(model, update, step, spoilt=step in (0, 2))
        if step in (0, 2):
            continue
        found = gradients(model, step)
        length = torch.cat([g.flatten() for g in found]).norm()
        for u, b, g in zip(wanted, averages, found, strict=True):
            scaled = g if clip is None else g * min(1.0, clip / float(length))
            b.mul_(momentum or 0.0).add_(scaled)
            u -= 0.1 * b
        for p, u in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(p.detach(), u)


def test_without_momentum_nothing_is_kept_and_with_it_one_number_for_each_weight() -> None:
    for momentum, names in ((None, set[str]()), (0.9, {"momentum"})):
        model, update = started(replace(HOW, momentum=momentum))
        stepped(model, update, 0)
        kept = tensors_of(update.optimizer)
        assert kept.keys() == layout(update.optimizer).keys()
        assert {name.split(".")[1] for name in kept} == names
        assert len(kept) == 4 * len(names)


def test_a_copy_that_takes_the_state_over_goes_on_with_the_same_bits() -> None:
    model, update = started(replace(HOW, momentum=0.9))
    stepped(model, update, 0)
    other, again = started(replace(HOW, momentum=0.9))
    other.load_state_dict(deepcopy(model.state_dict()))
    again.optimizer.load_state_dict(deepcopy(update.optimizer.state_dict()))
    stepped(model, update, 1)
    stepped(other, again, 1)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))


def test_lower_blocks_have_lower_rates_where_that_is_asked_for() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), "head": nn.Linear(2, 2)})
    optimizer = sgd(model, replace(HOW, layer_decay=0.5), device=CPU)
    groups = {group["lr"] / HOW.learning_rate: len(group["params"]) for group in optimizer.param_groups}
    assert groups == {0.25: 2, 0.5: 2, 1: 2}
    model["blocks"][0].requires_grad_(False)
    assert sum(len(group["params"]) for group in sgd(model, HOW, device=CPU).param_groups) == 4


@pytest.mark.parametrize(("settings", "says"), [
    (["train.momentum=0.9"], r"train\.momentum=0\.9: has no effect on train\.optimizer=adamw; .* take muon or sgd"),
    (["train.optimizer=sgd", "train.weight_decay=0.1"],
     r"train\.weight_decay=0\.1: has no effect on train\.optimizer=sgd; .* take adamw or muon"),
    (["train.optimizer=sgd", "train.beta1=0.8"], r"train\.beta1=0\.8: has no effect on train\.optimizer=sgd"),
    (["train.optimizer=sgd", "train.muon_learning_rate=0.1"], r"train\.muon_learning_rate=0\.1: has no effect"),
])
def test_a_setting_of_another_optimizer_is_refused(settings: list[str], says: str) -> None:
    with pytest.raises(UserError, match=f"^{says}"):
        load(None, settings)


def test_settings_that_do_nothing_are_no_settings_of_another_optimizer() -> None:
    assert load(None, ["train.optimizer=sgd", "train.weight_decay=0"]).train.momentum is None
    assert load(None, ["train.optimizer=muon", "train.momentum=0.9"]).train.momentum == 0.9


def run_of(folder: Path, *settings: str) -> Run:
    folder.mkdir(exist_ok=True)
    (folder / "train.tsv").write_text("".join(f"le chat {n % 9}\tthe cat {n % 9}\n" for n in range(30)))
    return load(None, [f"data.paths={folder}", "model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0.1",
                       "tokens.vocabulary=300", "train.optimizer=sgd", "train.learning_rate=0.3", "train.steps=6",
                       "train.batch_tokens=64", "train.warmup=2", "train.save_every=2", "search.max_tokens=4",
                       "search.beam=1", "device=cpu", "train.precision=float32", *settings])


@pytest.mark.parametrize("momentum", [(), ("train.momentum=0.9",)])
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path, momentum: tuple[str, ...]) -> None:
    run, before = run_of(tmp_path / "data", *momentum), torch.get_num_threads()
    torch.set_num_threads(1)  # sums on a CPU depend on the number of threads
    try:
        train(run, tmp_path / "whole", quiet=True)
        with killed_at(5):
            train(run, tmp_path / "killed", quiet=True)
        train(run, tmp_path / "killed", quiet=True)
    finally:
        torch.set_num_threads(before)
    for name in ("model.safetensors", "checkpoints/step-00000006/optimizer.safetensors", "scores.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_what_it_is_given_to_divide_by_is_what_gradients_are_divided_by() -> None:
    p: Any = nn.Parameter(torch.tensor([1.0]))
    optimizer = SGD([{"params": [p]}], rate=0.5)
    p.grad, optimizer.grad_scale = torch.tensor([4.0]), torch.tensor(2.0)
    optimizer.step()
    assert p.item() == 0.0
