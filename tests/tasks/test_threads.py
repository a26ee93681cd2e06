"""Several threads ask one run at once, each with settings of its own, and get what they would get alone."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import asking
from asking import FRENCH, Call, Runs, at_once, same, tiny
from regard.generate import text_vectors as reading
from regard.generate.text_vectors import vectors
from regard.look.ablate import without
from regard.look.watch import watch
from regard.settings.errors import UserError
from regard.tasks.base import Answer


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    return Runs({task: tiny(task, folder / task) for task in ("translate", "language", "classify", "mask")})


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns fifty times as often as they do by default: what can come between will."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_calls_from_eight_threads_get_what_they_get_one_after_the_other(count: int) -> None:
    done = subprocess.run([sys.executable, asking.__file__, str(count)], capture_output=True, text=True, check=False)
    assert done.stdout == f"0 of {count} wrong; changed: none\n", done.stderr


def test_the_settings_of_a_call_are_those_of_no_other(runs: Runs) -> None:
    """The very calls that got one another's settings: `best=1` and `best=3` from two threads."""
    run, wrong = runs.of["translate"], list[int]()

    def ask(best: int) -> None:
        for _ in range(25):
            [answer] = run.answers(["je suis étudiant"], best=best)
            wrong.extend([best] * (len(answer.others) != best - 1))

    threads = [threading.Thread(target=ask, args=[best]) for best in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_streams_that_are_read_in_turns_are_those_that_are_read_alone(runs: Runs) -> None:
    run, hows = runs.of["language"], [{"seed": seed, "best": 1 + seed % 2, "max_tokens": 8} for seed in range(4)]
    alone = [list(run.stream("the red car", **how)) for how in hows]
    found: list[list[tuple[int, str]]] = [[] for _ in hows]
    streams = [run.stream("the red car", **how) for how in hows]
    left = list(zip(streams, found, strict=True))
    while left:
        for stream, pieces in list(left):
            if (piece := next(stream, None)) is None:
                left.remove((stream, pieces))
            else:
                pieces.append(piece)
    assert found == alone


def test_a_setting_that_search_has_not_is_refused_with_the_one_that_was_meant(runs: Runs) -> None:
    run = runs.of["translate"]
    for ask in (run.answers, run.predict):
        with pytest.raises(TypeError, match=r"^baem: no such setting of the search; did you mean beam\?$"):
            ask(["je"], baem=1)
    with pytest.raises(TypeError, match=r"^xyz: no such setting of the search; there are beam, best, length_penalty"):
        run.stream("je", xyz=1)
    with pytest.raises(UserError, match=r"^search\.beam: must be a whole number of at least 1.*, got 0$"):
        run.answers(["je"], beam=0)
    with pytest.raises(UserError, match=r"^search\.beam: must be a whole number, got .many.$"):
        run.look("je", beam="many")


# What is hung into a model.


def beside(other: Call) -> tuple[threading.Thread, list[Any], threading.Event]:
    """A thread that calls again and again until it is told to stop, and what it has found."""
    stop, found = threading.Event(), list[Any]()

    def go_on() -> None:
        while not stop.is_set():
            found.append(other())

    thread = threading.Thread(target=go_on)
    thread.start()
    return thread, found, stop


@pytest.mark.usefixtures("hasty")
def test_what_is_watched_is_what_this_thread_asks(runs: Runs) -> None:
    run = runs.of["translate"]
    batch = next(run.task.batches(["je suis étudiant"], ["I am a student"]))

    def watched() -> dict[str, np.ndarray]:
        with watch(run.model) as seen, torch.no_grad():
            run.task.loss(run.model, batch)
        return {site: seen[site].numpy() for site in seen}

    alone, said = watched(), run.answers(FRENCH[1], beam=2)
    thread, found, stop = beside(lambda: run.answers(FRENCH[1], beam=2))
    try:
        assert all(same(watched(), alone) for _ in range(30))
    finally:
        stop.set()
        thread.join()
    assert len(found) > 3
    assert all(same(each, said) for each in found)


@pytest.mark.usefixtures("hasty")
def test_a_head_that_one_thread_removes_is_there_for_the_others(runs: Runs) -> None:
    run = runs.of["translate"]
    batch = next(run.task.batches(["je suis étudiant"], ["I am a student"]))

    @torch.no_grad()
    def loss() -> float:
        return float(run.task.loss(run.model, batch)[0].total)

    whole = loss()
    with without(run.model, "decoder.blocks.0.cross", 0):
        cut = loss()
        [elsewhere] = at_once([loss], threads=1)
    assert cut != whole
    assert elsewhere == whole == loss()


# Threads that read.


def test_reading_from_several_threads_leaves_torch_its_number_of_threads(runs: Runs) -> None:
    run, before, counts = runs.of["classify"], torch.get_num_threads(), list[int]()
    rows = [[1, *range(3, 3 + n % 60), 2] for n in range(200)]

    def read() -> np.ndarray:
        found = vectors(run.model, rows, pad=0, pool="mean")
        counts.append(torch.get_num_threads())
        return found

    try:
        torch.set_num_threads(1)
        alone = vectors(run.model, rows, pad=0, pool="mean")
        torch.set_num_threads(2)
        assert all(np.allclose(found, alone, atol=1e-6) for found in at_once([read] * 24))
        read()
        assert counts[-1] == torch.get_num_threads() == 2
        assert at_once([torch.get_num_threads] * 3) == [2] * 3  # and threads to come have as many
    finally:
        torch.set_num_threads(before)


def test_while_one_reads_side_by_side_another_reads_by_itself(runs: Runs) -> None:
    """The number of torch's threads is one for all: two who change it would leave it changed."""
    model, rows, before = runs.of["classify"].model, [[1, *range(3, 60), 2]] * 40, torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        alone = vectors(model, rows, pad=0, pool="mean")
        with patch.object(torch, "set_num_threads", side_effect=AssertionError):
            with reading._SIDE_BY_SIDE:
                assert np.allclose(vectors(model, rows, pad=0, pool="mean"), alone, atol=1e-6)
            with pytest.raises(AssertionError):  # when the other is done, it is this one's turn
                vectors(model, rows, pad=0, pool="mean")
        assert not reading._SIDE_BY_SIDE.locked()  # and it is left free, though nothing went right
    finally:
        torch.set_num_threads(before)


def test_what_goes_wrong_in_a_thread_that_reads_is_said(runs: Runs) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(IndexError):
            vectors(runs.of["classify"].model, [[1, 10**6, 2]] * 400, pad=0, pool="mean")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# Scores.


def test_scores_are_the_same_while_others_draw(tmp_path: Path) -> None:
    """What the generator draws is decided by the run's seed, and nobody else's draws come between or are disturbed."""
    run = tiny("detect", tmp_path / "run")
    alone = run.evaluate("val")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    found = at_once([lambda: run.evaluate("val")] * 6)
    assert all(same(each, alone) for each in found)
    assert torch.equal(torch.rand(3), expected)


def test_an_answer_has_as_many_others_as_its_own_settings_say(runs: Runs) -> None:
    """Scores are of the settings that are passed, and the run's own where there are none."""
    run = runs.of["translate"]
    answers: list[Answer] = run.answers(FRENCH[1], best=2)
    assert [len(answer.others) for answer in answers] == [1, 1]
    assert [len(answer.others) for answer in run.answers(FRENCH[1])] == [0, 0]
    drawn = run.evaluate("val", limit=20, temperature=1.0, seed=1)
    assert drawn != run.evaluate("val", limit=20)
    assert drawn == run.evaluate("val", limit=20, temperature=1.0, seed=1)


def test_what_is_looked_at_is_the_answer_of_the_settings_that_are_passed(runs: Runs) -> None:
    for task, text in (("translate", "je suis étudiant"), ("language", "the red car")):
        run, texts = runs.of[task], set[str]()
        for seed in range(3):
            how = {"temperature": 1.0, "seed": seed}
            [answer], told = run.answers([text], **how), run.choices(text, **how)
            assert told.text == answer.text
            texts.add(told.text)
            record = run.look(text, only=run.task.focus, **how)
            words = next(iter(record.axes.values())).targets
            assert words[-len(told.choices) :] == tuple(choice.token for choice in told.choices)
        assert len(texts) == 3


def test_each_blank_has_as_many_candidates_as_are_asked_for(runs: Runs) -> None:
    for best in (1, 2, 7):
        [answer] = runs.of["mask"].answers(["the [MASK] car"], best=best)
        assert [len(choice.best) for choice in answer.choices] == [best]
