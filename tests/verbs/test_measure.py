"""`regard measure` says of every head what is so, and refuses what it cannot say."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.checkpoint import Checkpoint
from regard.data.dataset import Box, Example
from regard.look.ablate import without
from regard.look.axes import AxisPair, Grid
from regard.look.record import Record
from regard.look.watch import sites
from regard.predictor import Predictor
from regard.settings.errors import UserError
from regard.verbs.measure import Best, Examples, _best_table, ablation, bests, main, measured

TINY = ["model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0", "tokens.vocabulary=400",
        "train.batch_tokens=256", "train.warmup=2", "train.learning_rate=0.01", "search.max_tokens=8", "search.beam=1",
        "device=cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built-in") / "run"
    regard.train(regard.recipe(overrides=[*TINY, "data.built_in_size=40", "train.steps=30", "train.save_every=10",
                                          "train.evaluate_every=30", "train.keep_checkpoints=9"]), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with data of one's own, whose words nobody has aligned."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "train.tsv").write_text("".join(f"le chat {n}\tthe cat {n}\n" for n in range(30)), encoding="utf-8")
    regard.train(regard.recipe(overrides=[*TINY, f"data.paths={folder / 'train.tsv'}", "train.steps=2"]),
                 folder / "run", quiet=True)
    return folder / "run"


def measure(run: Path, *, split: str | None = None, ablate: bool = False, over: bool = False,
            plot: Path | None = None, json: bool = True) -> None:
    main(run, split, 12, ablate, over, plot, "cpu", json)


def test_every_head_and_every_layer_is_measured(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run)
    said = json.loads(capsys.readouterr().out)
    assert (said["split"], said["examples"]) == ("test", 12)
    assert [(row["site"], row["head"]) for row in said["heads"]] == [
        (site, head) for site in ("encoder.blocks.0.self", "decoder.blocks.0.self", "decoder.blocks.0.cross")
        for head in (0, 1, None)]
    for row in said["heads"]:
        assert ("aer" in row) == row["site"].endswith("cross")
        assert row["entropy"] >= 0
        assert 0 <= row["first"] <= 1
    rates = {(row["site"], row["head"]): row["aer"] for row in said["heads"] if "aer" in row}
    head, layer = said["best"]
    assert head["aer"] == rates[head["site"], head["head"]]
    assert (layer["head"], layer["aer"]) == (None, rates[layer["site"], None])


class Captions:
    """A task whose model has looked at pictures: head 1 points at the region of each word, head 0 never does."""

    def __init__(self, words: Sequence[str]) -> None:
        self.axes = AxisPair(tuple(f" {word}" for word in words), Grid(1, len(words)))
        self.weights = np.stack([np.roll(np.eye(len(words)), 1, axis=1), np.eye(len(words))]).astype(np.float32)

    def look(self, model: object, inputs: Sequence[str], outputs: Sequence[str], *, only: str) -> list[Record]:
        assert only == "*"
        return [Record({"cross": self.weights}, {"cross": self.axes}, {"cross": (0, 1)}) for _ in inputs]

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[object]:
        return [None for _ in inputs]

    def output_rows(self, batch: object, rows: int) -> range:
        return range(rows)


def test_heads_that_see_a_picture_are_scored_by_where_they_point() -> None:
    predictor: Any = SimpleNamespace(task=Captions(["red", "circle", "here"]), model=None)
    third = 1 / 3
    regions = [{0: [Box(0, 0, 1, third)], 1: [Box(0, third, 1, 2 * third)]}]
    examples = Examples([Example("picture.png", "red circle here")], None, regions)
    heads = measured(predictor, examples)
    assert {head: columns["pointing"] for head, columns in heads.items()} == {
        ("cross", 0): 0.0, ("cross", 1): 1.0, ("cross", -1): pytest.approx(1.0)}
    head, layer = bests(predictor, examples, heads)
    assert head == Best("cross", 1, "pointing", 1.0, 1.0)
    assert (layer.head, layer.measure) == (None, "pointing")
    assert _best_table([head, layer], "test").splitlines()[0].split() == [
        "best", "site", "head", "pointing", "val", "pointing", "test"]


def test_the_table_holds_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run, split="val", ablate=True, json=False)
    heads, best = (table.splitlines() for table in capsys.readouterr().out.rstrip("\n").split("\n\n"))
    assert heads[0].split() == ["site", "head", "entropy", "distance", "first", "aer", "aer", "mutual", "loss",
                                "changed"]
    assert len(heads) == 1 + 9
    assert [line.split()[0] for line in best] == ["best", "head", "layer"]
    for line in best[1:]:
        validation, scored = line.split()[-2:]
        assert validation == scored  # the split that is measured is the one that they were chosen on


def test_the_answers_that_change_are_those_a_greedy_search_would_change(run: Path) -> None:
    predictor: Predictor = regard.load(run, device="cpu")
    predictor.read_data()
    examples = Examples(predictor.task.data.examples("test", 12), None)
    inputs, effects = examples.inputs, ablation(predictor, examples)
    before = predictor.predict(inputs)
    heads = [(site, head) for site, attend in sites(predictor.model).items() for head in range(attend.heads)]
    assert list(effects) == heads
    for site, head in heads:
        with without(predictor.model, site, head):
            after = predictor.predict(inputs)
        assert effects[site, head]["changed"] == sum(a != b for a, b in zip(before, after, strict=True))
    assert any(effect["changed"] for effect in effects.values())
    assert any(effect["loss"] > 0 for effect in effects.values())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_says_how_many_heads_were_removed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor: Predictor = regard.load(run, device="cpu")
    predictor.read_data()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    ablation(predictor, Examples(predictor.task.data.examples("test", 2), None))
    shown = sys.stderr.getvalue()
    assert "without each head" in shown
    assert "100%" in shown


def test_every_checkpoint_that_was_kept_is_measured_and_drawn(
        run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measure(run, over=True, plot=tmp_path / "steps.png")
    said = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in said["over_training"]] == [10, 20, 30]
    last = said["over_training"][-1]
    assert last["best"] == said["best"]
    assert last["heads"] == said["heads"]
    assert said["over_training"][0]["heads"] != said["heads"]
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_a_broken_checkpoint_is_left_out_and_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    middle = Checkpoint.all(run)[1].folder / "model.safetensors"
    whole = middle.read_bytes()
    try:
        middle.write_bytes(whole[:-1])
        measure(run, over=True)
    finally:
        middle.write_bytes(whole)
    out, err = capsys.readouterr()
    assert [row["step"] for row in json.loads(out)["over_training"]] == [10, 30]
    assert f"left out: {middle}" in err


def test_measures_and_effects_are_drawn(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measure(run, ablate=True, plot=tmp_path / "heads.svg", json=False)
    picture = (tmp_path / "heads.svg").read_text(encoding="utf-8")
    assert "<svg" in picture
    assert str(tmp_path) not in capsys.readouterr().out


def test_without_right_alignments_the_rest_is_measured(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(own)
    said = json.loads(capsys.readouterr().out)
    assert said["best"] == []
    assert not any("aer" in row for row in said["heads"])
    assert len(said["heads"]) == 9
    with pytest.raises(UserError, match="needs known word alignments"):
        measure(own, over=True)


def test_what_cannot_be_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nonsense: no such split; there are val, test, test_combinations"):
        measure(run, split="nonsense")
    with pytest.raises(UserError, match=r"heads\.txt: a picture ends in \.pdf, \.png, \.svg"):
        measure(run, plot=tmp_path / "heads.txt")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_bare_training_learns_which_words_belong_together(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1])}

    def command(*arguments: str) -> str:
        return subprocess.run([sys.executable, "-m", "regard", *arguments], env=environment, cwd=tmp_path, text=True,
                              capture_output=True, check=True).stdout

    command("train")
    head, layer = json.loads(command("measure", "--json"))["best"]
    assert head["aer"] <= 0.25
    assert layer["aer"] <= 0.25
