"""What cannot fit is refused in a sentence with its size, before any memory is taken."""

import time
from pathlib import Path

import pytest
import torch

from regard.settings.errors import Failure, UserError
from regard.settings.load import load
from regard.tasks import make
from regard.tasks.traits import defaults
from regard.training import memory_check
from regard.training.loop import train
from regard.training.memory_check import MIN_SIZES, refuse_too_large, refuse_uncountable

CPU = torch.device("cpu")


@pytest.mark.parametrize(("settings", "named"), [
    (["model.width=1000000000"], "model.width=1000000000: a model of more than 8.0 EiB"),
    (["model.width=10000000"], "model.width=10000000: a model of "),
    (["model.depth=100000000"], "model.depth=100000000: a model of "),
    (["model.decoder_depth=100000000"], "model.decoder_depth=100000000: a model of "),
    (["model.depth=100000000", "model.width=8", "model.heads=2"], "model.depth=100000000: a model of "),
    (["model.ffn_width=9000000000000000000"], "model.ffn_width=9000000000000000000: a model of more than"),
    (["model.head_width=1000000000000"], "model.head_width=1000000000000: a model of "),
    (["model.max_positions=1000000000000", "model.positions=learned"],
     "model.max_positions=1000000000000: a model of "),
    (["model.recurrent.cell=lstm", "model.recurrent.context=output", "model.width=1000000000"],
     "model.width=1000000000: a model of more than")])
def test_a_model_that_cannot_fit_is_refused_at_once(tmp_path: Path, settings: list[str], named: str) -> None:
    run = load(None, ["device=cpu", *settings], base=defaults("translate", built_in=True))
    began = time.process_time()
    with pytest.raises(Failure) as caught:
        train(run, tmp_path / "run", quiet=True)
    assert time.process_time() - began < 5
    assert str(caught.value).startswith(named)
    assert "this machine has" in str(caught.value)
    assert not (tmp_path / "run" / "run.json").exists()
    assert not (tmp_path / "run" / "data").exists()  # nothing was read either


@pytest.mark.parametrize("task", ["translate", "language", "classify", "tag", "mask", "detect"])
def test_the_parameters_of_a_deep_model_are_those_that_it_has(task: str) -> None:
    settings = ["model.width=8", "model.heads=2", "model.depth=70"]
    run = load(None, settings, base=defaults(task, built_in=False))
    with torch.device("meta"):
        there = sum(parameter.numel() for parameter in make(run).build(MIN_SIZES).parameters())
    assert memory_check._counted(run, MIN_SIZES) == (there, there)


def test_what_is_foretold_is_what_training_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(None, ["model.width=64"], base=defaults("translate", built_in=False))
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in make(run).build(MIN_SIZES).parameters())
    monkeypatch.setattr(memory_check, "available", lambda device: 16 * count)
    refuse_too_large(run, device=CPU)
    monkeypatch.setattr(memory_check, "available", lambda device: 16 * count - 1)
    with pytest.raises(Failure, match=rf"a model of {count:,} parameters. Training it takes at least .* of memory"):
        refuse_too_large(run, device=CPU)
    monkeypatch.setattr(memory_check, "available", lambda device: None)  # where nothing says it, nothing is refused
    refuse_too_large(run, device=CPU)


def test_a_plan_is_for_any_machine_but_not_for_any_depth() -> None:
    refuse_uncountable(load(None, ["model.width=65536"]))
    with pytest.raises(Failure, match=r"model.depth=100000000: .* blocks"):
        refuse_uncountable(load(None, ["model.depth=100000000"]))


@pytest.mark.parametrize("setting", ["model.temperature=1e-40", "model.temperature=1e38", "search.temperature=1e-39",
                                     "train.learning_rate=1e-300", "model.norm_epsilon=1e-46", "train.epsilon=5e-324"])
def test_a_number_that_float32_cannot_work_with_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=r"must be a number.* float32") as caught:
        load(None, [setting])
    assert str(caught.value).startswith(setting.partition("=")[0])
    assert load(None, ["search.temperature=0", "model.temperature=0.01"]).model.temperature == 0.01
