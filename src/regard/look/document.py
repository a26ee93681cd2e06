"""An HTML file that needs nothing else: style, scripts and data are inside, and nothing but them may run or load."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["STATIC", "data", "document", "packed"]

STATIC = files("regard.look") / "static"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)


def document(template: str, *, script: str, style: str, title: str, pictures: bool = False, **parts: str) -> str:
    """A template of `static/` with its modules and its style in it. `parts` is markup; the title is any text.

    `pictures` lets the page show those that it makes itself.
    """
    code, looks = _bundle(script), _text(f"{style}.css")
    images = "img-src data: blob:; " if pictures else ""
    # No request may leave the page, and no script runs in it but its own.
    policy = (f"default-src 'none'; script-src {_digest(code)}; style-src {_digest(looks)}; {images}"
              "base-uri 'none'; form-action 'none'")
    return _fill(_text(f"{template}.html"), {
        "policy": policy, "script": code, "style": looks, "title": escape(title).encode(errors="replace").decode(),
        **parts})


def data(facts: Mapping[str, Any]) -> str:
    """As the content of a script that does not run. A word may hold anything, even the end of a script."""
    return json.dumps(facts).replace("<", "\\u003c")


def packed(kind: str, content: bytes) -> str:
    return f'<script type="text/plain" class="{kind}">{b64encode(content).decode()}</script>'


def _bundle(name: str) -> str:
    """A module and those it imports, in one: modules do not load from a file that was double-clicked."""
    return "".join(_modules(name, set()))


def _modules(name: str, met: set[str]) -> Iterator[str]:
    if name in met:
        return
    met.add(name)
    text = _text(f"{name}.js")
    for imported in IMPORT.findall(text):
        yield from _modules(imported, met)
    yield re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE)


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a policy names what it allows."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _fill(template: str, values: dict[str, str]) -> str:
    """In one pass: a value that looks like a place to fill stays what it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)
