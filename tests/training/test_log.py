"""What a run says of itself can be read by others, whatever became of the run."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from regard.settings.errors import UserError
from regard.settings.schema import Train
from regard.training.log import Log, check_tracking


def say(folder: Path, losses: Mapping[int, float], *, start: int = 0, track: bool = False) -> None:
    """A run that goes on from `start`, with a loss and an evaluation at each of these steps."""
    with Log(folder, Train(steps=1000, track=track), quiet=True) as log:
        log.begin(start)
        for step, loss in losses.items():
            log.count(step, 100)
            log.step(step, loss=loss, norm=2.0)
            log.evaluation(step, loss + 1, best=True)
        log.write("score", split="test", bleu=12.5, sentences=3, bleu_signature="x")


def events(folder: Path) -> dict[str, dict[int, float]]:
    """Tag -> step -> value, as TensorBoard reads them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(folder / "events")).Reload()
    return {tag: {event.step: event.value for event in read.Scalars(tag)} for tag in read.Tags()["scalars"]}


def test_events_say_what_the_metrics_say(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    say(tmp_path, {50: 3.0, 100: 2.0}, track=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    read = events(tmp_path)
    assert read["loss/training"] == {50: 3.0, 100: 2.0}
    assert read["loss/validation"] == {50: 4.0, 100: 3.0}
    assert read["bleu/test"] == {100: 12.5}
    speeds = {line["step"]: line["tokens_per_second"] for line in lines if line["kind"] == "step"}
    assert read["tokens_per_second/training"] == {step: pytest.approx(speed) for step, speed in speeds.items()}
    assert set(read) == {"loss/training", "loss/validation", "norm/training", "waited/training",
                         "tokens_per_second/training", "bleu/test", "sentences/test"}


def test_events_of_steps_that_are_done_again_replace_the_old(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    say(tmp_path, {50: 3.0, 100: 2.0, 150: 1.0}, track=True)
    say(tmp_path, {130: 1.5}, start=100, track=True)
    assert events(tmp_path)["loss/training"] == {50: 3.0, 100: 2.0, 130: 1.5}


def test_a_loss_that_is_no_number_is_an_event_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    say(tmp_path, {50: math.nan}, track=True)
    assert math.isnan(events(tmp_path)["loss/training"][50])


def test_a_line_that_a_kill_has_cut_spoils_no_other(tmp_path: Path) -> None:
    say(tmp_path, {50: 3.0})
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    say(tmp_path, {100: 2.0})
    lines = file.read_text().splitlines()
    assert len(lines) == 6
    assert [json.loads(line)["step"] for line in (*lines[:2], *lines[3:5])] == [50, 50, 100, 100]


def test_without_track_there_are_no_events(tmp_path: Path) -> None:
    say(tmp_path, {50: 3.0})
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_without_tensorboard_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"train.track: needs TensorBoard; pip install tensorboard"):
        check_tracking(Train(track=True))
    check_tracking(Train())
