"""Muon moves matrices by orthogonal steps, and all else as AdamW does; alone, in parts, saved, clipped and spoilt."""

import json
import math
import os
import runpy
import socket
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.models.build import text_encoder, translator
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Run, Tower, Train
from regard.training.muon import Muon, operations, orthogonal
from regard.training.optimizer import adamw, make_optimizer, muon, muon_matrices, rate
from regard.training.parallel import World, _dealt, _held, join
from regard.training.resume import _restore, tensors_of
from regard.training.update import CapturedUpdate, Update

CPU = torch.device("cpu")
HOW = Train(optimizer="muon", momentum=0.95, learning_rate=0.01, muon_learning_rate=0.05, warmup=0, schedule="constant",
            weight_decay=0.1, precision="float32")
MODERN = Tower(width=16, depth=2, heads=4, kv_heads=2, activation="swiglu", ffn_width=24, norm="rms",
               positions="rotary", bias=False, dropout=0.0, qk_norm=True)
LEARNER: Any = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "muon_in_parts.py")))
Predict, Texts = LEARNER.Predict, LEARNER.Texts


# The orthogonal matrix.


@settings(max_examples=50)
@given(st.integers(1, 20), st.integers(1, 20), st.floats(1e-4, 1e4))
def test_an_update_has_the_directions_of_its_gradient_and_singular_values_near_one(
    rows: int, columns: int, size: float
) -> None:
    torch.manual_seed(rows * 100 + columns)
    gradient = torch.randn(3, rows, columns, dtype=torch.float64)
    u, s, vt = torch.linalg.svd(gradient, full_matrices=False)
    s = s.clamp(min=0.05 * s[:, :1])  # what is far smaller is lifted too, but not all the way
    gradient = u * s[:, None] @ vt
    found = (u.mT @ orthogonal((size * gradient).float()).double() @ vt.mT)
    values = found.diagonal(dim1=1, dim2=2)
    assert (found - torch.diag_embed(values)).abs().max() < 1e-3
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_in_half_precision_it_is_nearly_the_same() -> None:
    gradient = torch.randn(2, 48, 32)
    exact, rough = orthogonal(gradient), orthogonal(gradient.bfloat16())
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).norm() < 0.05 * exact.norm()


def test_a_gradient_of_zeros_stays_one() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


# Which weights it moves.


def test_it_moves_the_products_of_the_blocks_and_nothing_else() -> None:
    model = translator(replace(MODERN, positions="relative", bias=True), sources=40, targets=40)
    names = {name for name, p in model.named_parameters() if p in muon_matrices(model)}
    assert names == {name for name, p in model.named_parameters()
                     if p.ndim == 2 and ".blocks." in name and "positions" not in name}
    assert any("cross.kv" in name for name in names)
    optimizer = muon(model, HOW, device=CPU)
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, everything)) == sorted(map(id, model.parameters()))


def test_queries_keys_values_and_gates_are_matrices_of_their_own() -> None:
    model = text_encoder(replace(MODERN, window=2, global_projections=True), vocabulary=40)
    rows = {name: muon_matrices(model)[p] for name, p in model.named_parameters() if p in muon_matrices(model)}
    assert rows["blocks.0.self.qkv.weight"] == rows["blocks.0.self.global_qkv.weight"] == (16, 8, 8)
    assert rows["blocks.1.feed_forward.up.weight"] == (24, 24)
    assert rows["blocks.1.feed_forward.down.weight"] == (16,)


# The step.


BATCHES = [Texts({"loss": 44, "nll": 44}, torch.randint(40, (4, 12), generator=torch.Generator().manual_seed(seed)))
           for seed in range(6)]


def started(how: Train = HOW) -> tuple[Decoder, Update]:
    model = Decoder(MODERN, vocabulary=40)
    initialize(model, seed=0)
    return model, made(model, how)


def made(model: nn.Module, how: Train = HOW) -> Update:
    optimizer = make_optimizer(model, how, device=CPU)
    return Update(model, Predict(Run()), optimizer, how, precision=torch.float32)


def everything(model: nn.Module, update: Update) -> dict[str, Tensor]:
    tensors = {**dict(model.named_parameters()), **tensors_of(update.optimizer)}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, tensor in found.items() if not torch.equal(tensor, expected[name])] == []


@pytest.mark.parametrize("clip", [0.01, None])
def test_a_step_is_what_a_plain_loop_over_the_matrices_does(clip: float | None) -> None:
    """Jordan et al. 2024, with decay as AdamW's; written out one matrix at a time."""
    how = replace(HOW, grad_clip=clip, epsilon=0.1)  # so that AdamW does not blow up the last bits of a gradient
    model, update = started(how)
    theirs = deepcopy(model)
    parts = muon_matrices(theirs)
    averages = {p: torch.zeros_like(p) for p in parts}
    rest = torch.nn.ParameterList(p for p in theirs.parameters() if p not in parts)
    others = adamw(rest, how, device=CPU)
    for step, batch in enumerate(BATCHES[:3]):
        update(batch, step)
        theirs.zero_grad()
        (Predict(Run()).loss(theirs, batch)[0].total / batch.counts["loss"]).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), math.inf if clip is None else clip)
        others.step()
        for p, rows in parts.items():
            averages[p] += (1 - how.momentum) * (p.grad - averages[p])
            ahead = how.momentum * averages[p] + (1 - how.momentum) * p.grad
            for matrix, piece in zip(p.detach().split(rows), ahead.split(rows), strict=True):
                matrix *= 1 - how.muon_learning_rate * how.weight_decay
                scale = max(1, piece.shape[0] / piece.shape[1]) ** 0.5
                matrix -= how.muon_learning_rate * scale * orthogonal(piece[None])[0]
    for (name, mine), other in zip(model.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=2e-4, msg=name)


def test_the_loss_falls() -> None:
    _, update = started()
    losses = [float(update(BATCHES[0], step).totals["nll"]) for step in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_both_rates_follow_one_schedule() -> None:
    how = replace(HOW, warmup=2, schedule="cosine", steps=10)
    _, update = started(how)
    for step in range(10):
        update(BATCHES[0], step)
        matrices, *others = [float(group["lr"]) for group in update.optimizer.param_groups]
        assert others == [rate(step, how)] * 2
        assert matrices == pytest.approx(rate(step, how) * how.muon_learning_rate / how.learning_rate)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("first", [True, False])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float, first: bool) -> None:
    model, update = started()
    other, reference = started()
    steps = 0 if first else 2
    for step in range(steps):
        update(BATCHES[step], step)
        reference(BATCHES[step], step)
    before = everything(model, update)
    whole = update.step

    def spoilt() -> Tensor:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        gradients[len(gradients) // 2][-1, -1] = bad
        return whole()

    update.step = spoilt  # type: ignore[method-assign]
    assert not update(BATCHES[4], steps).norm.isfinite()
    update.step = whole  # type: ignore[method-assign]
    after = everything(model, update)
    assert_equal({name: after[name] for name in before}, before)
    update(BATCHES[5], steps + 1)
    reference(BATCHES[5], steps + 1)
    assert_equal(everything(model, update), everything(other, reference))


def test_a_run_that_goes_on_from_a_checkpoint_ends_with_the_same_bits() -> None:
    model, update = started()
    for step, batch in enumerate(BATCHES[:3]):
        update(batch, step)
    again = deepcopy(model)
    restored = made(again)
    saved = {name: tensor.clone() for name, tensor in tensors_of(update.optimizer).items()}
    _restore(restored.optimizer, saved, World())
    for step, batch in enumerate(BATCHES[3:], start=3):
        update(batch, step)
        restored(batch, step)
    assert_equal(everything(again, restored), everything(model, update))


def test_a_matrix_has_one_average_and_everything_else_two() -> None:
    model, update = started()
    update(BATCHES[0], 0)
    for p in model.parameters():
        names = set(update.optimizer.state[p])
        assert names == ({"momentum"} if p in muon_matrices(model) else {"step", "exp_avg", "exp_avg_sq"})


def test_a_weight_without_a_gradient_stays_as_it_is() -> None:
    model, update = started()
    optimizer = update.optimizer
    assert isinstance(optimizer, Muon)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.blocks[0].self.out.weight.grad = torch.ones(16, 16)
    optimizer.step()
    assert [name for name, p in model.named_parameters() if not torch.equal(p, before[name])] == [
        "blocks.0.self.out.weight"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_recorded_step_is_the_step() -> None:
    """With a gradient that is not finite among them."""
    ends, how, device = [], replace(HOW, precision="bfloat16", deterministic=True), torch.device("cuda")
    for kind in (Update, CapturedUpdate):
        model = Decoder(MODERN, vocabulary=64)
        initialize(model, seed=0)
        model.to(device)
        update = kind(model, Predict(Run()), make_optimizer(model, how, device=device), how, precision=torch.float32)
        for step, batch in enumerate(BATCHES):
            counts = {name: math.nan if step == 3 else count for name, count in batch.counts.items()}
            update(batch, step, counts)
        ends.append(everything(model, update))
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, rtol=1e-2, atol=1e-3, msg=name)


# Weights in parts.


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What so many processes have learned together."""
    folder = tmp_path_factory.mktemp("parts")
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = server.getsockname()[1]
    world = {"WORLD_SIZE": str(request.param), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
             "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}  # fmt: skip
    started = [subprocess.Popen([sys.executable, LEARNER.__file__, folder], text=True, stderr=subprocess.PIPE,
                                env={**os.environ, **world, "RANK": str(rank)}) for rank in range(request.param)]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * request.param, said
    return folder


@pytest.mark.parametrize("shape", LEARNER.SHAPES)
def test_processes_that_share_the_weights_learn_what_one_learns(parts: Path, shape: str) -> None:
    """With a step that is skipped, and one in which a weight has no gradient."""
    learner = LEARNER.Learner(shape, World())
    for name, steps in (("saved", LEARNER.BEFORE), ("end", LEARNER.AFTER)):
        alone, shared = learner.learn(steps), load_file(parts / f"{shape} {name}.safetensors")
        assert alone.keys() == shared.keys()
        for key, tensor in alone.items():
            torch.testing.assert_close(shared[key], tensor, rtol=0, atol=1e-5, msg=f"{name} {key}")


@pytest.mark.parametrize("shape", LEARNER.SHAPES)
def test_what_they_have_saved_they_and_others_go_on_from(parts: Path, shape: str) -> None:
    saved, end, again = (load_file(parts / f"{shape} {name}.safetensors") for name in ("saved", "end", "again"))
    assert_equal(again, end)
    for key, tensor in LEARNER.Learner(shape, World(), saved).learn(LEARNER.AFTER).items():
        torch.testing.assert_close(tensor, end[key], rtol=0, atol=1e-5, msg=key)


@pytest.mark.parametrize("shape", LEARNER.SHAPES)
def test_they_share_the_work_of_making_matrices_orthogonal(parts: Path, shape: str) -> None:
    alone = LEARNER.Learner(shape, World())
    alone.learn(LEARNER.BEFORE)
    shared = [json.loads(file.read_text())[shape] for file in parts.glob("*.json")]
    assert sum(shared) == alone.operations
    most = max(operations(rows, p.shape[1]) for p, parts in muon_matrices(alone.model).items() for rows in parts)
    assert max(shared) - min(shared) <= most


def test_a_lone_process_with_sharded_weights_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    with join(CPU, timeout=60) as world:
        learner = LEARNER.Learner("uneven", world)
        assert all(hasattr(p, "to_local") for p in learner.model.parameters())
        found = learner.learn(LEARNER.BEFORE)
    for key, tensor in LEARNER.Learner("uneven", World()).learn(LEARNER.BEFORE).items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-5, msg=key)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20), st.integers(1, 8))
def test_matrices_are_dealt_out_evenly(costs: list[int], hands: int) -> None:
    loads = [0] * hands
    for cost, owner in zip(costs, _dealt(costs, hands), strict=True):
        loads[owner] += cost
    assert max(loads) - min(loads) <= max(costs)
    assert sum(load > 0 for load in loads) == min(hands, len(costs))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 8))
def test_every_row_is_with_the_process_that_fsdp_gives_it_to(parts: list[int], size: int) -> None:
    belongs = torch.arange(len(parts)).repeat_interleave(torch.tensor(parts))
    chunks = [chunk.bincount(minlength=len(parts)).tolist() for chunk in belongs.chunk(size)]
    chunks += [[0] * len(parts)] * (size - len(chunks))
    assert _held(parts, size) == list(zip(*chunks, strict=True))
