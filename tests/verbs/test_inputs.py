"""Every verb serves a classifier of texts and one of images, by the same tests."""

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from colours import KINDS, Kind
from regard.checkpoint import read_json
from regard.cli import main
from regard.convert.import_export import read_run_model
from regard.settings.errors import UserError
from regard.settings.load import from_json
from regard.training import dry_run
from regard.training.loop import train

COLOURS = ("red", "green", "blue")
TRAIN = [(colour,) for _ in range(24) for colour in COLOURS]
TEST = [(colour,) for _ in range(2) for colour in COLOURS]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="module")
def run(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It learns which colour an input has."""
    folder = tmp_path_factory.mktemp("verbs")
    kind.write(folder, TEST, name="test")
    train(kind.run(kind.write(folder, TRAIN)), folder / "run", quiet=True)
    return folder / "run"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)


def regard(*words: object, stdin: str = "") -> Outcome:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with (patch.object(sys, "argv", ["regard", *map(str, words)]), redirect_stdout(streams[0]),
          redirect_stderr(streams[1]), patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
          pytest.raises(SystemExit) as ended):
        main()
    for stream in streams:
        stream.seek(0)
    return Outcome(int(ended.value.code or 0), *(stream.read() for stream in streams))


def here(run: Path, *words: object) -> tuple[object, ...]:
    return ("--run", run, "--device", "cpu", *words)


# Answers.


def test_inputs_are_arguments_or_lines(kind: Kind, run: Path, tmp_path: Path) -> None:
    inputs = [kind.made(tmp_path, colour) for colour in COLOURS]
    assert regard("predict", *here(run, *inputs)).out.split() == list(COLOURS)
    lines = regard("predict", *here(run, "--json"), stdin="".join(f"{each}\n" for each in inputs)).out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [each["input"] for each in told] == list(map(str, inputs))
    assert [each["text"] for each in told] == list(COLOURS)
    assert all(set(each["probabilities"]) == set(COLOURS) for each in told)


def test_a_vector_of_each_input_is_written(kind: Kind, run: Path, tmp_path: Path) -> None:
    inputs = [kind.made(tmp_path, colour) for colour in COLOURS]
    lines = regard("predict", *here(run, "--embed", "-", *inputs)).out.splitlines()
    assert [json.loads(line)["input"] for line in lines] == list(map(str, inputs))
    assert {len(json.loads(line)["vector"]) for line in lines} == {32}


# Scores.


def test_a_run_is_measured_on_its_test_on_other_data_and_shifted(kind: Kind, run: Path, tmp_path: Path) -> None:
    other = kind.write(tmp_path, [("red",), ("blue",)], name="other")
    words = ("--split", "test", "--data", other, "--shift", kind.shift)
    splits = regard("eval", *here(run, *words, "--json")).told["splits"]
    assert list(splits) == ["test", str(other), f"test {kind.shift}", f"{other} {kind.shift}"]
    assert (splits["test"]["accuracy"], splits["test"]["drop"], splits["test"]["examples"]) == (1.0, 0.0, 6)
    assert splits[str(other)]["examples"] == 2
    shifted = splits[f"test {kind.shift}"]
    assert shifted["drop"] == pytest.approx(1.0 - shifted["accuracy"])
    assert shifted["loss"] != splits["test"]["loss"]


def test_a_shift_of_other_inputs_is_refused(kind: Kind, run: Path) -> None:
    others = [each.shift for each in KINDS if each.name != kind.name]
    said = regard("eval", *here(run, "--shift", ",".join(others)))
    assert said.code == 2
    assert f"--shift {others[0]}: no such shift" in said.err


def test_the_loss_of_the_mistakes_is_that_of_the_split(kind: Kind, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    train(kind.run(run.parent / "train.jsonl", "train.steps=1", "train.learning_rate=1e-9"), folder, quiet=True)
    said = regard("wrong", *here(folder, "--json", "--out", tmp_path / "wrong.html")).told
    assert said["examples"] == 6
    assert 0 < said["wrong"] <= 6
    losses = [each["loss"] for each in said["worst"]]
    assert losses == sorted(losses, reverse=True)
    page = (tmp_path / "wrong.html").read_text(encoding="utf-8")
    assert page.count("<article") == said["wrong"]
    assert ("data:image/png" in page) == (kind.name == "images")


# A look inside.


def test_a_page_shows_the_attention(kind: Kind, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "look.html"
    told = regard("look", *here(run, kind.made(tmp_path, "green"), "--out", page, "--no-open", "--json")).told
    assert (told["page"], told["output"]) == (str(page), "green")
    assert ("data:image/png" in page.read_text(encoding="utf-8")) == (kind.name == "images")
    assert "encoder.blocks.0.self" in regard("look", *here(run, kind.made(tmp_path, "green"), "--terminal")).out


def test_the_steps_of_a_head_end_at_its_output(kind: Kind, run: Path, tmp_path: Path) -> None:
    given = kind.made(tmp_path, "blue")
    word = ("--patch", "1,2") if kind.name == "images" else ("--word", "3")
    told = regard("explain", *here(run, given, *word, "--json")).told
    assert told["input"] == str(given)
    assert told["difference"] < 1e-5
    assert sum(told["weights"]) == pytest.approx(1, abs=1e-5)
    assert told["row"] == (6 if kind.name == "images" else 3)
    missing = regard("explain", *here(run, given, word[0], "9,9"))
    assert missing.code == 2
    assert "9,9: no such" in missing.err


def test_every_check_holds(kind: Kind, run: Path) -> None:
    told = regard("check", *here(run, "--json")).told
    assert told["holds"]
    assert {each["name"] for each in told["checks"]} == kind.checks


def test_every_head_is_measured_and_removed(kind: Kind, run: Path) -> None:
    told = regard("measure", *here(run, "--ablate", "--json")).told
    assert (told["split"], told["examples"]) == ("test", 6)
    assert [(each["site"], each["head"]) for each in told["heads"]] == [
        ("encoder.blocks.0.self", head) for head in (0, 1, None)]
    assert all("loss" in each and "changed" in each for each in told["heads"][:2])


# Plans, and another start.


def words(kind: Kind, *more: str) -> list[str]:
    settings = ("model.width=32", "model.depth=1", "model.heads=2", *kind.settings, "device=cpu", *more)
    return [word for setting in settings for word in ("--set", setting)]


def tensors(run: Path) -> Mapping[str, torch.Tensor]:
    return read_run_model(run, from_json(read_json(run / "run.json")))[1]


def test_a_plan_counts_the_parameters_of_the_run(kind: Kind, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "EXAMPLES", 40)  # the shape checks of tests make more of them slow
    told = regard("plan", "classify", "--data", run.parent, *words(kind), "--json").told
    own = sum(tensor.numel() for tensor in tensors(run).values())
    assert told["parts"]["encoder"] + told["parts"]["embeddings"] == pytest.approx(own - 3 * 33, rel=0.1)
    assert told["fits"]
    assert told["memory"]["total"] > 0


@pytest.mark.parametrize("tune", ["all", "head", "lora"])
def test_another_run_starts_from_it_with_labels_of_its_own(kind: Kind, run: Path, tmp_path: Path, tune: str) -> None:
    data = kind.write(tmp_path, [(colour,) for _ in range(12) for colour in ("pink", "red")])
    more = [f"train.trainable={tune}", "train.lora.rank=2"] if tune == "lora" else [f"train.trainable={tune}"]
    tuned = kind.run(data, "train.batch_tokens=256", *more, start=run)
    train(tuned, tmp_path / "run", quiet=True)
    before, after = (tensors(place) for place in (run, tmp_path / "run"))
    same = {name for name in before if torch.equal(before[name], after[name])}
    inside = {name for name in before if ".blocks." in name}
    assert bool(inside & same) == (tune != "all")
    assert inside <= same or tune != "head"
    answers = regard("predict", *here(tmp_path / "run", kind.made(tmp_path, "pink"), kind.made(tmp_path, "red")))
    assert answers.out.split() == ["pink", "red"] or tune == "head"  # whose states may not tell them apart


def test_a_start_that_reads_other_inputs_is_refused(kind: Kind, run: Path, tmp_path: Path) -> None:
    other = next(each for each in KINDS if each.name != kind.name)
    with pytest.raises(UserError, match=r"--from .*: its model reads (text|images), and the data is (text|images)"):
        other.run(other.write(tmp_path, TEST), start=run)
