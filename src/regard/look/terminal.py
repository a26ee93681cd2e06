"""A head's weights as a heat map of Unicode blocks, for a terminal: a table of words, or a small map for each word."""

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from regard.look.axes import Axis, Grid, grid_parts, word_places
from regard.look.record import Record
from regard.look.wordpieces import readable
from regard.stdio import escape_controls

__all__ = ["default_site", "draw"]

SHADES = " ░▒▓█"  # a fifth of the largest weight each; a terminal without colour shows them, too
MAX_WORD_COLUMNS = 12  # columns of a word
GAP, BETWEEN_MAPS = " ", "  "
EDGES = "▕▏"  # of a map
SQUARE = 2  # columns of a patch: about as wide as a line is high
EVERY = "all patches"
COLOUR, PLAIN = "\033[36m", "\033[0m"  # cyan is read on a dark and on a light ground


def default_site(record: Record) -> str:
    """The site to show when none is asked for: the last between two texts, as translation has it; else the last."""
    facing = [site for site, axes in record.axes.items() if not axes.one_sequence]
    return (facing or list(record))[-1]


def draw(record: Record, site: str, head: int, width: int = 80, *, colour: bool = False) -> str:
    """The weights of a site's head, a row for each target; where not all sources fit, in parts below each other.

    Patches of a picture get a map for each word that looks at them. The last line says from which weight on a cell has
    each shade. A head of -1 is the mean, where a record holds it.
    """
    axes, weights = record.axes[site], record[site][record.heads[site].index(head)]
    pictures, beside = grid_parts(axes.sources), word_places(axes.sources)
    names, rows = _rows_of_words(axes.targets, weights) if pictures else (list(axes.targets), weights)
    seen = np.concatenate([rows[:, patches] for _, patches in pictures], axis=1) if pictures else rows
    most = float(seen.max(initial=0.0))
    shares = rows / (most or 1)
    drawn = [_maps(names, grid, shares[:, patches], width, colour) for grid, patches in pictures]
    if not pictures or len(names) > 1 < len(beside):
        drawn.append(_table(names, [axes.sources[place] for place in beside], shares[:, beside], width, colour))
    legend = (f"{shade} {most * level / len(SHADES):.2g}" for level, shade in enumerate(SHADES[1:], 1))
    return "\n\n".join([*drawn, "  ".join(legend)])


def _table(targets: Sequence[str], sources: Sequence[str], shares: Float[np.ndarray, "targets sources"], width: int,
           colour: bool) -> str:
    rows, columns = ([_fit(escape_controls(word), MAX_WORD_COLUMNS) for word in readable(words)]
                     for words in (targets, sources))
    margin = max(map(_columns, rows), default=0)
    return "\n\n".join(_part(rows, columns[some], shares[:, some], margin, colour)
                       for some in _parts([_columns(word) for word in columns], width - margin))


def _rows_of_words(targets: Axis, shares: Float[np.ndarray, "targets sources"]
                   ) -> tuple[list[str], Float[np.ndarray, "words sources"]]:
    """The rows of words, or of a class token; where only patches look, one row is the mean of theirs."""
    places = word_places(targets)
    return ([targets[place] for place in places], shares[places]) if places else ([EVERY], shares.mean(0)[None])


def _maps(names: Sequence[str], grid: Grid, shares: Float[np.ndarray, "words patches"], width: int,
          colour: bool) -> str:
    """A small map for each word, as many beside each other as fit; of a large grid, the strongest of some patches."""
    room = max(1, width - len(EDGES))
    coarse = -(-grid.width // room)
    square = SQUARE if grid.width * SQUARE <= room else 1
    size = -(-grid.width // coarse) * square + len(EDGES)
    across = max(1, (width + len(BETWEEN_MAPS)) // (size + len(BETWEEN_MAPS)))
    blocks = []
    for name, row in zip(readable(names), shares, strict=True):
        label = _fit(escape_controls(name), size)
        lines = [EDGES[0] + "".join(_shade(share) * square for share in line) + EDGES[1]
                 for line in _coarser(row.reshape(grid.height, grid.width), coarse).tolist()]
        blocks.append([label + " " * (size - _columns(label)), *lines])
    strips = (blocks[start : start + across] for start in range(0, len(blocks), across))
    return "\n\n".join("\n".join(_line(parts, colour and number > 0)
                                 for number, parts in enumerate(zip(*strip, strict=True))) for strip in strips)


def _line(parts: Sequence[str], colour: bool) -> str:
    text = BETWEEN_MAPS.join(parts).rstrip()
    return f"{COLOUR}{text}{PLAIN}" if colour and text else text


def _coarser(shares: Float[np.ndarray, "rows columns"], factor: int) -> Float[np.ndarray, "fewer_rows fewer_columns"]:
    """The strongest of `factor` × `factor` patches."""
    rows, columns = (-(-size // factor) for size in shares.shape)
    padded = np.zeros((rows * factor, columns * factor), shares.dtype)
    padded[: shares.shape[0], : shares.shape[1]] = shares
    found: np.ndarray = padded.reshape(rows, factor, columns, factor).max((1, 3))
    return found


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
