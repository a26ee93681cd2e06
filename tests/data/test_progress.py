"""Long work says how far it has come; short work says nothing."""

import pytest

from regard.data import progress as module
from regard.data.progress import progress


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as tell:
        for _ in range(10):
            tell(1)
    assert capsys.readouterr() == ("", "")


def test_long_work_says_lines_where_there_is_no_terminal(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAY_EVERY", -1.0)
    with progress("reading", 8) as tell:
        tell(2)
        tell(9)  # more than was expected: the total is an estimate
    assert capsys.readouterr() == ("", "reading: 25%\nreading: 100%\n")


def test_a_terminal_shows_a_bar_that_goes_away(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress("reading", 8) as tell:
        tell(8)
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
