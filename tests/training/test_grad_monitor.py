"""Which gradients are spoken of: those that stand out, and not those that only come now and then."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from regard.settings.schema import Train
from regard.training.grad_monitor import MIN_GRADIENTS, RECENT_GRADIENTS, GradMonitor
from regard.training.log import Log


def spoken_of(folder: Path, norms: Sequence[float]) -> list[int]:
    """The steps that are spoken of, where the gradients had these lengths."""
    with Log(folder, Train(), quiet=True) as log:
        monitor = GradMonitor(log, most=10)
        for step, norm in enumerate(norms, 1):
            monitor.note(step, torch.tensor(norm))
        monitor.settle()
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["kind"] == "spike"]


def even(steps: int) -> list[float]:
    return default_rng(0).uniform(0.8, 1.2, steps).tolist()


@pytest.mark.parametrize("times", [20, 1e4])
@pytest.mark.parametrize("step", [MIN_GRADIENTS + 1, 150, 300])
def test_a_gradient_beyond_all_of_late_and_far_from_the_usual_is_spoken_of(
        times: float, step: int, tmp_path: Path) -> None:
    norms = even(300)
    norms[step - 1] *= times
    assert spoken_of(tmp_path, norms) == [step]


def test_the_first_gradients_have_nothing_to_stand_out_from(tmp_path: Path) -> None:
    assert spoken_of(tmp_path, [0.01, 5.0, 60.0, *even(MIN_GRADIENTS - 3)]) == []


def test_where_large_gradients_come_now_and_then_they_are_not_spoken_of(tmp_path: Path) -> None:
    """As they are of a model that knows its few examples by heart, but for one in a batch out of ten."""
    draw = default_rng(0)
    norms = 0.04 * np.exp(draw.normal(0, 1, 2_000))
    norms[10::10] = np.exp(draw.normal(0.5, 0.6, len(norms[10::10])))
    assert np.sum(norms > 10 * np.median(norms)) > 100
    assert spoken_of(tmp_path, norms.tolist()) == []


def test_a_length_that_stays_is_spoken_of_once(tmp_path: Path) -> None:
    larger = (50 * norm for norm in even(2 * RECENT_GRADIENTS))
    assert spoken_of(tmp_path, [*even(RECENT_GRADIENTS), *larger]) == [RECENT_GRADIENTS + 1]


def test_after_gradients_of_nothing_there_is_no_usual_one(tmp_path: Path) -> None:
    assert spoken_of(tmp_path, [*[0.0] * RECENT_GRADIENTS, 1.0, 0.0]) == []
