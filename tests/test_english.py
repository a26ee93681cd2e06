"""Plain modern English, as far as a search can tell: the markers of odd English become fewer, never more.

`english.json` holds the count that each file may still have of each marker. Write it again after a mend:
`python tests/test_english.py`. It refuses to write a count that rises.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("english.json")
DATA = ROOT / "src" / "regard" / "data" / "builtin" / "phrasebook"  # its strings are sentences to translate

PREPOSITION = "about|as|at|by|for|from|in|into|is|of|on|than|to|with"
MARKERS = {name: re.compile(pattern) for name, pattern in {
    "forth": r"(?i)(?<!back and )\bforth\b",
    "anew": r"(?i)\banew\b",
    "nobody": r"(?i)\bnobody\b",
    "alike": r"(?i)\balike\b",
    "besides": r"(?i)\bbesides\b",
    "by itself": r"(?i)\bby itself\b",
    "so many": r"(?i)\bso (many|much|few|long)\b(?! (as|that))",
    "alone": r"(?i)(?<!stand-)\balone\b",
    "of which": r"(?i)\bof (which|whom)\b",
    "is said": r"(?i)\b(is|are|was|were|be|been) (said|told)\b",
    "at the most": r"(?i)\bat the (most|least)\b",
    "what-clause": rf"(?:^|[.:;!?] )(?:What|Whoever|Whatever) [^.?!]*(?:[.!]|$)|(?i:\b(?:{PREPOSITION}) what\b)",
}.items()}


def texts(file: Path) -> Iterator[str]:
    """The English of a file: prose without its code, or what a Python file says in comments and in strings."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield from paragraphs(source)
    else:
        yield from comments(source)
        yield from docstrings(source) if DATA in file.parents else strings(source)


def paragraphs(source: str) -> Iterator[str]:
    prose = re.sub(r"^( *)```.*?^\1```", "\n", source, flags=re.DOTALL | re.MULTILINE)
    yield from re.split(r"\n\s*\n", re.sub(r"`[^`\n]*`", "`", prose))


def comments(source: str) -> Iterator[str]:
    """Each comment, with the lines that go on right below it."""
    lines, last = list[str](), -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield " ".join(lines)
                lines = []
            lines.append(token.string.lstrip("#: "))
            last = token.start[0]
    yield " ".join(lines)


def strings(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in values)
            case ast.Constant(value=str(text)) if id(node) not in inner:
                yield text


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def markers(text: str) -> Counter[str]:
    line = " ".join(re.sub(r"`[^`\n]*`", "`", text).split())
    return Counter({name: len(pattern.findall(line)) for name, pattern in MARKERS.items() if pattern.search(line)})


def found() -> dict[str, dict[str, int]]:
    files = [*sorted((ROOT / "src").rglob("*.py")), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    counts = {file.relative_to(ROOT).as_posix(): sum(map(markers, texts(file)), Counter[str]()) for file in files}
    return {file: dict(sorted(count.items())) for file, count in counts.items() if count}


def test_no_file_gains_odd_english() -> None:
    allowed, counts = json.loads(ALLOWED.read_text(encoding="utf-8")), found()
    assert not list(differences(allowed, counts)), "\n".join(differences(allowed, counts))


def differences(allowed: dict[str, dict[str, int]], counts: dict[str, dict[str, int]]) -> Iterator[str]:
    for file in sorted({*allowed, *counts}):
        before, now = Counter(allowed.get(file, {})), Counter(counts.get(file, {}))
        for marker in sorted({*before, *now}):
            if now[marker] > before[marker]:
                yield f"{file}: {now[marker]} of “{marker}”, {before[marker]} allowed: write it in plain English"
            if now[marker] < before[marker]:
                yield f"{file}: {now[marker]} of “{marker}”, {before[marker]} allowed: run python tests/test_english.py"


@pytest.mark.parametrize(("text", "marker"), [
    ("An update goes forth.", "forth"), ("Begin anew with --out DIR", "anew"), ("nobody waits", "nobody"),
    ("files that are called alike", "alike"), ("It learns besides.", "besides"), ("faster by itself", "by itself"),
    ("Each row becomes so many rows.", "so many"), ("on the seed alone", "alone"),
    ("two files, of which one is empty", "of which"), ("The reason\n  is said.", "is said"),
    ("at the most 3", "at the most"),
    ("the size of what it reads", "what-clause"),
    ("What is wrong with a file has its line.", "what-clause"), ("A line. What is in it", "what-clause"),
])
def test_odd_english_would_be_noticed(text: str, marker: str) -> None:
    assert markers(text)[marker] == 1


@pytest.mark.parametrize("text", [
    "What does it cost?", "back and forth", "`forth` and `alone`", "as many as there are",
    "so many that none fits", "See what it does.", "A stand-alone aloneness.",
])
def test_plain_english_is_not_taken_for_it(text: str) -> None:
    assert not markers(text)


def test_every_kind_of_text_in_a_file_is_searched(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Made anew."""\n\nx = f"nobody has {1}"  # none but it\n# alike\n', encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("Anew, `nobody`\n\n```\nalike\n```\n\nIt is\nsaid.\n", encoding="utf-8")
    assert sum(map(markers, texts(module)), Counter[str]()) == Counter({"anew": 1, "nobody": 1, "alike": 1})
    assert sum(map(markers, texts(page)), Counter[str]()) == Counter({"anew": 1, "is said": 1})


def test_a_count_that_rises_and_one_that_falls_are_both_reported() -> None:
    assert list(differences({"a.py": {"anew": 1}}, {"a.py": {"anew": 2}}))
    assert list(differences({}, {"b.py": {"anew": 1}}))
    assert list(differences({"a.py": {"anew": 1}}, {}))
    assert not list(differences({"a.py": {"anew": 1}}, {"a.py": {"anew": 1}}))


def main() -> None:
    """Write the counts. A file may have been moved or split, so the sum over all files must not rise."""
    counts = found()
    if ALLOWED.exists():
        before = total(json.loads(ALLOWED.read_text(encoding="utf-8")))
        if risen := total(counts) - before:
            sys.exit(f"more than before: {dict(risen)}; write it in plain English")
    lines = ",\n".join(f"{json.dumps(file)}: {json.dumps(count)}" for file, count in counts.items())
    ALLOWED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def total(counts: dict[str, dict[str, int]]) -> Counter[str]:
    return sum(map(Counter, counts.values()), Counter[str]())


if __name__ == "__main__":
    main()
