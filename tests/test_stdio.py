"""A closed, broken or hung-up standard stream ends no work and loses none; a terminal obeys no text from elsewhere."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from select import select
from typing import Any, TextIO
from unittest.mock import patch

import pytest

from regard.checkpoint import Checkpoint
from regard.settings.schema import Train
from regard.stdio import LastingStream, escape_controls, print_message, print_result
from regard.training.log import Log
from regard.verbs import predict

pty = pytest.importorskip("pty")  # none of this is on Windows
from streams import NOT_EMPTIED, READS, SCENES, VERBS  # noqa: E402 (it needs pty, too)

ROOT = Path(__file__).parents[1]
HOSTILE = "\x1b]0;title\x07 \x1b[2J\x9b31m \r\x08\x7f [/b] :smile: {x}"
ESCAPED = r"\u001b]0;title\u0007 \u001b[2J\u009b31m \u000d\u0008\u007f [/b] :smile: {x}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, Any]:
    """Of all that happens in `streams.py`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, ROOT / "tests" / "streams.py", folder], env=environment, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    raised = folder / "raised"
    assert not raised.exists(), raised.read_text()
    return dict(json.loads(done.stdout))


@contextmanager
def terminal() -> Iterator[tuple[int, TextIO]]:
    """Our side of a terminal, and a stream to it."""
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        yield ours, stream
    os.close(ours)


def shown(ours: int, end: str) -> str:
    """What the terminal receives, up to its `end`; it comes in pieces."""
    received = b""
    while not received.endswith(end.encode()):
        assert select([ours], [], [], 30)[0], received
        received += os.read(ours, 65536)
    return received.decode()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_does_its_work_with_closed_streams(verb: str, outcomes: dict[str, Any]) -> None:
    assert outcomes[verb] != NOT_EMPTIED, "a file has the number of a standard stream"
    assert outcomes[verb] == 0


@pytest.mark.parametrize("verb", READS)
def test_a_closed_stdin_that_is_needed_is_a_mistake_of_one_sentence(verb: str, outcomes: dict[str, Any]) -> None:
    code, said = outcomes[verb]
    assert code == 2
    assert said == "regard: stdin is closed and there is no input: give one as an argument, or a file with < FILE\n"


# A training whose stderr breaks, in processes of their own.


def steps(run: Path) -> tuple[int, int]:
    """The last step of the metrics, and that of the newest checkpoint, which is whole."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    newest = Checkpoint.all(run)[0]
    assert newest.verify() is None
    return max(line["step"] for line in lines if line["kind"] == "step"), newest.step


@pytest.mark.parametrize(("scene", "run", "code"), [
    ("tee", "teed", 130), ("closed terminal", "hung", 75), ("SIGHUP thrice", "thrice", 75)])
def test_a_training_saves_its_last_step_whatever_has_become_of_its_streams(
        scene: str, run: str, code: int, folder: Path, outcomes: dict[str, Any]) -> None:
    assert outcomes[scene] == code
    last, saved = steps(folder / run)
    assert 0 < last == saved < 1_000_000


@pytest.mark.parametrize(("scene", "run", "last"), [
    ("head", "unread", 6), ("closed terminal, nohup", "nohup", 40), ("SIGINT ignored", "deaf", 40)])
def test_a_training_goes_on_without_a_reader_and_heeds_no_signal_that_was_ignored_at_its_start(
        scene: str, run: str, last: int, folder: Path, outcomes: dict[str, Any]) -> None:
    assert outcomes[scene] == 0
    assert steps(folder / run) == (last, last)
    assert (folder / run / "scores.json").exists()


def test_every_scene_is_looked_at() -> None:
    assert len(SCENES) == 6


# Streams, and what is printed to them.


def log(folder: Path) -> Log:
    log = Log(folder, Train(steps=9))
    log.begin(0)
    return log


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_stream_that_breaks_in_the_middle_is_silent_from_then_on(kind: str, tmp_path: Path) -> None:
    """On a terminal the progress bar, which has a thread of its own, is under way."""
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    stream = io.TextIOWrapper(os.fdopen(theirs, "wb"), encoding="utf-8", line_buffering=True)
    with redirect_stderr(stream), log(tmp_path) as some:
        assert (some.bar is not None) == (kind == "terminal")
        for step in range(1, 10):
            if step == 4:
                os.close(ours)
            some.count(step, 10)
            some.step(step, loss=1.0)
            some.say("words")
            if some.bar is not None:
                some.bar.refresh()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 9
    LastingStream(stream).flush()
    with pytest.raises(OSError, match=r"Broken pipe|Input/output"):
        stream.close()


@pytest.mark.parametrize("stream", ["closed", None])
def test_a_message_is_lost_where_there_is_no_stderr(stream: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    with patch.object(sys, "stderr", closed if stream else None):
        print_message("words")
    assert capsys.readouterr() == ("", "")


def test_a_result_that_is_not_written_is_an_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full, redirect_stdout(full):
        with pytest.raises(OSError, match="No space left"):
            print_result("words", flush=True)
        with pytest.raises(OSError, match="No space left"):
            full.close()


def test_a_closed_terminal_is_a_broken_pipe() -> None:
    ours, theirs = pty.openpty()
    stream = io.TextIOWrapper(os.fdopen(theirs, "wb"), encoding="utf-8", line_buffering=True)
    os.close(ours)
    with redirect_stdout(stream), pytest.raises(BrokenPipeError):
        print_result("words")
    with pytest.raises(OSError, match="Input/output"):
        stream.close()


def test_a_terminal_shows_control_characters_and_parses_no_markup(tmp_path: Path) -> None:
    """Whoever prints: a result, a message, or a message above a progress bar."""
    with terminal() as (ours, stream):
        with redirect_stdout(stream):
            print_result(HOSTILE, flush=True)
        with redirect_stderr(stream):
            print_message(HOSTILE)
            print_message("end")
        assert shown(ours, "end\r\n") == f"{ESCAPED}\r\n{ESCAPED}\r\nend\r\n"
        wide = patch.dict(os.environ, {"COLUMNS": "200", "TERM": "xterm"})
        with redirect_stderr(stream), wide, log(tmp_path) as some:
            some.say(HOSTILE)
            some.bar.stop()
            print_message("end")
        barred = shown(ours, "end\r\n")
        assert ESCAPED in barred
        assert "]0;title\x07" not in barred


def test_a_pipe_gets_every_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(HOSTILE)
    print_message(HOSTILE)
    assert capsys.readouterr() == (f"{HOSTILE}\n", f"{HOSTILE}\n")


def test_json_on_a_terminal_is_still_json_and_means_the_same() -> None:
    assert json.loads(escape_controls(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


def test_an_answer_that_streams_to_a_terminal_is_escaped() -> None:
    class Predictor:
        def stream(self, text: str) -> Iterator[tuple[int, str]]:
            yield from enumerate(re.findall("..?", HOSTILE))

    with terminal() as (ours, stream):
        with redirect_stdout(stream):
            predict._stream(Predictor(), "x", {})  # type: ignore[arg-type]
        assert shown(ours, "x}\r\n") == f"{ESCAPED}\r\n"
