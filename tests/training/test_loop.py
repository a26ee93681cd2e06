"""A run does what its settings say, can stop anywhere and go on as if it had not, and keeps what it has written."""

import ast
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import regard
from killing import killed_at
from regard.checkpoint import PARTS, Checkpoint, average
from regard.data.batch import BatchSampler
from regard.data.text.parallel_corpus import ParallelBatch
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Data, Masking, Run, Search, Tokens, Tower, Train
from regard.tasks.base import Term
from regard.tasks.translate import Translate
from regard.training import loop
from regard.training.loop import train
from regard.training.optimizer import adamw, rate
from regard.training.update import Update

PACKAGE = Path(regard.__file__).parent
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, numbers in (("train", range(40)), ("val", range(40, 44))):
        lines = (f"le chat {'noir ' * (n % 5)}{n}\tthe {'black ' * (n % 5)}cat {n}\n" for n in numbers)
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def tiny(data: Path, *overrides: str) -> Run:
    return load(None, ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=4",
                       "train.batch_tokens=64", "train.save_every=1", "train.evaluate_every=1", "train.warmup=2",
                       "search.max_tokens=8", "search.beam=1", "device=cpu", f"data.paths={data}",
                       *overrides])  # fmt: skip


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums on a CPU depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The rate.

HOW = st.builds(Train, learning_rate=st.floats(1e-6, 10), warmup=st.integers(0, 50), steps=st.integers(1, 200),
                decay=st.floats(0, 1), schedule=st.sampled_from(["inverse-sqrt", "cosine", "stable-decay", "constant"]))


@given(HOW)
def test_the_rate_is_positive_and_never_above_its_peak(how: Train) -> None:
    assert all(0 < rate(step, how) <= how.learning_rate * (1 + 1e-12) for step in range(how.steps))


@given(HOW)
def test_the_rate_rises_in_equal_steps_up_to_its_peak(how: Train) -> None:
    rates = [rate(step, how) for step in range(how.warmup)]
    assert rates == pytest.approx([how.learning_rate * (step + 1) / how.warmup for step in range(how.warmup)])


@given(HOW)
def test_the_rate_never_rises_after_the_warm_up(how: Train) -> None:
    rates = [rate(step, how) for step in range(how.warmup, how.steps)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(("schedule", "after", "last"), [
    ("inverse-sqrt", math.sqrt(10 / 11), math.sqrt(10 / 100)),
    ("cosine", 1.0, (1 + math.cos(math.pi * 89 / 90)) / 2),
    ("stable-decay", 1.0, 1 / 20),
    ("constant", 1.0, 1.0),
])  # fmt: skip
def test_each_schedule_ends_where_it_should(schedule: str, after: float, last: float) -> None:
    how = Train(learning_rate=3.0, warmup=10, steps=100, decay=0.2, schedule=schedule)
    assert [rate(step, how) / 3.0 for step in (9, 10, 99)] == pytest.approx([1.0, after, last])


def test_stable_decay_is_stable_until_it_decays() -> None:
    how = Train(learning_rate=1.0, warmup=10, steps=100, decay=0.2, schedule="stable-decay")
    assert {rate(step, how) for step in range(10, 81)} == {1.0}
    assert rate(90, how) == pytest.approx(0.5)


# The update.


@dataclass
class Trainer:
    """A small model with all that an update needs."""

    task: Translate
    model: EncoderDecoder
    batches: list[ParallelBatch]

    def update(self, how: Train) -> tuple[nn.Module, Update]:
        model = deepcopy(self.model)
        return model, Update(model, self.task, adamw(model, how, device=CPU), how, precision=torch.float32)


@pytest.fixture(scope="module")
def trainer(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    run = tiny(data, "model.dropout=0", "train.batch_tokens=128")
    task = Translate(run)
    model = task.build(task.data.prepare(tmp_path_factory.mktemp("run")))
    initialize(model, seed=0)
    plan = BatchSampler(task.data.lengths("train"), tokens=128, seed=0)
    return Trainer(task, model, [task.data.collate("train", plan[step]) for step in range(3)])


# A large epsilon, so that AdamW shows how long a gradient is and not only where it points.
VISIBLE = Train(learning_rate=0.01, warmup=1, epsilon=0.1, schedule="constant")


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in model.parameters()])


def gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("pieces", [2, 4])
def test_a_batch_in_pieces_makes_the_same_step(trainer: Trainer, pieces: int) -> None:
    whole, update_whole = trainer.update(VISIBLE)
    parts, update_parts = trainer.update(replace(VISIBLE, accumulate=pieces))
    one, other = update_whole(trainer.batches[0], 0), update_parts(trainer.batches[0], 0)
    assert (gradient(parts) - gradient(whole)).norm() <= 1e-6 * gradient(whole).norm()
    assert (weights(parts) - weights(whole)).norm() <= 1e-6 * weights(whole).norm()
    assert float(other.norm) == pytest.approx(float(one.norm), rel=1e-6)
    assert float(other.totals["nll"]) == pytest.approx(float(one.totals["nll"]), rel=1e-6)


@pytest.mark.parametrize("clip", [0.01, 1.0, 1e6, None])
def test_an_update_is_clipping_and_then_a_step(trainer: Trainer, clip: float | None) -> None:
    how = replace(VISIBLE, grad_clip=clip)
    ours, update = trainer.update(how)
    theirs = deepcopy(trainer.model)
    decayed = [p for p in theirs.parameters() if p.ndim > 1]
    rest = [p for p in theirs.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": how.weight_decay}, {"params": rest, "weight_decay": 0.0}],
        lr=how.learning_rate, betas=(how.beta1, how.beta2), eps=how.epsilon)
    for step, batch in enumerate(trainer.batches):
        report = update(batch, step)
        optimizer.zero_grad()
        loss, _ = trainer.task.loss(theirs, batch)
        (loss.total / batch.counts["loss"]).backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), math.inf if clip is None else clip)
        optimizer.step()
        assert float(report.norm) == pytest.approx(float(norm), rel=1e-5)
    moved = weights(theirs) - weights(trainer.model)
    assert (weights(ours) - weights(theirs)).norm() <= 1e-4 * moved.norm()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(trainer: Trainer, bad: float) -> None:
    """Neither the weights nor what AdamW remembers: the next step is what it would have been."""
    spared, update = trainer.update(VISIBLE)
    unharmed, reference = trainer.update(VISIBLE)
    for model_update in (update, reference):
        model_update(trainer.batches[0], 0)
    before = weights(spared)

    def broken(model: nn.Module, batch: ParallelBatch) -> tuple[Term, ...]:
        return tuple(replace(term, total=term.total * bad) for term in trainer.task.loss(model, batch))

    with patch.object(update, "loss", broken):
        report = update(trainer.batches[1], 1)
    assert not report.norm.isfinite()
    assert torch.equal(weights(spared), before)
    update(trainer.batches[2], 2)
    reference(trainer.batches[2], 2)
    assert torch.equal(weights(spared), weights(unharmed))
    assert not torch.equal(weights(spared), before)


def test_only_matrices_are_decayed(trainer: Trainer) -> None:
    optimizer = adamw(trainer.model, Train(weight_decay=0.5), device=CPU)
    for group in optimizer.param_groups:
        assert {p.ndim >= 2 for p in group["params"]} == {group["weight_decay"] == 0.5}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(trainer.model.parameters()))


# The run.


@contextmanager
def losses(*values: float) -> Iterator[None]:
    """The validation losses, one after the other; the last one stays."""
    left = iter(values)
    with patch.object(loop, "validation_loss", lambda *_, **__: next(left, values[-1])):
        yield


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_model_is_the_best_checkpoint(data: Path, tmp_path: Path) -> None:
    with losses(3.0, 1.0, 2.0, 1.5):
        train(tiny(data, "train.keep_checkpoints=9"), tmp_path, quiet=True)
    model = load_file(tmp_path / "model.safetensors")
    kept = {checkpoint.step: checkpoint.weights() for checkpoint in Checkpoint.all(tmp_path)}
    assert [step for step, tensors in kept.items() if equal(tensors, model)] == [2]


def test_the_model_is_the_mean_of_the_newest_checkpoints_if_asked(data: Path, tmp_path: Path) -> None:
    with losses(1.0, 2.0):
        train(tiny(data, "train.average_checkpoints=3"), tmp_path, quiet=True)
    *newest, best = Checkpoint.all(tmp_path)
    assert [checkpoint.step for checkpoint in newest] == [4, 3, 2]
    assert best.step == 1
    model = load_file(tmp_path / "model.safetensors")
    for name, tensor in model.items():
        mean = torch.stack([checkpoint.weights()[name] for checkpoint in newest]).double().mean(0)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-6, atol=1e-8)
    assert equal(model, average(newest))


def test_a_run_stops_when_the_loss_has_not_fallen_for_long(data: Path, tmp_path: Path) -> None:
    with losses(3.0, 1.0, 2.0, 1.5):
        train(tiny(data, "train.steps=50", "train.patience=2", "train.keep_checkpoints=9"), tmp_path, quiet=True)
    assert [checkpoint.step for checkpoint in Checkpoint.all(tmp_path)] == [4, 3, 2, 1]
    progress = Checkpoint.all(tmp_path)[0].state()["progress"]
    assert (progress["step"], progress["best"], progress["best_step"], progress["waited"]) == (4, 1.0, 2, 2)
    assert equal(load_file(tmp_path / "model.safetensors"), Checkpoint.all(tmp_path)[2].weights())


def test_so_many_checkpoints_are_kept(data: Path, tmp_path: Path) -> None:
    train(tiny(data, "train.keep_checkpoints=2"), tmp_path, quiet=True)
    assert [checkpoint.step for checkpoint in Checkpoint.all(tmp_path)] == [4, 3]
    assert all(checkpoint.verify() is None for checkpoint in Checkpoint.all(tmp_path))


def test_the_loss_falls(data: Path, tmp_path: Path) -> None:
    train(tiny(data, "train.steps=5", "train.learning_rate=0.02"), tmp_path, quiet=True)
    falling = [line["loss"] for line in lines(tmp_path) if line["kind"] == "evaluation"]
    assert falling == sorted(falling, reverse=True)  # type: ignore[type-var]
    assert len(set(falling)) == 5


def test_every_line_of_the_metrics_says_what_it_is(data: Path, tmp_path: Path) -> None:
    train(tiny(data), tmp_path, quiet=True)
    written = {"step": {"step", "loss", "norm", "tokens_per_second"}, "evaluation": {"step", "loss"},
               "trained": {"seconds"}, "saved": {"step", "stalled"},
               "score": {"split", "bleu", "chrf", "exact", "sentences", "bleu_signature"}}
    found = lines(tmp_path)
    assert {line["kind"] for line in found} == set(written)
    for line in found:
        assert {"kind", "time"} | written[str(line["kind"])] <= set(line)
        assert all(math.isfinite(value) for value in line.values() if isinstance(value, float))
    assert [line["step"] for line in found if line["kind"] == "evaluation"] == [1, 2, 3, 4]
    assert [line["time"] for line in found] == sorted(line["time"] for line in found)  # type: ignore[type-var]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)


RESUMED = ("model.dropout=0.3", "train.steps=5", "train.save_every=2", "train.evaluate_every=2")


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train(tiny(data, *RESUMED), folder, quiet=True)
    torch.set_num_threads(threads)
    return folder


def assert_same_run(folder: Path, whole: Path) -> None:
    for name in ("model.safetensors", "checkpoints/step-00000005/model.safetensors", "config.json", "scores.json",
                 "checkpoints/step-00000005/optimizer.safetensors", "checkpoints/step-00000005/state.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("steps", [[0], [1], [2], [3], [4], [1, 3, 4]], ids=str)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    data: Path, tmp_path: Path, uninterrupted: Path, steps: list[int]
) -> None:
    run = tiny(data, *RESUMED)
    for step in steps:
        with killed_at(step):
            train(run, tmp_path, quiet=True)
        assert not (tmp_path / "model.safetensors").exists()
    train(run, tmp_path, quiet=True)
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("part", [*PARTS, "MANIFEST.json"])
def test_a_broken_checkpoint_is_passed_over_for_an_older_one(
    data: Path, tmp_path: Path, uninterrupted: Path, part: str
) -> None:
    run = tiny(data, *RESUMED)
    with killed_at(4):
        train(run, tmp_path, quiet=True)
    flip(tmp_path / "checkpoints" / "step-00000004" / part, 20)
    train(run, tmp_path, quiet=True)
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.usefixtures("one_thread")
def test_two_runs_of_one_seed_are_one_and_of_two_seeds_two(data: Path, tmp_path: Path, uninterrupted: Path) -> None:
    train(tiny(data, *RESUMED), tmp_path / "same", quiet=True)
    assert_same_run(tmp_path / "same", uninterrupted)
    train(tiny(data, *RESUMED, "seed=1"), tmp_path / "other", quiet=True)
    assert not equal(load_file(tmp_path / "other/model.safetensors"), load_file(uninterrupted / "model.safetensors"))


# The settings.


def read_outside_settings() -> set[str]:
    files = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] != "settings"]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("section", [Data, Tokens, Tower, Train, Masking, Search, Run])
def test_every_setting_is_read_by_some_code(section: type) -> None:
    unread = {field.name for field in fields(section)} - read_outside_settings()
    assert not unread


# Runs beside each other, and folders that hold one already.


def test_a_seed_changes_what_is_dropped_and_may_be_large(data: Path) -> None:
    dropped = []
    for seed in (1, 2, 2**40):
        run = tiny(data, f"seed={seed}", "train.steps=1", "model.dropout=0.5")
        with patch.object(torch, "manual_seed", wraps=torch.manual_seed) as seeded, killed_at(0):
            train(run, data.parent / f"seed-{seed}", quiet=True)
        dropped.append(torch.rand(4, generator=torch.Generator().manual_seed(seeded.call_args.args[0])).tolist())
    assert len(set(map(tuple, dropped))) == 3


def test_a_folder_that_holds_another_run_is_left_alone(data: Path, tmp_path: Path) -> None:
    run = tiny(data)
    train(run, tmp_path, quiet=True)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UserError, match=r"train\.learning_rate"):
        train(replace(run, train=replace(run.train, learning_rate=0.5)), tmp_path, quiet=True)
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_damaged_checkpoint_is_not_averaged(data: Path, tmp_path: Path) -> None:
    run = tiny(data, "train.average_checkpoints=3")
    train(run, tmp_path, quiet=True)
    flip(Checkpoint.all(tmp_path)[1].folder / "model.safetensors", -1)
    train(run, tmp_path, quiet=True)
    good = [checkpoint for checkpoint in Checkpoint.all(tmp_path) if checkpoint.verify() is None]
    assert len(good) == 2
    expected, found = average(good), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
