"""A name stands once: public classes and constants whose name is taken elsewhere become fewer, never more.

`names.json` holds how many modules may still use each repeated name. Write it again after a mend:
`python tests/test_names.py`. It refuses to write a count that rises.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("names.json")
PACKAGE = ROOT / "src" / "regard"
VOCABULARY = PACKAGE / "data" / "builtin" / "phrasebook"  # whose constants are lists of words
# Every kernel, family of models and set of traits has its own under the same name.
SHARED = {"KERNEL", "KEYS", "TRAITS"}


def public_names(source: str) -> Iterator[str]:
    """The classes and constants that a module defines, but not its type variables."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets, value=value) if not ast.unparse(value).startswith("TypeVar("):
                names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                continue
        yield from (name for name in names if name[0].isupper() and name not in SHARED)


def repeated() -> dict[str, int]:
    """The names that several modules define, and how many do."""
    files = [file for file in PACKAGE.rglob("*.py") if VOCABULARY not in file.parents]
    counts = Counter(name for file in files for name in {*public_names(file.read_text(encoding="utf-8"))})
    return {name: count for name, count in sorted(counts.items()) if count > 1}


def differences(allowed: dict[str, int], counts: dict[str, int]) -> Iterator[str]:
    for name in sorted({*allowed, *counts}):
        before, now = allowed.get(name, 1), counts.get(name, 1)
        if now > before:
            yield f"{name}: defined in {now} modules, {before} allowed: say of what it is"
        if now < before:
            yield f"{name}: defined in {now} modules, {before} allowed: run python tests/test_names.py"


def test_no_public_class_or_constant_takes_a_name_that_is_taken() -> None:
    allowed = json.loads(ALLOWED.read_text(encoding="utf-8"))
    assert not list(differences(allowed, repeated())), "\n".join(differences(allowed, repeated()))


@pytest.mark.parametrize(("source", "names"), [
    ("class Row: ...", ["Row"]), ("MOST = 3", ["MOST"]), ("A, B = 1, 2", ["A", "B"]),
    ("Row = tuple[int, str]", ["Row"]),
    ("MOST: int = 3", ["MOST"]), ("T = TypeVar('T')", []), ("class _Row: ...", []), ("most = 3", []),
    ("KERNEL = 3", []), ("def f():\n    MOST = 3", []),
])
def test_what_counts_as_a_public_name(source: str, names: list[str]) -> None:
    assert list(public_names(source)) == names


def test_a_count_that_rises_and_one_that_falls_are_both_reported() -> None:
    assert list(differences({}, {"Row": 2}))
    assert list(differences({"Row": 2}, {"Row": 3}))
    assert list(differences({"Row": 2}, {}))
    assert not list(differences({"Row": 2}, {"Row": 2}))


def main() -> None:
    counts = repeated()
    if ALLOWED.exists():
        before = json.loads(ALLOWED.read_text(encoding="utf-8"))
        if risen := {name: count for name, count in counts.items() if count > before.get(name, 1)}:
            sys.exit(f"more than before: {risen}; say of what they are")
    lines = ",\n".join(f"{json.dumps(name)}: {count}" for name, count in counts.items())
    ALLOWED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
