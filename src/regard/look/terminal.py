"""A head's weights as a heat map of Unicode blocks, for a terminal."""

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from regard.look.record import Record
from regard.look.wordpieces import readable
from regard.stdio import escape_controls

__all__ = ["draw", "telling"]

SHADES = " ░▒▓█"  # a fifth of the largest weight each; a terminal without colour shows them, too
MAX_WORD_COLUMNS = 12  # columns of a word
GAP = " "
COLOUR, PLAIN = "\033[36m", "\033[0m"  # cyan is read on a dark and on a light ground


def telling(record: Record) -> str:
    """The site to show when none is asked for: the last between two texts, as translation has it; else the last."""
    facing = [site for site, axes in record.axes.items() if not axes.one_sequence]
    return (facing or list(record))[-1]


def draw(record: Record, site: str, head: int, width: int = 80, *, colour: bool = False) -> str:
    """The weights of a site's head, a row for each target; where not all sources fit, in parts below each other.

    The last line says from which weight on a cell has each shade. A head of -1 is the mean, where a record holds it.
    """
    weights = record[site][record.heads[site].index(head)]
    targets = [_fit(escape_controls(word), MAX_WORD_COLUMNS) for word in readable(record.axes[site].targets)]
    sources = [_fit(escape_controls(word), MAX_WORD_COLUMNS) for word in readable(record.axes[site].sources)]
    margin, most = max(map(_columns, targets), default=0), float(weights.max(initial=0.0))
    parts = [_part(targets, sources[some], weights[:, some] / (most or 1), margin, colour)
             for some in _parts([_columns(word) for word in sources], width - margin)]
    legend = (f"{shade} {most * level / len(SHADES):.2g}" for level, shade in enumerate(SHADES[1:], 1))
    return "\n\n".join([*parts, "  ".join(legend)])


def _part(targets: Sequence[str], sources: Sequence[str], weights: Float[np.ndarray, "targets sources"],
          margin: int, colour: bool) -> str:
    lines = [" " * margin + "".join(GAP + word for word in sources)]
    for word, row in zip(targets, weights.tolist(), strict=True):
        cells = "".join(GAP + _shade(weight) * _columns(source) for source, weight in zip(sources, row, strict=True))
        cells = f"{COLOUR}{cells.rstrip()}{PLAIN}" if colour and cells.strip() else cells
        lines.append((" " * (margin - _columns(word)) + word + cells).rstrip())
    return "\n".join(lines)


def _parts(columns: Sequence[int], room: int) -> Iterator[slice]:
    """Neighbours that fit into the room together, at least one at a time."""
    start, taken = 0, 0
    for place, wide in enumerate(columns):
        if taken and taken + len(GAP) + wide > room:
            yield slice(start, place)
            start, taken = place, 0
        taken += len(GAP) + wide
    if columns:
        yield slice(start, len(columns))


def _shade(weight: float) -> str:
    """
    >>> "".join(_shade(tenth / 10) for tenth in range(11))
    '  ░░▒▒▓▓███'
    """
    return SHADES[min(int(weight * len(SHADES) + 1e-6), len(SHADES) - 1)]


def _fit(word: str, columns: int) -> str:
    """Cut, if it must be."""
    if _columns(word) <= columns:
        return word
    while _columns(word) >= columns:
        word = word[:-1]
    return f"{word}…"


def _columns(text: str) -> int:
    """The columns of a text on a terminal: a Chinese character takes two, a combining accent none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
