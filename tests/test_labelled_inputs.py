"""Bad labelled texts, through the command line: the right exit code, the place, no traceback. And odd ones, read.

tests/data has the reader's own tests; here the sentence has to reach the person.
"""

import json
import time
from pathlib import Path

import pytest

import regard.training.loop  # noqa: F401  (importing torch takes seconds, and is not what is timed)
from typed import regard_says

TINY = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
        "train.batch_tokens=128", "data.max_tokens=32", "device=cpu"]  # fmt: skip
GOOD = "".join(f"a film of {n} stars\t{'good' if n % 2 else 'bad'}\n" for n in range(12))


def trained(*paths: Path, out: Path, settings: tuple[str, ...] = ()) -> tuple[int, str]:
    options = [word for path in paths for word in ("--data", path)]
    options += [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    code, _, said = regard_says("train", "classify", *options, "--out", out)
    return code, said


# Name of the file, what it holds, and what is said of it; PATH stands for the file's path.
REFUSED = {
    "one class": ("train.tsv", "a\tx\nb\tx\n", "PATH: all texts have one label, 'x'; at least two"),
    "a column too few": ("train.tsv", f"{GOOD}alone\n", "PATH:13: one column instead of two"),
    "a column too many": ("train.csv", "a,b,c\n", "PATH:1: 3 columns instead of two"),
    "no such column": ("train.csv", "text,stars\na,1\n", "PATH:1: no column 'label'"),
    "a missing label": ("train.tsv", f"{GOOD}a\t\n", "PATH:13: no label"),
    "a missing key": ("train.jsonl", '{"text": "a"}\n', "PATH:1: no key 'label'"),
    "an empty file": ("train.tsv", "", "PATH: no labelled text in it"),
    "text before the label": ("train.tsv", "".join(f"x\ta film of {n}\n" for n in range(20)), "PATH: 20 different"),
}


@pytest.mark.parametrize(("name", "content", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    (tmp_path / name).write_text(content)
    began = time.perf_counter()
    code, said = trained(tmp_path / name, out=tmp_path / "run")
    assert time.perf_counter() - began < 5
    assert code == 2
    assert said.startswith(f"regard: {sentence.replace('PATH', str(tmp_path / name))}")
    assert said.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_unknown_label_in_a_test_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(GOOD)
    (tmp_path / "test.tsv").write_text("a\tgood\nb\tugly\n")
    code, said = trained(tmp_path, out=tmp_path / "run")
    assert code == 2
    assert said == f"regard: {tmp_path / 'test.tsv'}:2: unknown label 'ugly'; the model knows bad, good\n"


def test_odd_texts_are_trained_on_and_answered(tmp_path: Path) -> None:
    """An empty one, and a word of a hundred thousand letters."""
    data, out = tmp_path / "reviews.tsv", tmp_path / "run"
    data.write_text(f"{GOOD}\tgood\n{'x' * 100_000}\tbad\n")
    code, said = trained(data, out=out)
    assert code == 0
    assert f"note: {data}: 1 of 14 texts is empty" in said
    assert "texts cut to data.max_tokens=32 tokens" in said
    code, answers, said = regard_says("predict", "--run", out, "", "x" * 100_000, "--json")
    assert code == 0
    for line in answers.splitlines():
        answer = json.loads(line)
        assert answer["text"] in ("good", "bad")
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert "note: 1 of 2 texts cut to data.max_tokens=32 tokens" in said

    (tmp_path / "new.tsv").write_text("a\tgood\nb\tugly\n")
    assert regard_says("eval", "--run", out, "--data", tmp_path / "new.tsv")[0] == 2
    code, page, said = regard_says("wrong", "--run", out, "--json")
    assert code == 0
    assert all(each["reference"] != each["answer"] for each in json.loads(page)["worst"])
    for verb in ("check", "measure"):
        assert regard_says(verb, "--run", out)[0] == 0
    code, page, _ = regard_says("look", "--run", out, "a film", "--out", tmp_path / "look.html", "--no-open")
    assert (code, page) == (0, f"{tmp_path / 'look.html'}\n")


@pytest.mark.parametrize(("words", "sentence"), [
    (["--source", "text"], "--source and --target need --data"),
    (["--shots", "1", "--shift", "case", "--data", "a.tsv"], "--shots takes one --data"),
    (["--shots", "1", "--data", "a.tsv", "--data", "b.tsv"], "--shots takes one --data"),
    (["--plot", "a.txt"], "--plot a.txt: a picture ends in"),
])
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    code, _, said = regard_says("eval", "--run", tmp_path, *words)
    assert code == 2
    assert said.startswith(f"regard: {sentence}")
