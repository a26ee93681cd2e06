"""`regard explain`: six steps with real numbers, and a clear line where a word, a head or a text is not there."""

import json
import re
from pathlib import Path

import pytest
import torch

from regard.look.explain import explain
from regard.nn.score import DotAttend
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.training.loop import train
from regard.verbs.explain import Explained, main, place, table

TEXT = "le chat 7 dort"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "pairs.tsv").write_text("".join(f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(30)))
    settings = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
                "train.batch_tokens=64", "device=cpu", f"data.paths={folder / 'pairs.tsv'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return folder / "run"


def explained(run: Path, capsys: pytest.CaptureFixture[str], *, site: str | None = None, head: int = 0,
              word: str = "0") -> dict[str, object]:
    main(TEXT, False, run, site, head, word, "cpu", True)
    return json.loads(capsys.readouterr().out)


def test_the_lecture_s_example_prints_the_lecture_s_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    main(None, True, None, None, 0, "0", "cpu", False)
    said = capsys.readouterr().out
    for number in ("102.0", "99.0", "√3", "58.9", "57.2", "0.85", "0.15", "[0.85 0.30 2.70]"):
        assert number in said


def test_a_real_run_s_parts_sum_to_its_own_output(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = explained(run, capsys, site="decoder.blocks.0.cross", head=1, word="2")
    summed = [sum(column) for column in zip(*said["parts"], strict=True)]
    assert summed == pytest.approx(said["own"], abs=1e-5)
    assert said["difference"] <= 1e-5
    assert len(said["words"]) == len(said["weights"]) == len(said["scores"])
    assert sum(said["weights"]) == pytest.approx(1)


def test_the_last_attention_is_explained_if_none_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(run, capsys)["site"] == "decoder.blocks.0.cross"


def test_the_table_has_a_line_for_each_word(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(TEXT, False, run, "encoder.blocks.0.self", 0, "chat", "cpu", False)
    said = capsys.readouterr().out
    assert re.search(r"as 'c\w*' is read", said)
    head, *lines = said.split("\n\n")[2].splitlines()
    assert [step in head for step in ("1 key", "2 score q·k", "3 ÷ √8", "4 softmax", "5 softmax · v")] == [True] * 5
    assert lines[-1].startswith("</s>")
    assert "6 sum" in said


def test_a_score_that_is_not_divided_says_so() -> None:
    steps = explain(DotAttend((2,)), torch.ones(2), torch.eye(2), torch.eye(2))
    said = table(Explained("", ["a", "b"], steps, None, {}), digits=1)
    assert "3 divide   no division: the score dot has no √d_k" in said
    assert "3 ÷" not in said


def test_a_word_is_found_by_its_number_its_text_or_its_first_piece() -> None:
    pieces = [" the", " sm", "all", " 1", "</s>"]
    assert [place(word, pieces) for word in ("the", "small", "all", "1", "2", "</s>")] == [0, 1, 2, 3, 2, 4]
    with pytest.raises(UserError, match="--word dog: no such word; there are 0 the, 1 sm, 2 all, 3 1, 4 </s>"):
        place("dog", pieces)
    with pytest.raises(UserError, match="--word 5"):
        place("5", pieces)


@pytest.mark.parametrize(("options", "message"), [
    ({"head": 7}, "head 7: decoder.blocks.0.cross has heads 0 to 1"),
    ({"site": "decoder.blocks.5.cross"}, "decoder.blocks.5.cross: no attention of this name; there are encoder"),
    ({"word": "zebra"}, "--word zebra: no such word"),
])
def test_what_is_not_there_is_refused_with_what_is(
    run: Path, capsys: pytest.CaptureFixture[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        explained(run, capsys, **options)


def test_either_a_text_or_the_example_is_wanted(run: Path) -> None:
    with pytest.raises(UserError, match="give an INPUT to explain, or --example"):
        main(None, False, run, None, 0, "0", "cpu", False)
    with pytest.raises(UserError, match="--example takes no input"):
        main(TEXT, True, run, None, 0, "0", "cpu", False)
