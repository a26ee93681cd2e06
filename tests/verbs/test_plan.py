"""`regard plan`: what a run will need, said before it starts."""

import io
import json
import math
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from data.images.drawings import folder_of
from regard.cli import main
from regard.settings.load import load
from regard.tasks import make
from regard.training import dry_run
from regard.verbs import plan
from regard.verbs.train import settled

TINY = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=640", "train.steps=30",
        "train.batch_tokens=256"]
SETTINGS = [word for setting in TINY for word in ("--set", setting)]
GPU = ["--on", "h200"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(*arguments: str) -> Outcome:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", ["regard", "plan", *arguments]), redirect_stdout(out), redirect_stderr(err),
          pytest.raises(SystemExit) as ended):
        main()
    for stream in (out, err):
        stream.seek(0)
    return Outcome(int(ended.value.code or 0), out.read(), err.read())


def planned(*arguments: str) -> dict[str, Any]:
    outcome = run(*SETTINGS, "--json", *arguments)
    assert outcome.code == 0, outcome.err
    return dict(json.loads(outcome.out))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dry_run, "EXAMPLES", 8)  # the shape checks of tests make more of them slow
    return tmp_path


def test_a_plan_is_measured_here_and_leaves_no_file(elsewhere: Path) -> None:
    about = planned("--set", "device=cpu")
    assert list(elsewhere.iterdir()) == []
    assert isinstance(about["parameters"], int)
    assert about["parameters"] == sum(about["parts"].values())
    assert (about["seconds"]["how"], about["seconds"]["threads"]) == ("measured", 1)
    assert about["seconds"]["run"] == pytest.approx(30 * about["seconds"]["step"])
    assert about["fits"]
    assert about["instead"] is None
    assert 0 < about["memory"]["total"] <= about["memory"]["reserved"] < about["memory"]["available"]


def test_the_parameters_are_those_of_the_model_that_will_be_trained() -> None:
    with torch.device("meta"):
        model = make(load(None, TINY)).build({"sources": 640, "targets": 640})
    assert planned(*GPU)["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_plan_says_what_learns_and_what_is_frozen() -> None:
    whole = planned(*GPU)
    assert (whole["learning"], whole["frozen"]) == (whole["parameters"], {})
    some = planned(*GPU, "--set", "train.freeze_layers=1")
    frozen = sum(some["frozen"].values())
    assert some["learning"] == some["parameters"] - frozen
    assert some["frozen"]["embeddings"] == some["parts"]["embeddings"]
    for kind in ("gradients", "optimizer"):
        assert some["memory"][kind] == whole["memory"][kind] * some["learning"] // whole["parameters"]
    said = run(*SETTINGS, *GPU, "--set", "train.freeze_layers=1").out
    assert f"learning        {some['learning']:>16,}  ({some['learning'] / some['parameters']:.2%})" in said
    assert "  frozen" in said


@pytest.mark.parametrize(("preset", "parameters"), [
    ("gpt1", 116_534_784), ("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080),
    ("gpt2-xl", 1_557_611_200), ("gpt3", 174_604_259_328)])
def test_a_preset_has_the_parameters_of_the_published_model(preset: str, parameters: int) -> None:
    """Without the ids that round 50,257 up to a multiple of 64."""
    run = settled("language", [], None, None, None, [f"model.preset={preset}"])
    assert dry_run.make_dry_run(run).parameters().total == parameters


@pytest.mark.parametrize(("preset", "tokens", "petaflop_days"), [
    # Radford et al. 2018 went over some 1.2 B tokens of books a hundred times; for GPT-2, 1.5e21 FLOP are told; Brown
    # et al. 2020, table D.1, count 3,640 petaflop/s-days, without the attention.
    ("gpt1", 1.2e11, 1.0), ("gpt2-xl", 1.6e11, 1.5e21 / 8.64e19), ("gpt3", 3e11, 3640)])
def test_the_work_of_a_preset_is_the_published_figure(preset: str, tokens: float, petaflop_days: float) -> None:
    run = settled("language", [], None, None, None, [f"model.preset={preset}"])
    small = dry_run.make_dry_run(run)
    work = plan.work(small, small.parameters().total, steps=round(tokens / math.prod(small.shape)))
    assert work["petaflop_days"] == pytest.approx(petaflop_days, rel=0.03)
    assert 0.01 < work["petaflop_days_attention"] / work["petaflop_days"] < 0.11


def test_so_many_tokens_are_so_many_steps() -> None:
    about = planned("language", *GPU, "--set", "data.max_tokens=32", "--tokens", "1e6")
    rows, length = about["batch"]["rows"], about["batch"]["length"]
    assert length == 32
    assert about["steps"] == math.ceil(1e6 / (rows * length))
    assert about["work"]["tokens"] == about["steps"] * rows * length
    assert about["work"]["weights"] == 6 * about["parameters"] * about["work"]["tokens"]
    # Two products of 16 numbers with 32 keys in the forward pass, and each of them twice again.
    assert about["work"]["attention"] == 12 * 16 * 32 * about["work"]["tokens"]
    assert about["memory"]["reserved"] == about["memory"]["total"]  # rows are all alike: there is one graph


def test_for_a_gpu_that_is_not_here_the_time_is_computed() -> None:
    fast, slow = planned("--on", "h200"), planned("--on", "l4")
    assert fast["seconds"]["how"] == slow["seconds"]["how"] == "computed"
    assert 0 < fast["seconds"]["step"] < slow["seconds"]["step"]
    assert fast["memory"]["available"] > slow["memory"]["available"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_several_gpus_are_assumed_where_there_is_none() -> None:
    one, eight = planned(*GPU), planned("--gpus", "8")
    assert eight["device"] == "H200"
    assert eight["seconds"]["how"] == "computed"
    assert eight["memory"]["activations"] < one["memory"]["activations"] / 3
    outcome = run(*SETTINGS, "--set", "device=cuda")
    assert outcome.code == 2
    assert "--on" in outcome.err


@pytest.mark.parametrize(("settings", "memory", "proposed"), [
    (["--set", "train.batch_tokens=4096"], "0.07", "--set train.accumulate=4"),
    (["--set", "model.width=1024"], "0.4", "--set train.activation_checkpointing=true --set train.fsdp=true --gpus 8"),
])
def test_what_is_proposed_instead_fits(settings: list[str], memory: str, proposed: str) -> None:
    wanted = [*GPU, *settings, "--length", "32", "--memory", memory]
    about = planned(*wanted)
    assert not about["fits"]
    assert about["instead"] == proposed
    assert planned(*wanted, *shlex.split(proposed))["fits"]


def test_a_model_that_fits_nowhere_is_said_to() -> None:
    outcome = run(*SETTINGS, *GPU, "--memory", "0.01")
    assert outcome.code == 0
    assert "does not fit with any" in outcome.out


def test_a_person_gets_a_table_that_says_what_was_assumed() -> None:
    outcome = run(*SETTINGS, *GPU, "--length", "30")
    assert outcome.code == 0
    for text in ("parameters", "embeddings", "activations", "available", "(computed)", "30 steps", "8 × 30 tokens",
                 "petaflop/s-days", "tokens.vocabulary=640"):
        assert text in outcome.out


@pytest.mark.parametrize("settings", [[], ["--set", "data.multi_label=true"]])
def test_the_labels_of_images_are_counted_and_not_assumed(tmp_path: Path, settings: list[str]) -> None:
    def parameters(labels: int) -> int:
        photos = folder_of(tmp_path / f"{labels}", dict.fromkeys("abcdefghi"[:labels], 2))
        outcome = run("classify", "--data", str(photos), *settings, "--set", "train.batch_tokens=640", "--json")
        assert outcome.code == 0, outcome.err
        about = json.loads(outcome.out)
        assert about["assumed"] == []
        return int(about["parameters"])

    two, three, nine = map(parameters, (2, 3, 9))
    assert nine - two == 7 * (three - two) > 0


@pytest.mark.parametrize(("arguments", "said"), [
    (["--set", "model.widht=3"], "did you mean model.width?"),
    (["--on", "h300"], "h300"),
    (["--gpus", "0"], "--gpus"),
    (["--tokens", "nan"], "--tokens"),
    (["--memory", "inf"], "--memory inf"),
    (["--set", "train.batch_tokens=100000000000"], "too large to plan"),
    (["--data", "nowhere.tsv"], "nowhere.tsv: no such file"),
    (["traslate"], "traslate: no such task"),
])
def test_a_mistake_is_one_line(arguments: list[str], said: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
