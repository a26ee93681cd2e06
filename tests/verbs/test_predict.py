"""`regard predict` with a language model: answers that stream, samples, stop texts, scores."""

import io
import json
import math
import sys
import time
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

import regard
from regard.settings.errors import Failure, UserError
from regard.settings.load import load, to_json
from regard.stdio import escape_controls
from regard.training.loop import train
from regard.verbs.predict import main

PROMPTS = ["the dog", "", "a cat, a cat and", "é 漢字 🙂", "the cat sat on the mat, and the dog"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    text = "the dog and the cat sat on the mat; é 漢字 🙂 a cat, a cat\n"
    (folder / "text.txt").write_text(text * 40, encoding="utf-8")
    settings = ["task=language", "model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300",
                "train.steps=3", "train.batch_tokens=64", "data.max_tokens=32", "search.max_tokens=12", "device=cpu",
                f"data.paths={folder / 'text.txt'}"]
    train(load(None, settings), folder / "run", quiet=True)
    return folder / "run"


class Told(io.StringIO):
    """Knows what had been said each time it was flushed."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.flushed = terminal, list[str]()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushed.append(self.getvalue())


def said(run: Path, monkeypatch: pytest.MonkeyPatch, *inputs: str, stdin: bytes = b"", stop: tuple[str, ...] = (),
         score: bool = False, json: bool = False, overrides: tuple[str, ...] = (),
         terminal: bool = False) -> Told:
    told = Told(terminal)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    monkeypatch.setattr(sys, "stdout", told)
    main(inputs, run, overrides, stop, score, "cpu", "float32", None, json)
    monkeypatch.undo()
    return told


def test_a_single_text_streams_and_is_the_answer_that_it_has_among_others(
        run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = ("search.temperature=0",)
    lines = said(run, monkeypatch, *PROMPTS, json=True, overrides=greedy).getvalue().splitlines()
    expected = [json.loads(line)["text"] for line in lines]
    for prompt, text in zip(PROMPTS, expected, strict=True):
        told = said(run, monkeypatch, prompt, overrides=greedy)
        assert told.getvalue() == f"{text}\n"
        assert len(told.flushed) > 2


def test_all_of_stdin_is_one_prompt_where_a_dash_stands_for_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the dog\nand the cat\n"
    assert said(run, monkeypatch, "-", stdin=text.encode()).getvalue() == said(run, monkeypatch, text).getvalue()
    lines = said(run, monkeypatch, stdin=text.encode(), json=True).getvalue().splitlines()
    assert [json.loads(line)["input"] for line in lines] == ["the dog", "and the cat"]


@torch.no_grad()
def test_a_space_at_the_end_of_a_prompt_begins_the_next_word(run: Path) -> None:
    predictor = regard.load(run)
    texts = ["the dog ", "the dog", "a cat, a ", "the cat  ", " "]
    for how in ({"temperature": 0.0}, {"temperature": 3.0, "best": 4}):
        together = predictor.answers(texts, **how)
        for text, answer in zip(texts, together, strict=True):
            [alone] = predictor.answers([text], **how)
            assert [alone.text, *(other.text for other in alone.others)] == [
                answer.text, *(other.text for other in answer.others)]
        task, search = predictor.task, replace(predictor.run.search, **how)
        for text in texts:
            prompt = task._prompt(text)
            for each in task._written(predictor.model, [prompt], search):
                read = [*task.generator.trim_last_space(prompt, task.data.tokens), *each.tokens]
                assert task.data.tokens.decode([read])[0] == text + each.text
                if text in ("the dog ", "a cat, a "):
                    assert task.data.tokens.pieces(each.tokens[:1])[0][0] in " ␣"


def test_several_samples_stand_on_one_line_and_differ(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = ("search.best=3", "search.temperature=2")
    line, rest = said(run, monkeypatch, "the dog", overrides=drawn).getvalue().split("\n")
    assert rest == ""
    assert len(set(line.split("\t"))) == 3


@pytest.mark.parametrize("prompts", [("the dog",), ("the dog", "a cat,\na cat")])
def test_at_a_terminal_several_samples_stand_below_each_other_as_they_are(
        prompts: tuple[str, ...], run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = ("search.best=16", "search.temperature=9", "search.max_tokens=40")
    records = [*map(json.loads, said(run, monkeypatch, *prompts, overrides=drawn, json=True).getvalue().splitlines())]
    texts = [each["text"] for record in records for each in (record, *record["others"])]
    assert any("\n" in text for text in texts)
    names = [f"{name}{number} of 16" for name in (["the dog ", "a cat, a cat "] if len(prompts) > 1 else [""])
             for number in range(1, 17)]
    shown = "".join(f"── {name} ──\n{escape_controls(text)}\n" for name, text in zip(names, texts, strict=True))
    assert said(run, monkeypatch, *prompts, overrides=drawn, terminal=True).getvalue() == shown


def test_an_answer_ends_before_a_stop_text(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = said(run, monkeypatch, "the dog").getvalue()[:-1]
    stop = whole[3:5]
    assert said(run, monkeypatch, "the dog", stop=(stop,)).getvalue() == whole[: whole.index(stop)] + "\n"
    with pytest.raises(UserError, match="--stop: an empty text"):
        said(run, monkeypatch, "the dog", stop=("",))


def test_a_text_is_scored_token_by_token(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(run, monkeypatch, *PROMPTS, score=True, json=True).getvalue().splitlines()
    for prompt, found in zip(PROMPTS, map(json.loads, lines), strict=True):
        assert found["bytes"] == len(prompt.encode())
        assert len(found["tokens"]) == len(found["log_probabilities"])
        assert found["log_probability"] == pytest.approx(sum(found["log_probabilities"]), abs=1e-6)
        assert all(chance < 0 for chance in found["log_probabilities"])
        bits = -found["log_probability"] / math.log(2) / max(1, found["bytes"])
        assert found["bits_per_byte"] == pytest.approx(bits)
    plain = said(run, monkeypatch, *PROMPTS, score=True).getvalue().splitlines()
    assert [float(line.split("\t")[0]) for line in plain] == pytest.approx(
        [json.loads(line)["log_probability"] for line in lines], abs=1e-3)


def test_the_likeliest_of_two_endings_is_the_one_that_scores_higher(run: Path) -> None:
    predictor = regard.load(run)
    endings = [" dog\n", " cats and dogs\n", " 漢\n"]
    found = predictor.compare(PROMPTS, endings)
    for prompt, row in zip(PROMPTS, found, strict=True):
        totals = [each.total for each in predictor.likelihoods([prompt + ending for ending in endings])]
        for one in range(3):
            assert row[one] - row[0] == pytest.approx(totals[one] - totals[0], abs=1e-3)


def test_a_stream_leaves_the_settings_as_they_were(run: Path) -> None:
    predictor = regard.load(run)
    pieces = predictor.stream("the dog", max_tokens=5, temperature=0.0)
    assert next(pieces)[0] == 0
    pieces.close()
    assert predictor.task.run == predictor.run


def test_streams_that_are_written_in_turns_do_not_disturb_each_other(run: Path) -> None:
    predictor = regard.load(run, device="cpu")
    asked = [("the dog", {"max_tokens": 5, "temperature": 0.0}), ("a cat", {"max_tokens": 9, "temperature": 2.0})]
    alone = [list(predictor.stream(text, **how)) for text, how in asked]
    streams = [predictor.stream(text, **how) for text, how in asked]
    turns = list(zip_longest(*streams))
    assert predictor.task.run == predictor.run
    assert [[piece for piece in column if piece is not None] for column in zip(*turns, strict=True)] == alone


def test_answers_that_memory_cannot_hold_are_a_failure_of_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match=f"not enough memory for up to {10**15:,} tokens"):
        said(run, monkeypatch, "the dog", overrides=(f"search.max_tokens={10**15}",))


def test_a_line_of_ten_megabytes_is_refused_at_once_with_its_place(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"the dog " * 1_250_000
    began = time.process_time()
    with pytest.raises(UserError, match=r"^stdin:2: a text of 10,000,000 characters; the limit is 4,194,304"):
        said(run, monkeypatch, stdin=b"the dog\n" + line + b"\n")
    with pytest.raises(UserError, match=r"^stdin:1: a text of"):
        said(run, monkeypatch, stdin=line, score=True)
    with pytest.raises(UserError, match=r"^stdin: a text of"):
        said(run, monkeypatch, "-", stdin=line)
    predictor = regard.load(run, device="cpu")
    for ask in (predictor.predict, predictor.likelihoods, predictor.embed):
        with pytest.raises(UserError, match=r"^input 2: a text of"):
            ask(["the dog", line.decode()])
    for ask_one in (predictor.stream, predictor.look, predictor.choices):
        with pytest.raises(UserError, match=r"^input 1: a text of"):
            ask_one(line.decode())
    assert time.process_time() - began < 5


def test_the_name_of_a_file_is_read_as_a_text_with_a_note_how_to_read_the_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my notes.txt"
    file.write_text("the dog\n")
    for text in ("the dog", str(tmp_path), "the\0dog", "the" * 2000):
        said(run, monkeypatch, text, score=True)
        assert capsys.readouterr().err == ""
    assert said(run, monkeypatch, str(file), score=True).getvalue().endswith("my notes.txt\n")
    assert capsys.readouterr().err == (f"note: {file} is read as a text, although it is the name of a file; to read "
                                       f"the file, put < before it: < '{file}'\n")
    said(run, monkeypatch, str(file), str(file), score=True)
    assert capsys.readouterr().err.count("note: ") == 2
    file.write_bytes("über den Hund".encode("utf-16"))
    said(run, monkeypatch, str(file), score=True)
    assert "put < before it" in capsys.readouterr().err
    for start in (b"\xff\xd8\xff\xe0\0\x10JFIF", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        file.write_bytes(start)
        said(run, monkeypatch, str(file), score=True)
        assert capsys.readouterr().err == (f"note: {file} is read as a text, although it is the name of a file; that "
                                           "file holds no text, and the model reads nothing else\n")


def test_where_nothing_comes_from_stdin_nothing_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for inputs in ((), ("-",)):
        assert said(run, monkeypatch, *inputs, stdin=b"").getvalue() == ""


def test_a_text_of_nothing_has_no_bits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(run, monkeypatch, "", score=True).getvalue() == "0.0000\t0.0000\t\n"


IDLE = {"translate": ["top_k=3", "top_p=0.5", "min_p=0.5", "seed=1"], "language": ["beam=3", "length_penalty=0.6"],
        "classify": ["beam=3", "temperature=0.5", "max_tokens=3"], "tag": ["top_k=3", "seed=1"], "detect": ["best=3"],
        "encode": ["best=3"], "mask": ["temperature=0.5", "stop=x"]}
HEEDED = {"translate": ["beam=3", "temperature=0.5"], "language": ["temperature=0.5", "best=3"], "mask": ["best=3"],
          "classify": ["best=3", "batch=8"], "tag": ["best=3"], "detect": ["batch=8"], "encode": ["batch=8"]}


@pytest.mark.parametrize("task", IDLE)
def test_a_setting_of_the_search_that_means_nothing_to_a_task_is_refused(task: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(to_json(load(None, [f"task={task}"]))))

    def refusal(setting: str) -> str:
        with pytest.raises(UserError) as error:
            main(["x"], tmp_path, [f"search.{setting}"], [], False, "cpu", "float32", None, False)
        return str(error.value)

    for setting in IDLE[task]:
        who = "beam search does not sample" if task == "translate" else f"a run of {task} "
        assert f"search.{setting}: has no effect, because {who}" in refusal(setting)
    for setting in HEEDED[task]:  # with nothing else wrong than that there is no model
        assert "the run has not ended yet" in refusal(setting)


def test_of_several_labels_there_is_no_next_best_to_ask_for(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(to_json(load(None, ["task=classify", "data.multi_label=true"]))))
    with pytest.raises(UserError, match=r"search\.best=3: has no effect, because a run of classify"):
        main(["x"], tmp_path, ["search.best=3"], [], False, "cpu", "float32", None, False)


@pytest.mark.parametrize(("saved", "idle", "heeded"), [
    ([], ["temperature=0.7", "beam=4"], ["temperature=0.7", "top_k=4", "seed=1"]),
    ([], ["temperature=0.7", "length_penalty=0.6"], ["temperature=none", "length_penalty=0.6"]),
    (["search.temperature=0.7"], ["beam=4"], ["beam=4", "temperature=none"])])
def test_a_translation_is_drawn_or_searched_for_and_what_acts_on_the_other_is_refused(
        saved: list[str], idle: list[str], heeded: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(to_json(load(None, ["task=translate", *saved]))))

    def asked(settings: list[str]) -> None:
        main(["x"], tmp_path, [f"search.{each}" for each in settings], [], False, "cpu", "float32", None, False)

    with pytest.raises(UserError, match=rf"search\.{idle[-1]}: has no effect, because search\.temperature=0\.7"):
        asked(idle)
    with pytest.raises(UserError, match="the run has not ended yet"):
        asked(heeded)


@pytest.mark.parametrize("setting", ["temperature=0.5", "best=3", "max_tokens=9", "seed=1"])
def test_beside_a_score_the_settings_of_the_search_are_refused(
        setting: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=rf"search\.{setting}: has no effect, because --score searches for no answer"):
        said(run, monkeypatch, "the dog", score=True, overrides=(f"search.{setting}",))
    with pytest.raises(UserError, match=r"search\.stop=x: has no effect, because --score"):
        said(run, monkeypatch, "the dog", score=True, stop=("x",))
    assert said(run, monkeypatch, "the dog", score=True, overrides=("search.batch=1",)).getvalue()
