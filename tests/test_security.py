"""SECURITY.md promises nothing without a test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_promise_of_security_names_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised = text.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    promises = re.split(r"^- ", promised, flags=re.MULTILINE)[1:]
    assert promises
    for promise in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", promise)
        assert tests, promise
        for test in tests:
            assert re.search("^def test_", (ROOT / test).read_text(encoding="utf-8"), re.MULTILINE), test


def test_security_says_how_to_report_and_what_is_not_guaranteed() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "## Reporting" in text
    assert "Report a vulnerability" in text
    assert "## Not guaranteed" in text
