"""What a step needs, foretold: against what real steps hold and do, on a machine without a GPU."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.data.batch import BatchSampler
from regard.models.build import text_encoder
from regard.models.classifier import Tagger
from regard.nn.init import initialize
from regard.settings.schema import Recurrence, Run, Tokens, Tower, Train
from regard.tasks.translate import Translate
from regard.training.dry_run import DryRun, make_dry_run
from regard.training.estimate import (
    MACHINES,
    MUON_HELD,
    PRODUCTS_REACH,
    Estimate,
    Parameters,
    bytes_sent,
    estimate,
    memory,
    outlook,
    seconds,
)
from regard.training.meta_trace import Ledger, Trace, trace
from regard.training.muon import operations, orthogonal
from regard.training.optimizer import muon_matrices

ROOT = Path(__file__).parents[2]
SMALL = Tower(width=32, depth=1, heads=2)
HALF, WHOLE = torch.bfloat16, torch.float32
CASES = {
    "pre-norm": (SMALL, WHOLE),
    "post-norm": (replace(SMALL, norm_place="post"), HALF),
    "gated": (replace(SMALL, activation="swiglu", norm="rms", positions="rotary", bias=False, tied="none"), HALF),
    "shared keys": (replace(SMALL, ffn_dropout=0.1, activation="gelu", kv_heads=1, dropout=0.0), WHOLE),
}


@pytest.fixture(scope="module")
def prepared_run() -> DryRun:
    """A translator of 6 × 160 tokens: long enough for the fused attention of a CPU."""
    return make_dry_run(Run(model=SMALL, tokens=Tokens(vocabulary=640), train=Train(batch_tokens=960)), length=160)


@dataclass(frozen=True)
class Case:
    dry_run: DryRun
    precision: torch.dtype

    def traced(self, device: str = "cpu") -> Trace:
        return estimated(self.dry_run, Train(), self.precision, device).traced

    def real(self) -> tuple[torch.nn.Module, Any]:
        """A model, and its loss as training takes it."""
        model, batch = self.dry_run.model("cpu").train(), self.dry_run.batch()
        initialize(model, seed=0)

        def loss() -> Tensor:
            with torch.autocast("cpu", self.precision, enabled=self.precision != WHOLE):
                return self.dry_run.task.loss(model, batch)[0].total  # type: ignore[no-any-return]

        return model, loss


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, prepared_run: DryRun) -> Iterator[Case]:
    tower, precision = CASES[request.param]
    run = prepared_run.task.run
    prepared_run.task.run = replace(run, model=tower)
    yield Case(prepared_run, precision)
    prepared_run.task.run = run


def estimated(dry_run: DryRun, how: Train, precision: torch.dtype = HALF, device: str = "cuda",
              gpus: int = 1) -> Estimate:
    return estimate(dry_run.task, dry_run.sizes, dry_run.outline(gpus), how, device=device, precision=precision,
                    gpus=gpus)


def saved(model: torch.nn.Module, loss: Any) -> int:
    """Bytes that autograd keeps of a forward pass, each storage once, weights left out."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = loss()
    assert value.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_a_trace_keeps_what_autograd_keeps(case: Case) -> None:
    found = case.traced()
    assert found.kept + found.copies == pytest.approx(saved(*case.real()), rel=0.02)
    assert (found.copies > 0) == (case.precision == HALF)


def test_a_trace_holds_at_its_fullest_what_a_real_step_holds(case: Case) -> None:
    _, loss = case.real()
    with Ledger() as ledger:
        value = loss()
        forward, ledger.most = ledger.most, ledger.held
        value.backward()
    found = case.traced()
    assert found.forward == pytest.approx(forward, rel=0.02)
    assert found.backward == pytest.approx(ledger.most, rel=0.02)


def test_a_trace_counts_the_operations_of_a_real_step(case: Case) -> None:
    _, loss = case.real()
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    assert case.traced().operations == pytest.approx(counter.get_total_flops(), rel=1e-6)


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_a_recurrent_layer_does_six_operations_for_each_of_its_weights_and_each_token(cell: Any) -> None:
    recurrent = Recurrence(cell=cell, direction="bidirectional")
    tower = replace(SMALL, recurrent=recurrent, positions="none", depth=2, dropout=0.0)
    with torch.device("meta"):
        model = Tagger(text_encoder(tower, vocabulary=64), tower, labels=5)
    tokens = torch.empty(4, 10, dtype=torch.long, device="meta")
    found = trace(model, lambda: model(tokens).sum(), device="cuda", precision=HALF)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "table" not in name]
    assert found.operations == 6 * 4 * 10 * sum(p.numel() for p in matrices)
    assert found.copies > 0
    assert len(found.blocks) == 2


@pytest.mark.slow
def test_a_compiled_step_keeps_what_a_trace_says() -> None:
    # In a process of its own: the compiler cannot look through the checks of shapes that tests have.
    command = [sys.executable, str(ROOT / "benchmarks" / "plan.py"), "--kept"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    rows = subprocess.run(command, env=environment, text=True, capture_output=True, check=True).stdout.splitlines()
    ratios = [float(row.split()[-1]) for row in rows[1:]]
    assert len(ratios) > 5
    assert all(0.95 < ratio < 1.05 for ratio in ratios), rows


def test_a_trace_leaves_nothing_behind(prepared_run: DryRun) -> None:
    state = torch.get_rng_state()
    model = prepared_run.model()
    tokens = torch.empty(2, 8, dtype=torch.long, device="meta")
    trace(model, lambda: model(tokens, tokens).sum(), device="cuda", precision=HALF)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.is_autocast_enabled("cuda")
    assert tokens.device.type == "meta"
    assert all(p.grad is None for p in model.parameters())


def test_a_shared_matrix_counts_once(prepared_run: DryRun) -> None:
    vocabulary, width = prepared_run.sizes["targets"], SMALL.width
    tied = Parameters.of(prepared_run.model())
    with torch.device("meta"):
        model = Translate(Run(model=replace(SMALL, tied="none"))).build(prepared_run.sizes)
    untied = Parameters.of(model)
    assert tied.parts["embeddings"] == vocabulary * width
    assert untied.total - tied.total == 2 * vocabulary * width
    assert untied.parts["output"] == vocabulary * width
    assert untied.total == sum(p.numel() for p in model.parameters())
    assert set(untied.parts) == {"embeddings", "encoder", "decoder", "output"}


def test_a_parameter_costs_sixteen_bytes(prepared_run: DryRun) -> None:
    found = estimated(prepared_run, Train())
    needed = found.memory
    assert needed.weights + needed.gradients + needed.optimizer == 16 * found.parameters.total
    assert needed.total >= 16 * found.parameters.total


def test_muon_keeps_one_number_for_each_of_its_own_and_takes_longer(prepared_run: DryRun) -> None:
    adamw, muon = (estimated(prepared_run, Train(optimizer=name)) for name in ("adamw", "muon"))
    matrices = sum(p.numel() for p in muon_matrices(prepared_run.model()))
    assert 0 < matrices < adamw.parameters.total
    assert adamw.memory.optimizer - muon.memory.optimizer == 4 * matrices
    times = [seconds(found.parameters, found.traced, Train(optimizer=name), MACHINES["h200"], precision=HALF)
             for name, found in (("adamw", adamw), ("muon", muon))]
    assert times[0] < times[1]


def test_sharded_muon_takes_its_share_of_the_time_but_no_less_than_one_matrix_takes(prepared_run: DryRun) -> None:
    found = estimated(prepared_run, Train())

    def more(gpus: int) -> float:
        adamw, muon = (seconds(found.parameters, found.traced, Train(optimizer=name, fsdp=True), MACHINES["h200"],
                               precision=HALF, gpus=gpus) for name in ("adamw", "muon"))
        return muon - adamw

    largest = max(operations(*shape) for shape in found.parameters.matrices)
    assert more(1) > 1.5 * more(2) > 2 * more(4)
    assert more(10**9) == pytest.approx(largest / (PRODUCTS_REACH * MACHINES["h200"].half), rel=1e-3)


def test_sharded_muon_holds_its_share_of_the_matrices_but_no_less_than_one(prepared_run: DryRun) -> None:
    found, size = estimated(prepared_run, Train()), 512**2
    nothing = replace(found.traced, kept=0, copies=0, forward=0, backward=0, product=0, compiled=0, blocks=())
    three = replace(found.parameters, block=0, parts={"encoder": 3 * size}, matrices={torch.Size((512, 512)): 3})

    def held(gpus: int) -> int:
        """When the optimizer steps, for which the little else that is there leaves all room."""
        needed = memory(three, nothing, Train(optimizer="muon", fsdp=True), device="cpu", gpus=gpus)
        return needed.total - needed.weights - needed.gradients - needed.optimizer

    assert [held(gpus) / (4 * MUON_HELD * size) for gpus in (1, 2, 3, 64)] == [3, 1.5, 1, 1]


def test_muons_operations_are_those_that_it_does() -> None:
    for rows, columns in ((6, 10), (10, 6)):
        with FlopCounterMode(display=False) as counter:
            orthogonal(torch.randn(3, rows, columns))
        assert 3 * operations(rows, columns) == counter.get_total_flops()


def test_smaller_pieces_and_recomputation_need_less(prepared_run: DryRun) -> None:
    whole = estimated(prepared_run, Train())
    pieces = estimated(prepared_run, Train(accumulate=3))
    again = estimated(prepared_run, Train(activation_checkpointing=True))
    assert pieces.memory.activations == pytest.approx(whole.memory.activations / 3, rel=0.1)
    assert again.memory.activations < 0.8 * whole.memory.activations
    assert max(pieces.memory.total, again.memory.total) < whole.memory.total


def test_the_gradients_of_earlier_pieces_stay(prepared_run: DryRun) -> None:
    piece = estimated(prepared_run, Train(accumulate=3))
    assert piece.traced.forward > 4 * piece.parameters.total


def test_gradient_descent_keeps_nothing_and_with_momentum_one_number_for_each_weight(prepared_run: DryRun) -> None:
    adamw, plain, heavy = (estimated(prepared_run, how) for how in (
        Train(), Train(optimizer="sgd"), Train(optimizer="sgd", momentum=0.9)))
    assert plain.memory.optimizer == 0
    assert heavy.memory.optimizer == 4 * heavy.parameters.learning == adamw.memory.optimizer // 2


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
def test_shards_share_out_weights_gradients_and_optimizer(prepared_run: DryRun, optimizer: Any) -> None:
    alone, shared = (estimated(prepared_run, Train(optimizer=optimizer, fsdp=gpus > 1), gpus=gpus) for gpus in (1, 3))
    for kind in ("weights", "gradients", "optimizer"):
        assert getattr(shared.memory, kind) == getattr(alone.memory, kind) // 3
    assert shared.memory.activations == pytest.approx(alone.memory.activations / 3, rel=0.1)


def test_graphs_of_other_shapes_reserve_their_own(prepared_run: DryRun) -> None:
    found = estimated(prepared_run, Train())
    one = memory(found.parameters, found.traced, Train(), device="cuda", shapes=1)
    assert one.reserved == one.total == found.memory.total < found.memory.reserved
    here = memory(found.parameters, found.traced, Train(), device="cpu")
    assert here.reserved == here.total


def test_more_work_takes_longer(prepared_run: DryRun) -> None:
    found = estimated(prepared_run, Train())

    def of(how: Train, machine: str = "h200", gpus: int = 1) -> float:
        return seconds(found.parameters, found.traced, how, MACHINES[machine], precision=HALF, gpus=gpus)

    assert of(Train(compile="on")) < of(Train(compile="off")) < of(Train(compile="off"), "a100")
    assert of(Train()) < of(Train(activation_checkpointing=True)) < 1.34 * of(Train())
    assert of(Train(fsdp=True), gpus=8) < of(Train())


def test_both_ways_of_sharing_send_eight_bytes_a_parameter() -> None:
    for how in (Train(), Train(fsdp=True)):
        assert bytes_sent(1000, how, 1) == 0
        assert bytes_sent(1000, how, 8) == 7 / 8 * 8 * 1000


def test_the_outlook_of_a_run_is_one_line(prepared_run: DryRun, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = BatchSampler(np.asarray(prepared_run.task.data.lengths("train")), tokens=256, seed=0)
    options: Any = {"device": torch.device("cpu"), "precision": WHOLE}
    line = outlook(prepared_run.task, prepared_run.sizes, plan, Train(), **options)
    assert "parameters; about " in line
    assert "\n" not in line
    assert "fit" not in line
    monkeypatch.setattr("regard.training.estimate.available", lambda device: 1)
    assert "may not fit" in outlook(prepared_run.task, prepared_run.sizes, plan, Train(), **options)


def table(*sizes: int) -> str:
    """Rows of the table that docs/scale.md should have."""
    code = runpy.run_path(str(ROOT / "benchmarks" / "scale.py"))
    return "\n".join(code["rows"]([code["SIZES"][i] for i in sizes] or code["SIZES"]))


def test_the_table_of_larger_runs_begins_as_the_code_says() -> None:
    assert table(0) in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), BEHIND


@pytest.mark.slow
def test_the_table_of_larger_runs_is_what_the_code_says() -> None:
    assert table() in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), BEHIND


BEHIND = "docs/scale.md is behind: put in what `python benchmarks/scale.py` prints"
