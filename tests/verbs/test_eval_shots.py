"""Few shots: which examples a question is asked after, and what is made of the likelihoods of the labels."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard.data.few_shot import Shots, labels, prompt, with_shots
from regard.data.text.parallel_files import Pair, read_pairs
from regard.look.plots.charts import by_shots
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.training.loop import train
from regard.verbs.eval_shots import counts, main

POOL = [Pair(f"text {n}", ("even", "odd")[n % 2]) for n in range(40)]


class Copying:
    """Finds that label likeliest which the examples of its prompt show most often: a model that learns in context."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompts: Sequence[str], endings: Sequence[str]) -> np.ndarray:
        self.prompts += prompts
        return np.array([[float(text.count(f"Label:{ending}")) for ending in endings] for text in prompts])


def test_the_likeliest_label_is_the_answer() -> None:
    pool = [pair for pair in POOL if pair.target == "odd"]
    found = with_shots(Copying(), POOL, pool, shots=3, names=["even", "odd"])
    assert (found.right, found.questions, found.accuracy) == (20, 40, 0.5)
    assert found.error == pytest.approx((0.25 / 40) ** 0.5)


def test_a_question_is_never_its_own_example_and_fewer_shots_are_the_first_of_more() -> None:
    asked = {}
    for shots in (0, 2, 5, 39):
        task = Copying()
        with_shots(task, POOL, POOL, shots=shots, names=["even", "odd"], seed=3)
        asked[shots] = [text.split("\n\n") for text in task.prompts]
    for number, pair in enumerate(POOL):
        assert asked[0][number] == [f"Text: {pair.source}\nLabel:"]
        assert asked[2][number][:2] == asked[5][number][:2] == asked[39][number][:2]
        assert f"Text: {pair.source}\nLabel: {pair.target}" not in asked[39][number]
        assert len(set(asked[39][number])) == 40


def test_the_seed_decides_which_examples_are_shown() -> None:
    def prompts(seed: int) -> list[str]:
        task = Copying()
        with_shots(task, POOL, POOL, shots=2, names=["even", "odd"], seed=seed)
        return task.prompts

    assert prompts(1) == prompts(1) != prompts(2)


def test_labels_are_all_that_occur() -> None:
    assert labels([*POOL, Pair("x", "neither")]) == ["even", "neither", "odd"]
    assert prompt("x", POOL[:1]) == "Text: text 0\nLabel: even\n\nText: x\nLabel:"


@pytest.mark.parametrize("wrong", ["", "a", "1,,2", "-1", "1.5", "1000000"])
def test_what_is_no_number_of_examples_is_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="must be numbers of examples"):
        counts(wrong)


def test_the_picture_has_a_point_for_each_number_of_shots() -> None:
    found = [Shots(0, 10, 40), Shots(4, 30, 40), Shots(16, 36, 40)]
    figure = by_shots(found, 0.5, title="a run")
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "4", "16"]
    assert {text.get_text() for text in axes.texts} >= {"0.25", "0.75", "0.90"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("the dog and the cat sat on the mat\n" * 40)
    settings = ["task=language", "model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300",
                "train.steps=2", "train.batch_tokens=64", "data.max_tokens=32", "device=cpu",
                f"data.paths={folder / 'text.txt'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return folder / "run"


def test_a_run_is_asked_by_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, picture = tmp_path / "texts.tsv", tmp_path / "shots.png"
    data.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in POOL))
    main("2,0", data, None, None, run, 7, 0, picture, "cpu", "float32", None, json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["labels"] == ["even", "odd"]
    assert [(each["shots"], each["questions"]) for each in told["shots"]] == [(0, 7), (2, 7)]
    assert picture.stat().st_size > 5_000
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": pair.source, "label": pair.target}) + "\n" for pair in POOL))
    main("0", lines, None, None, run, None, 0, None, "cpu", "float32", None, json=False)
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "0"


def test_train_and_test_files_are_shown_and_asked(run: Path, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in POOL))
    (tmp_path / "test.tsv").write_text("text 98\teven\ntext 99\todd\n")
    every = len(read_pairs([tmp_path], source=None, target=None).splits["train"])
    main(f"1,{every}", tmp_path, None, None, run, None, 0, None, "cpu", "float32", None, json=True)
    assert [each["questions"] for each in json.loads(capsys.readouterr().out)["shots"]] == [2, 2]


@pytest.mark.parametrize(("shots", "content", "message"), [
    ("3", "a\tx\nb\ty\n", "--shots 3: .* has examples for at most 1"),
    ("2", "a\tx\nb\ty\n", "--shots 2: .* has examples for at most 1"),  # a text is no example of itself
    ("0", "a\tx\nb\tx\n", "1 different label;"),
    ("0", " \tx\n \ty\n", "all its texts are empty"),
    ("0", None, "--shots: needs labelled texts"),
])
def test_what_cannot_be_asked_is_refused(run: Path, tmp_path: Path, shots: str, content: str | None,
                                         message: str) -> None:
    data = None if content is None else tmp_path / "texts.tsv"
    if data is not None:
        data.write_text(content or "")
    with pytest.raises(UserError, match=message):
        main(shots, data, None, None, run, None, 0, None, "cpu", "float32", None, json=False)
