"""The recurrent translators through the command line: every verb is the transformer's own."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

from typed import regard_says

TINY = ("model.width=16", "tokens.vocabulary=300", "train.steps=4", "train.batch_tokens=128", "train.evaluate_every=2",
        "search.max_tokens=8", "search.beam=2", "device=cpu")
NAMES = ["sutskever", "bahdanau", "luong"]
WORDS = {"the": "der", "red": "rote", "green": "grüne", "car": "Wagen", "tree": "Baum", "stands": "steht"}
TEXT = "the red car"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of three to five words, word for word."""
    folder = tmp_path_factory.mktemp("pairs")
    every = [words for length in (3, 4, 5) for words in itertools.permutations(WORDS, length)]
    for split, chosen in (("train", every[::20]), ("val", every[1::150]), ("test", every[2::150])):
        (folder / f"{split}.en").write_text("".join(" ".join(words) + "\n" for words in chosen))
        (folder / f"{split}.de").write_text("".join(" ".join(WORDS[word] for word in words) + "\n" for words in chosen))
    return folder


def train(data: Path, out: Path, name: str) -> tuple[int, str, str]:
    settings = [word for setting in (f"model.preset={name}", *TINY) for word in ("--set", setting)]
    return regard_says("train", "translate", "--data", data, "--out", out, "--source", "en", "--target", "de",
                       *settings)


@pytest.fixture(scope="module", params=NAMES)
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("translators") / request.param
    assert train(data, out, request.param)[0] == 0
    return out


def attends(run: Path) -> bool:
    return run.name != "sutskever"


def test_it_translates_is_scored_and_its_mistakes_are_listed(run: Path) -> None:
    code, said, _ = regard_says("predict", "--run", run, TEXT, "the tree", "--json")
    assert code == 0
    assert [json.loads(line)["input"] for line in said.splitlines()] == [TEXT, "the tree"]
    code, said, _ = regard_says("eval", "--run", run, "--json")
    assert code == 0
    assert {"bleu", "chrf", "exact"} <= json.loads(said).keys()
    code, said, _ = regard_says("wrong", "--run", run)
    assert code == 0
    assert said


def test_it_passes_every_check(run: Path) -> None:
    code, said, _ = regard_says("check", "--run", run)
    assert code == 0, said
    assert "beam 1 = greedy" in said
    assert ("fused = explicit" in said) == attends(run)


def test_where_it_attends_its_one_attention_is_looked_at_explained_and_measured(run: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not attends(run):
        assert regard_says("look", TEXT, "--run", run)[0] == 2
        return
    code, said, _ = regard_says("look", TEXT, "--run", run, "--terminal")
    assert code == 0
    assert "decoder.cross" in said
    code, said, _ = regard_says("explain", TEXT, "--run", run)
    assert code == 0
    assert "decoder.cross" in said
    code, said, _ = regard_says("measure", "--run", run, "--limit", "4", "--json")
    assert code == 0
    assert "decoder.cross" in said


def test_the_same_command_goes_on_from_the_last_checkpoint_to_the_same_model(run: Path, data: Path,
                                                                             tmp_path: Path) -> None:
    again, last = tmp_path / run.name, "checkpoints/step-00000004"
    shutil.copytree(run, again)
    shutil.rmtree(again / last)
    for name in ("model.safetensors", "scores.json", "config.json"):
        (again / name).unlink()
    assert train(data, again, run.name)[0] == 0
    for name in ("model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
