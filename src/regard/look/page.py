"""page: all that a record holds as one HTML file, which needs nothing else: no network, no server, no library.

The weights travel as logarithms in 16 bits or 8. Weights themselves in 8 bits would mostly be zero, and nothing is
left of a zero when the page changes the temperature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.look.axes import Axis, AxisPair, axis_to_json
from regard.look.choices import Output
from regard.look.document import data, document, packed
from regard.look.record import Record
from regard.look.vectors import Vectors
from regard.settings.errors import UserError

__all__ = ["LIMIT", "Page", "page"]

LIMIT = 50_000_000  # bytes of a page
VECTORS = 10_000_000  # bytes of vectors, at most: they are the largest part of a page, which should fit into a mail
ROOM_FOR_NOTES = 2_000  # bytes for the list of parts that were left out


@dataclass(frozen=True)
class Page:
    html: str
    left_out: tuple[str, ...]
    """Sentences about the parts that did not fit; the page shows them, too."""


def page(record: Record, *, source: str = "", output: Output | None = None, about: str = "",
         vectors: Mapping[str, Vectors] | None = None, limit: int = LIMIT) -> Page:
    """A page about one example: its record, its text, the alternative tokens, the vectors.

    `about` is a line about its origin. Parts that do not fit within `limit` bytes are left out and listed.
    """
    if not record:
        raise UserError("the record is empty: nothing was watched")

    def html(kept: Record, bits: int, weights: list[Packed], explained: Mapping[str, Vectors],
             left_out: list[str]) -> str:
        texts: dict[Axis, int] = {}  # most sites share their words
        sites = [{"name": site, "heads": kept.heads[site], "floor": each.floor,
                  "first": record[site].shape[1] - kept[site].shape[1],
                  "targets": texts.setdefault(kept.axes[site].targets, len(texts)),
                  "sources": texts.setdefault(kept.axes[site].sources, len(texts)),
                  "steps": explained[site].facts if site in explained else None}
                 for site, each in zip(kept, weights, strict=True)]
        pictures: dict[str, int] = {}  # one may be on several axes, with a class token and without
        facts = {"source": source, "about": about, "output": None if output is None else asdict(output),
                 "leftOut": left_out, "bits": bits, "sites": sites, "texts": [list(axis) for axis in texts],
                 "axes": [None if isinstance(axis, tuple) else _by_number(axis_to_json(axis), pictures)
                          for axis in texts],
                 "pictures": list(pictures)}
        blobs = [packed("weights", each.codes) for each in weights]
        blobs += [packed("vectors", explained[site].pack()) for site in kept if site in explained]
        return document("page", script="main", style="page", title=f"{source} – regard" if source else "regard",
                        pictures=True, facts=data(facts), packed="\n".join(blobs))

    def room(html: str) -> int:
        """Bytes of anything packed that still fit."""
        return max(limit - len(html.encode()) - ROOM_FOR_NOTES, 0) // 4 * 3

    bare = html(record, 16, [Packed(b"", -100 / 3)] * len(record), {}, [])
    kept, bits, left_out = _fit(record, room(bare))
    weights = [pack(kept[site], bits) for site in kept]
    explained, unexplained = {}, []
    if vectors:
        whole = {site: vectors[site] for site in kept if site in vectors and kept[site].shape == record[site].shape}
        explained = _last_that_fit(whole, min(room(html(kept, bits, weights, {}, left_out)), VECTORS))
        unexplained = [site for site in vectors if site not in explained]
    if unexplained:
        left_out.append(f"the six steps of {_some(unexplained, len(vectors or ()))}")
    return Page(html(kept, bits, weights, explained, left_out), tuple(left_out))


def _by_number(axis: Any, pictures: dict[str, int]) -> Any:
    """An axis that names its pictures by their places in `pictures`, which gets those that it lacks."""
    match axis:
        case {"picture": str() as picture}:
            return {**axis, "picture": pictures.setdefault(picture, len(pictures))}
        case {"parts": parts}:
            return {"parts": [_by_number(part, pictures) for part in parts]}
    return axis


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
    """The part of a record that fits: drop first digits, then heads, then the first sites, then the first rows."""
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
        left_out.append(_some(gone, len(record)))
        record = record.only(names)
    if _cells(record) > room:
        heads, rows, columns = record[names[0]].shape
        last = max(1, room // (heads * columns))
        left_out.append(f"the first {rows - last:,} of {rows:,} rows")
        record = _last_rows(record, last)
    return record, bits, left_out


def _last_that_fit(vectors: Mapping[str, Vectors], room: int) -> dict[str, Vectors]:
    """Those of the last sites: where a model decides."""
    kept: dict[str, Vectors] = {}
    for site, each in reversed(list(vectors.items())):
        room -= len(each.pack())
        if room < 0:
            break
        kept[site] = each
    return kept


def _some(sites: Sequence[str], all: int) -> str:
    return f"{len(sites)} of {all} attentions: {', '.join(sites[:5])}{' …' * (len(sites) > 5)}"


def _cells(record: Record) -> int:
    return sum(array.size for array in record.values())


def _last_rows(record: Record, count: int) -> Record:
    axes = {site: AxisPair(each.targets[-count:], each.sources) for site, each in record.axes.items()}
    return replace(record, weights={site: array[:, -count:] for site, array in record.items()}, axes=axes)
