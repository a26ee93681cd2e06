"""benchmarks/lineage.py: what it says of sentences by length, and that what it compares is comparable."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.settings.load import load
from regard.tasks.traits import defaults

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import lineage  # noqa: E402


@given(st.lists(st.integers(1, 40), min_size=5, max_size=60))
def test_every_sentence_is_in_one_fifth_and_none_is_longer_than_those_of_the_next(lengths: Sequence[int]) -> None:
    fifths = list(lineage.fifths(lengths))
    assert sorted(place for fifth in fifths for place in fifth) == list(range(len(lengths)))
    assert max(map(len, fifths)) - min(map(len, fifths)) <= 1
    assert all(max(lengths[i] for i in one) <= min(lengths[i] for i in other) for one, other in pairwise(fifths))


def test_the_models_of_the_lineage_differ_in_the_model_and_how_it_learns_but_not_in_data_and_tokens() -> None:
    runs = [load(ROOT / "recipes" / f"{model.recipe}.toml", base=defaults("translate", built_in=False))
            for model in lineage.MODELS.values()]
    assert len({run.model.preset for run in runs}) == len(runs)
    assert len({(run.data, run.tokens, run.search, run.train.batch_tokens) for run in runs}) == 1


def measured(model: str, seed: int, bleu: float) -> lineage.Measured:
    fifths = tuple(lineage.Fifth(200, words, bleu - words) for words in (7.0, 9.0, 11.0, 13.0, 18.0))
    return lineage.Measured(model, seed, 10_000_000, 60.0, 200_000.0, bleu + 1, bleu, fifths)


def test_a_table_has_the_mean_of_each_model() -> None:
    model = lineage.mean([measured("Luong", 0, 35.0), measured("Luong", 1, 37.0)])
    assert model == replace(measured("Luong", 0, 36.0), seed=None)
    *_, row = lineage.table([model]).splitlines()
    assert row == "| Luong | 10.0 M | 60 | 200,000 | 37.00 | **36.00** | 29.00 | 27.00 | 25.00 | 23.00 | 18.00 |"


def test_a_picture_names_every_model_beside_its_line() -> None:
    runs = [measured(model, seed, bleu + seed) for model, bleu in (("fixed context", 27.0), ("transformer", 40.0))
            for seed in (0, 1)]
    models = [lineage.mean(runs[:2]), lineage.mean(runs[2:])]
    by_length, *others = lineage.draw(models, runs, title="test").axes
    assert [text.get_text() for text in by_length.texts] == ["fixed context", "transformer"]
    assert [[text.get_text() for text in axes.texts] for axes in others] == [["27.5", "40.5"]] * 2


@pytest.mark.slow
def test_one_command_trains_measures_and_draws_all_of_the_lineage(tmp_path: Path) -> None:
    small = ["--steps", "2", "--width", "16", "--sentences", "10", "--set", "data.built_in_size=200",
             "--set", "search.max_tokens=8"]
    command = [sys.executable, str(ROOT / "benchmarks" / "lineage.py"), *small, "--runs", str(tmp_path / "runs"),
               "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [run["model"] for run in told] == [model.name for model in lineage.MODELS.values()]
    assert all(sum(fifth["sentences"] for fifth in run["fifths"]) == 10 for run in told)
    assert len((tmp_path / "translations.jsonl").read_text(encoding="utf-8").splitlines()) == 10 * len(told)
    assert (tmp_path / "lineage.png").stat().st_size > 10_000
    again = subprocess.run([*command, "--again"], capture_output=True, text=True, timeout=100)
    assert again.stdout == done.stdout
