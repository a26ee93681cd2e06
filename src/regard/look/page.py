"""page: all that a record holds as one HTML file, which needs nothing else: no network, no server, no library.

The weights travel as logarithms in 16 bits or 8. Weights themselves in 8 bits would mostly be zero, and nothing is
left of a zero when the page changes the temperature.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from html import escape
from importlib.resources import files

import numpy as np
from jaxtyping import Float

from regard.look.choices import Output
from regard.look.record import Labels, Record

__all__ = ["LIMIT", "Page", "page"]

LIMIT = 50_000_000  # bytes of a page
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
    labels = 16 * sum(len(label) for site in record.labels.values() for label in (*site.targets, *site.sources))
    script, style = _bundle("main"), _text("page.css")
    room = limit - len(script) - len(style) - labels - 50_000
    kept, bits, left_out = _fit(record, room * 3 // 4)
    packed = [pack(kept[site], bits) for site in kept]
    texts: dict[tuple[str, ...], int] = {}  # most sites share their words
    facts = {
        "source": source, "about": about, "leftOut": left_out, "bits": bits,
        "output": None if output is None else asdict(output),
        "sites": [{"name": site, "heads": kept.heads[site], "floor": floor,
                   "first": record[site].shape[1] - kept[site].shape[1],
                   "targets": texts.setdefault(kept.labels[site].targets, len(texts)),
                   "sources": texts.setdefault(kept.labels[site].sources, len(texts))}
                  for site, (_, floor) in zip(kept, packed, strict=True)],
        "texts": list(texts),
    }
    blobs = [f'<script type="text/plain" class="weights">{b64encode(codes).decode()}</script>' for codes, _ in packed]
    html = _fill(_text("page.html"), {
        "policy": f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(style)}; "
                  "img-src data: blob:; base-uri 'none'; form-action 'none'",
        "title": escape(f"{source} – regard" if source else "regard"),
        "style": style,
        # A word may hold anything, even the end of a script: here no tag begins.
        "facts": json.dumps(facts).replace("<", "\\u003c"),
        "weights": "\n".join(blobs),
        "script": script,
    })
    return Page(html, tuple(left_out))


def pack(weights: Float[np.ndarray, "heads targets sources"], bits: int) -> tuple[bytes, float]:
    """Logarithms of weights as whole numbers, and the logarithm of the smallest weight.

    0 is a weight of zero; from 1, the smallest, to the highest number, a weight of one, the steps become finer with the
    square of the logarithm, so that 8 bits know a weight that matters to a few per cent.
    """
    positive = weights > 0
    logs = np.log(weights, out=np.zeros(weights.shape, np.float32), where=positive).clip(max=0)
    floor = min(float(logs.min(initial=0)), -1.0)
    highest = (1 << bits) - 1
    codes = np.where(positive, highest - np.rint((highest - 1) * np.sqrt(logs / floor)), 0)
    return codes.astype("<u2" if bits == 16 else "u1").tobytes(), floor


def _fit(record: Record, room: int) -> tuple[Record, int, list[str]]:
    """What of a record fits: first its digits go, then its heads, then its first sites, then its first rows."""
    cells = sum(array.size for array in record.values())
    if 2 * cells <= room:
        return record, 16, []
    left_out = ["half the digits: a weight is known to a few per cent"]
    if cells > room:
        left_out.append("the single heads: each attention is shown as the mean over its heads")
        record = record.mean()
        names = list(record)
        while len(names) > 1 and sum(record[site].size for site in names) > room:
            names.pop(0)
        if len(names) < len(record):
            left_out.append(f"{len(record) - len(names)} of {len(record)} attentions: {next(iter(record))} to "
                            f"{list(record)[-len(names) - 1]}")
        record = record.only(names)
    if len(record) == 1 and (array := next(iter(record.values()))).size > room:
        last = max(1, room // (array.shape[0] * array.shape[2]))
        left_out.append(f"the first {array.shape[1] - last:,} of {array.shape[1]:,} rows")
        record = _last_rows(record, last)
    return record, 8, left_out


def _last_rows(record: Record, count: int) -> Record:
    labels = {site: Labels(words.targets[-count:], words.sources) for site, words in record.labels.items()}
    return replace(record, weights={site: array[:, -count:] for site, array in record.items()}, labels=labels)


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


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _fill(template: str, values: dict[str, str]) -> str:
    """In one pass: a value that looks like a place to fill stays what it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)
