"""What a text names is there: every Python file that the documentation, a comment or a docstring puts in backticks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "docs", ".ci")
NAMED = re.compile(r"`([\w./-]*\w\.py)\b[^`\n]*`")


def texts() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from (file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in (".md", ".py"))


def missing(text: str, there: set[str]) -> list[str]:
    """The files that a text names and no path of `there` ends with."""
    return [name for name in NAMED.findall(text) if not any(f"/{path}".endswith(f"/{name}") for path in there)]


def test_every_python_file_that_a_text_names_exists() -> None:
    there = {file.relative_to(ROOT).as_posix() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}
    found = {file.relative_to(ROOT).as_posix(): missing(file.read_text(encoding="utf-8"), there)
             for file in texts() if file != Path(__file__)}
    assert len(found) > 100
    assert not {file: names for file, names in found.items() if names}


@pytest.mark.parametrize(("text", "names"), [
    ("see `nn/gone.py`", ["nn/gone.py"]), ("run `gone.py --fast`", ["gone.py"]), ("`other/mask.py`", ["other/mask.py"]),
    ("see `nn/mask.py` and `mask.py`", []), ("`src/regard/nn/mask.py`", []), ("nn/gone.py", []),
])
def test_a_file_that_is_gone_would_be_noticed(text: str, names: list[str]) -> None:
    assert missing(text, {"src/regard/nn/mask.py"}) == names
