"""page: all that a record holds as one HTML file, which needs nothing else: no network, no server, no library.

The weights travel as logarithms in 16 bits or 8. Weights themselves in 8 bits would mostly be zero, and nothing is
left of a zero when the page changes the temperature.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.look.choices import Output
from regard.look.record import Labels, Record
from regard.settings.errors import UserError

__all__ = ["LIMIT", "Page", "page"]

LIMIT = 50_000_000  # bytes of a page
ROOM_FOR_NOTES = 2_000  # bytes in which a page says what it left out
STATIC = files("regard.look") / "static"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)


@dataclass(frozen=True)
class Page:
    html: str
    left_out: tuple[str, ...]
    """What of the record did not fit, in words that the page says, too."""


def page(record: Record, *, source: str = "", output: Output | None = None, about: str = "",
         limit: int = LIMIT) -> Page:
    """Everything about one example: its record, its text, what else could have been said.

    `about` is a line that says where it is from. What does not fit within `limit` bytes is left out, and said.
    """
    if not record:
        raise UserError("the record is empty: nothing was watched")

    def document(kept: Record, bits: int, packed: list[Packed], left_out: list[str]) -> str:
        texts: dict[tuple[str, ...], int] = {}  # most sites share their words
        sites = [{"name": site, "heads": kept.heads[site], "floor": codes.floor,
                  "first": record[site].shape[1] - kept[site].shape[1],
                  "targets": texts.setdefault(kept.labels[site].targets, len(texts)),
                  "sources": texts.setdefault(kept.labels[site].sources, len(texts))}
                 for site, codes in zip(kept, packed, strict=True)]
        facts = {"source": source, "about": about, "output": None if output is None else asdict(output),
                 "leftOut": left_out, "bits": bits, "sites": sites, "texts": list(texts)}
        return _document(source, facts, [each.codes for each in packed])

    bare = document(record, 16, [Packed(b"", -100 / 3)] * len(record), [])
    room = limit - len(bare.encode()) - ROOM_FOR_NOTES
    kept, bits, left_out = _fit(record, max(room, 0) // 4 * 3)
    html = document(kept, bits, [pack(kept[site], bits) for site in kept], left_out)
    return Page(html, tuple(left_out))


class Packed(NamedTuple):
    codes: bytes
    floor: float
    """The logarithm of the smallest weight."""


def pack(weights: Float[np.ndarray, "heads targets sources"], bits: int) -> Packed:
    """Logarithms of weights as whole numbers.

    0 is a weight of zero; from 1, the smallest, to the highest number, a weight of one, the steps become finer with the
    square of the logarithm, so that 8 bits know a weight that matters to a few per cent.
    """
    positive = weights > 0
    logs = np.log(weights, out=np.zeros(weights.shape, np.float32), where=positive).clip(max=0)
    floor = min(float(logs.min(initial=0)), -1.0)
    highest = (1 << bits) - 1
    codes = np.where(positive, highest - np.rint((highest - 1) * np.sqrt(logs / floor)), 0)
    return Packed(codes.astype("<u2" if bits == 16 else "u1").tobytes(), floor)


def _fit(record: Record, room: int) -> tuple[Record, int, list[str]]:
    """What of a record fits: first its digits go, then its heads, then its first sites, then its first rows."""
    bits, left_out = 16, []
    if 2 * _cells(record) > room:
        bits = 8
        left_out.append("half the digits: a weight is known to a few per cent")
    if _cells(record) > room and any(len(heads) > 1 for heads in record.heads.values()):
        record = record.mean()
        left_out.append("the single heads: each attention is shown as the mean over its heads")
    names = list(record)
    while len(names) > 1 and _cells(record.only(names)) > room:
        names.pop(0)
    if gone := list(record)[: -len(names)]:
        left_out.append(f"{len(gone)} of {len(record)} attentions: {', '.join(gone[:5])}{' …' * (len(gone) > 5)}")
        record = record.only(names)
    if _cells(record) > room:
        heads, rows, columns = record[names[0]].shape
        last = max(1, room // (heads * columns))
        left_out.append(f"the first {rows - last:,} of {rows:,} rows")
        record = _last_rows(record, last)
    return record, bits, left_out


def _cells(record: Record) -> int:
    return sum(array.size for array in record.values())


def _last_rows(record: Record, count: int) -> Record:
    labels = {site: Labels(words.targets[-count:], words.sources) for site, words in record.labels.items()}
    return replace(record, weights={site: array[:, -count:] for site, array in record.items()}, labels=labels)


def _document(title: str, facts: dict[str, Any], blobs: Sequence[bytes]) -> str:
    script, style = _bundle("main"), _text("page.css")
    weights = (f'<script type="text/plain" class="weights">{b64encode(codes).decode()}</script>' for codes in blobs)
    return _fill(_text("page.html"), {
        # No request may leave the page, and no script runs in it but its own.
        "policy": f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
                  "img-src data: blob:; base-uri 'none'; form-action 'none'",
        "title": escape(f"{title} – regard" if title else "regard").encode(errors="replace").decode(),
        "style": style,
        # A word may hold anything, even the end of a script: here no tag begins or ends.
        "facts": json.dumps(facts).replace("<", "\\u003c"),
        "weights": "\n".join(weights),
        "script": script,
    })


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
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _fill(template: str, values: dict[str, str]) -> str:
    """In one pass: a value that looks like a place to fill stays what it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)
