"""Numbers that go wrong in the middle of a run: a step that has them changes nothing, and the run goes on."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoint import Checkpoint, named_tensors
from regard.data.batch import Batch
from regard.tasks import make
from regard.tasks.base import Loss
from regard.training import loop
from regard.training.optimizer import MUON_MOMENTUM
from regard.training.resume import tensors_of
from regard.training.update import Report, Update

from .jobs import FEW, Job, assert_same, copy_data, lines

CLOSE = 0.05  # how far, of itself, the validation loss may end from that of a run that lost no updates


@pytest.fixture(scope="module", params=FEW)
def job(request: pytest.FixtureRequest) -> Job:
    return Job(request.param, ("train.steps=64", "train.evaluate_every=32", "train.save_every=8"))


@pytest.fixture(scope="module")
def clean(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run whose numbers are all right."""
    folder = tmp_path_factory.mktemp("clean") / "run"
    assert job.here(folder).code == 0
    return folder


@pytest.fixture
def fresh(clean: Path, tmp_path: Path) -> Path:
    """Before its first step."""
    return copy_data(clean, tmp_path / "run")


# What can go wrong in a step.

Fault = Callable[[Update], AbstractContextManager[object]]
State = dict[str, Tensor]


def in_loss(change: Callable[[Tensor], Tensor], *, pieces: Sequence[int] = (0, 1)) -> Fault:
    """In the loss of one piece of the batch, or of both."""

    def fault(update: Update) -> AbstractContextManager[object]:
        whole, numbers = update.loss, iter(range(update.how.accumulate))

        def changed(model: nn.Module, batch: Batch) -> Loss:
            terms = whole(model, batch)
            here = next(numbers) in pieces
            return tuple(replace(term, total=change(term.total)) for term in terms) if here else terms

        return patch.object(update, "loss", changed)

    return fault


def in_gradients(change: Callable[[list[Tensor]], object]) -> Fault:
    def fault(update: Update) -> AbstractContextManager[object]:
        whole = update.step

        def step() -> Tensor:
            change([p.grad for p in update.parameters if p.grad is not None])
            return whole()

        return patch.object(update, "step", step)

    return fault


def one_number(value: float) -> Callable[[list[Tensor]], object]:
    """Of all that a gradient consists of."""
    return lambda gradients: gradients[len(gradients) // 2].flatten()[-1:].fill_(value)


@contextmanager
def faulty(faults: Mapping[int, Fault]) -> Iterator[dict[int, tuple[State, State]]]:
    """Faults by the number of steps before them. Gives the weights and moments around each."""
    whole, around = Update.__call__, {}

    def call(self: Update, batch: Batch, step: int, counts: Mapping[str, float]) -> Report:
        if step not in faults:
            return whole(self, batch, step, counts)
        before = state(self)
        with faults[step](self):
            report = whole(self, batch, step, counts)
        around[step] = before, state(self)
        return report

    with patch.object(Update, "__call__", call):
        yield around


def state(update: Update) -> State:
    tensors = {**named_tensors(update.model), **tensors_of(update.optimizer)}
    return {name: tensor.clone() for name, tensor in tensors.items()}


def steps(folder: Path, kind: str) -> list[int]:
    return [line["step"] for line in lines(folder) if line["kind"] == kind]


def final_loss(folder: Path) -> float:
    return [float(line["loss"]) for line in lines(folder) if line["kind"] == "evaluation"][-1]


# Numbers that are none.

NAN, INF = math.nan, math.inf
KINDS = [
    in_loss(lambda x: x * NAN), in_loss(lambda x: x * INF, pieces=[0]), in_loss(lambda x: x * -INF, pieces=[1]),
    in_loss(lambda x: x + NAN), in_loss(lambda x: x + INF, pieces=[1]),  # with gradients that are finite
    in_gradients(one_number(NAN)), in_gradients(one_number(INF)), in_gradients(one_number(-INF)),
]
# The first and the last step, some alone and some in a row, some right before a checkpoint.
SIXTEEN = dict(zip([0, 1, 5, 6, 7, 8, 15, 16, 20, 23, 30, 31, 32, 40, 50, 63], KINDS * 2, strict=True))


def test_updates_that_are_not_finite_are_not_applied_and_the_loss_recovers(job: Job, clean: Path, fresh: Path) -> None:
    with faulty(SIXTEEN) as around:
        outcome = job.here(fresh)
    assert outcome.code == 0, outcome.said
    for step, (before, after) in around.items():
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items()), step
    expected = [step + 1 for step in SIXTEEN]
    assert list(around) == list(SIXTEEN)
    assert steps(fresh, "skipped") == expected
    assert outcome.said.count("the gradient is not finite; the update was skipped") == 16
    newest = Checkpoint.all(fresh)[0]
    assert newest.state()["progress"]["skipped"] == 16
    assert all(tensor.isfinite().all() for tensor in (newest.weights() | newest.optimizer()).values())
    assert final_loss(fresh) == pytest.approx(final_loss(clean), rel=CLOSE)


def test_a_gradient_that_stands_out_is_clipped_and_spoken_of(job: Job, clean: Path, fresh: Path) -> None:
    with faulty({40: in_gradients(lambda gradients: [g.mul_(1e4) for g in gradients])}) as around:
        outcome = job.here(fresh)
    how, (before, after) = job.run.train, around[40]
    kept = {"exp_avg": how.beta1, "momentum": MUON_MOMENTUM}  # of AdamW and of Muon
    shares = {name: kept[kind] for name in before if (kind := name.split(".")[-1]) in kept}
    gradients = [(after[name] - share * before[name]) / (1 - share) for name, share in shares.items()]
    assert float(torch.nn.utils.get_total_norm(gradients)) == pytest.approx(how.grad_clip, rel=1e-3)
    (spike,) = [line for line in lines(fresh) if line["kind"] == "spike"]
    assert spike["step"] == 41
    assert spike["norm"] > 1e3 * spike["usual"]
    assert re.search(r"step +41: a gradient of .*, [\d,]+ times the median, was clipped\n", outcome.said)
    assert steps(fresh, "skipped") == []
    assert final_loss(fresh) == pytest.approx(final_loss(clean), rel=CLOSE)


def test_too_many_in_a_row_end_the_run_and_the_last_good_checkpoint_goes_on(
    job: Job, clean: Path, fresh: Path
) -> None:
    job = job.but("train.max_skipped_updates=4")
    with faulty(dict(zip(range(8, 64), KINDS * 7, strict=True))):
        outcome = job.here(fresh)
    assert outcome.code == 3
    assert outcome.said.count("regard: ") == 1
    assert "regard: 4 updates in a row had a gradient that is not finite, the last at step 12;" in outcome.said
    assert [checkpoint.verify() for checkpoint in Checkpoint.all(fresh)] == [None]
    assert "resuming from step 8 of 64\n" in job.here(fresh).said
    assert_same(fresh, clean)


def test_those_before_a_restart_count(job: Job, fresh: Path) -> None:
    """Or a run that is stopped and started again and again would never notice that it learns nothing."""
    job = job.but("train.max_skipped_updates=4", "train.steps=20")
    for _ in range(2):  # the second time from step 8, after two of them
        with faulty(dict.fromkeys(range(6, 20), KINDS[0])):
            outcome = job.here(fresh)
        assert outcome.code == 3
        assert "4 updates in a row had a gradient that is not finite, the last at step 10;" in outcome.said
        assert [checkpoint.step for checkpoint in Checkpoint.all(fresh)] == [8]


def test_a_rate_far_too_high_ends_with_code_3_and_a_way_out(job: Job, fresh: Path) -> None:
    """Nothing is injected here."""
    outcome = job.but("train.learning_rate=1e30").here(fresh)
    assert outcome.code == 3
    last = outcome.said.splitlines()[-1]
    assert last.startswith("regard: 10 updates in a row had a gradient that is not finite")
    assert "earlier checkpoints are intact. A lower train.learning_rate" in last
    assert [checkpoint.verify() for checkpoint in Checkpoint.all(fresh)] == [None]


# Too little memory.


def without_room() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def without_end() -> None:
    torch.empty(2**60)


@pytest.mark.parametrize("allocate", [without_room, without_end])
def test_a_batch_that_does_not_fit_into_memory_is_named_with_what_to_lower(
    job: Job, fresh: Path, allocate: Callable[[], None]
) -> None:
    job = job.but("train.steps=10")

    def full(update: Update) -> AbstractContextManager[object]:
        return patch.object(update, "loss", lambda *_: allocate())

    with faulty({9: full}):
        outcome = job.here(fresh)
    assert outcome.code == 1
    shapes = r"\w+ \d+(×\d+)*(, \w+ \d+(×\d+)*)*"
    assert re.search(rf"\nregard: a batch \({shapes}\) does not fit into memory; lower train\.batch_tokens=256, "
                     r"raise train\.accumulate=2, or set train\.activation_checkpointing=true\n$", outcome.said)
    assert "resuming from step 8 of 10\n" in job.here(fresh).said


def test_too_little_memory_for_a_validation_or_a_score_is_named_with_what_to_lower(job: Job, fresh: Path) -> None:
    job = job.but("train.steps=2")
    with patch.object(loop, "validation_loss", lambda *_, **__: without_room()):
        outcome = job.here(fresh)
    assert outcome.code == 1
    assert outcome.said.endswith("\nregard: a batch of the validation data does not fit into memory; lower "
                                 "train.batch_tokens=256\n")
    with patch.object(type(make(job.run)), "score", lambda *_, **__: without_end()):
        outcome = job.here(fresh)
    assert outcome.code == 1
    assert re.search(r"\nregard: answering the examples does not fit into memory; lower search\.batch=\d+ or "
                     r"search\.beam=\d+\n$", outcome.said)
    assert job.here(fresh).code == 0
