"""Record: the attention of one example, with its axes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from regard.look.axes import Axis, AxisPair, axis_from_json, axis_to_json
from regard.settings.errors import UserError
from regard.settings.opening import refuse_irregular

__all__ = ["AxisPair", "Record"]

MAX_TABLES = 12  # heads in a notebook's table


@dataclass(frozen=True)
class Record(Mapping[str, NDArray[np.float32]]):
    """By site, (heads, targets, sources); `record["decoder.blocks.3.cross"][5]` is one head's matrix."""

    weights: Mapping[str, Float[np.ndarray, "heads targets sources"]]
    axes: Mapping[str, AxisPair]
    heads: Mapping[str, tuple[int, ...]]
    """The numbers of the heads that were watched; (-1,) is the mean over all."""

    def __getitem__(self, site: str) -> NDArray[np.float32]:
        if site not in self.weights:
            raise KeyError(f"{site}: not recorded; there are {', '.join(self.weights)}")
        return self.weights[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.weights.values())

    def only(self, sites: Sequence[str]) -> "Record":
        """Only these sites."""
        return Record({site: self[site] for site in sites}, {site: self.axes[site] for site in sites},
                      {site: self.heads[site] for site in sites})

    def mean(self) -> "Record":
        """Over the heads of each site."""
        means = {site: array.mean(0, keepdims=True) for site, array in self.weights.items()}
        return replace(self, weights=means, heads=dict.fromkeys(self.weights, (-1,)))

    @staticmethod
    def beside(records: "Mapping[str, Record]") -> "Record":
        """Several records as one, to compare them on a page: each site's name begins with that of its record."""
        named = {f"{name}.{site}": (record, site) for name, record in records.items() for site in record}
        return Record({name: record[site] for name, (record, site) in named.items()},
                      {name: record.axes[site] for name, (record, site) in named.items()},
                      {name: record.heads[site] for name, (record, site) in named.items()})

    def save(self, path: str | Path) -> None:
        """Save as safetensors, with the words in its header: only data, which every tool reads."""
        axes: dict[Axis, int] = {}  # most sites share theirs, and one with a picture is large
        about = {site: {"targets": axes.setdefault(self.axes[site].targets, len(axes)),
                        "sources": axes.setdefault(self.axes[site].sources, len(axes)),
                        "heads": self.heads[site]} for site in self.weights}
        arrays = {site: np.ascontiguousarray(array) for site, array in self.weights.items()}
        save_file(arrays, path, metadata={"regard": "record", "sites": json.dumps(about),
                                          "axes": json.dumps([axis_to_json(axis) for axis in axes])})

    @staticmethod
    def load(path: str | Path) -> "Record":
        try:
            refuse_irregular(Path(path))
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                about = json.loads(metadata["sites"])
                known = [axis_from_json(axis) for axis in json.loads(metadata["axes"])]
                weights = {site: file.get_tensor(site) for site in about}
                axes = {site: AxisPair(known[of["targets"]], known[of["sources"]]) for site, of in about.items()}
                return Record(weights, axes, {site: tuple(of["heads"]) for site, of in about.items()})
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        except (SafetensorError, LookupError, TypeError, ValueError) as error:
            raise UserError(f"{path}: not a saved record: {error}") from error

    def _repr_html_(self) -> str:
        """In a notebook: each site's mean over heads, as a table whose cells are as dark as their weights."""
        return "".join(_table(site, array.mean(0), self.axes[site]) for site, array in list(self.items())[:MAX_TABLES])


def _table(site: str, weights: NDArray[np.float32], axes: AxisPair) -> str:
    head = "".join(f"<th>{escape(word)}</th>" for word in axes.sources)
    rows = []
    for word, row in zip(axes.targets, weights, strict=True):
        cells = "".join(f'<td style="background:rgba(38,84,150,{weight:.2f})" title="{weight:.3f}">&nbsp;</td>'
                        for weight in row.tolist())
        rows.append(f"<tr><th>{escape(word)}</th>{cells}</tr>")
    return f"<table><caption>{escape(site)}</caption><tr><th></th>{head}</tr>{''.join(rows)}</table>"
