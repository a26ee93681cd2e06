"""Tagging through the command line: what is printed, and what is said of files that are wrong."""

import json
import time
from pathlib import Path

import pytest

import regard.training.loop  # noqa: F401  (importing torch takes seconds, and is not what is timed)
from typed import regard_says

TINY = ("model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
        "train.batch_tokens=64", "device=cpu")


def train(data: Path, out: Path, *more: str) -> tuple[int, str, str]:
    settings = [word for setting in TINY for word in ("--set", setting)]
    return regard_says("train", "tag", "--data", data, "--out", out, *settings, *more)


def row(id: str | int, form: str, upos: str, xpos: str = "X") -> str:
    return "\t".join([str(id), form, "_", upos, xpos, "_", "_", "_", "_", "_"]) + "\n"


GO = row("1-2", "don't", "_") + row(1, "do", "AUX", "VBP") + row(2, "n't", "PART", "RB") + row(3, "go", "VERB", "VB") \
    + row("3.1", "there", "ADV") + "\n"
SLEEP = row(1, "Marie", "PROPN", "NNP") + row(2, "sleeps", "VERB", "VBZ") + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tag")
    (folder / "en-ud-train.conllu").write_text((GO + SLEEP) * 5)
    (folder / "en-ud-dev.conllu").write_text(GO)
    (folder / "en-ud-test.conllu").write_text(SLEEP + row(1, "Ha", "INTJ") + "\n")
    code, said, _ = train(folder / "en-ud-train.conllu", folder / "run")
    assert (code, said) == (0, f"{folder / 'run'}\n")
    return folder / "run"


def test_eval_prints_the_accuracy_of_each_tag_beside_that_of_all(run: Path) -> None:
    code, said, _ = regard_says("eval", "--run", run, "--split", "val", "--split", "test")
    assert code == 0
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["split", "accuracy", "baseline", "sentences_right", "loss", "words", "sentences"]
    assert lines[4] == ["accuracy", "per", "tag", "val", "test"]
    assert [line[0] for line in lines[5:]] == ["AUX", "INTJ", "PART", "PROPN", "VERB"]


def test_eval_gives_json_with_the_tags_by_name(run: Path) -> None:
    code, said, _ = regard_says("eval", "--run", run, "--json")
    assert code == 0
    found = json.loads(said)
    assert found["split"] == "test"
    assert found["splits"]["test"]["accuracy_per_tag"].keys() == {"PROPN", "VERB", "INTJ"}
    assert found["words"] == 3
    assert found["baseline"] == pytest.approx(2 / 3)


def test_predict_prints_a_line_for_each_input(run: Path) -> None:
    code, said, _ = regard_says("predict", "--run", run, "Marie sleeps.", "")
    assert code == 0
    first, second = said.split("\n")[:2]
    assert [pair.rsplit("/", 1)[0] for pair in first.split(" ")] == ["Marie", "sleeps", "."]
    assert second == ""


def test_predict_prints_the_probabilities_of_each_words_best_tags_where_more_than_one_is_asked_for(run: Path) -> None:
    code, said, _ = regard_says("predict", "--run", run, "Marie sleeps", "--samples", "2")
    assert code == 0
    tags, marie, sleeps = said.removesuffix("\n").split("\t")
    assert tags.startswith("Marie/")
    assert marie.startswith("Marie   P(")
    assert sleeps.startswith("sleeps  P(")
    assert marie.count("P(") == sleeps.count("P(") == 2


def test_predict_gives_json_with_the_tags_of_each_word(run: Path) -> None:
    code, said, _ = regard_says("predict", "--run", run, "Marie sleeps", "--json")
    assert code == 0
    found = json.loads(said)
    assert [place["token"] for place in found["choices"]] == ["Marie", "sleeps"]
    assert found["choices"][0]["best"][0][1] == found["choices"][0]["probability"]


@pytest.mark.parametrize("command", [("check",), ("wrong",), ("measure", "--ablate"), ("explain", "Marie sleeps"),
                                     ("look", "Marie sleeps", "--no-open"),
                                     ("look", "Marie sleeps", "--output", "PROPN VERB", "--no-open"),
                                     ("look", "Marie sleeps", "--terminal")], ids=" ".join)
def test_the_other_verbs_know_the_task(run: Path, command: tuple[str, ...], tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, _ = regard_says(*command, "--run", run)
    assert code == 0
    assert said


def test_a_column_is_chosen_by_its_name(run: Path, tmp_path: Path) -> None:
    code, _, _ = train(run.parent / "en-ud-dev.conllu", tmp_path / "run", "--target", "xpos", "--set",
                       "data.held_out=0.5")
    assert code == 2  # one sentence alone
    (tmp_path / "mine.conllu").write_text(GO * 4)
    code, _, _ = train(tmp_path / "mine.conllu", tmp_path / "run", "--target", "xpos")
    assert code == 0
    assert json.loads((tmp_path / "run/labels.json").read_text())["labels"] == ["RB", "VB", "VBP"]


def test_a_tag_that_train_has_not_is_noted(run: Path) -> None:
    notes = json.loads((run / "data/key.json").read_text())["notes"]
    assert "1 of 3 words of test has a tag that is not in train, such as INTJ: counted as wrong" in notes


REFUSED = {
    "empty": ("", "PATH: the file is empty"),
    "columns missing": (GO + "1\tdog\tNOUN\n", "PATH:7: 3 columns, where CoNLL-U has ten with tabs between them"),
    "ids out of order": (row(2, "dog", "NOUN"), "PATH:1: the word's id is '2' instead of 1"),
    "one tag": (row(1, "dog", "NOUN") + "\n" + row(1, "cat", "NOUN"), "train: 1 different label (NOUN); at least two"),
    "NUL": (row(1, "d\0g", "NOUN"), "PATH:1: NUL byte"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    (tmp_path / "mine.conllu").write_text(content)
    began = time.perf_counter()
    code, _, said = train(tmp_path / "mine.conllu", tmp_path / "run")
    assert code == 2
    assert said.startswith("regard: " + message.replace("PATH", str(tmp_path / "mine.conllu")))
    assert said.count("\n") == 1
    assert time.perf_counter() - began < 5
    assert not (tmp_path / "run/run.json").exists()


def test_a_column_that_is_not_there_is_refused(run: Path, tmp_path: Path) -> None:
    code, _, said = train(run.parent / "en-ud-train.conllu", tmp_path / "run", "--target", "upso")
    assert (code, said) == (2, "regard: --target upso: no such column of CoNLL-U; did you mean upos?\n")


def test_a_word_of_a_hundred_thousand_characters_is_trained_on_and_tagged(tmp_path: Path) -> None:
    (tmp_path / "mine.conllu").write_text((GO + row(1, "a" * 100_000, "NOUN") + row(2, "go", "VERB") + "\n") * 3)
    code, _, said = train(tmp_path / "mine.conllu", tmp_path / "run", "--set", "data.max_tokens=16")
    assert code == 0
    assert "sentences cut to data.max_tokens=16 tokens for the loss; every word is given a tag" in said
    code, said, _ = regard_says("eval", "--run", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(said)["words"] == 2


def test_a_bare_answer_of_other_tasks_has_no_choices_in_json(tmp_path: Path) -> None:
    text = "the dog and the cat sat on the mat\n" * 40
    (tmp_path / "text.txt").write_text(text)
    settings = [word for setting in (*TINY, "data.max_tokens=32") for word in ("--set", setting)]
    code, _, _ = regard_says("train", "language", "--data", tmp_path / "text.txt", "--out", tmp_path / "run", *settings)
    assert code == 0
    code, said, _ = regard_says("predict", "--run", tmp_path / "run", "the", "--samples", "2", "--json")
    assert code == 0
    found = json.loads(said)
    assert found.keys() == {"input", "text", "score", "others"}
    assert found["others"][0].keys() == {"text", "score", "others"}
