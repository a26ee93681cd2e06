"""Heat maps of attention, as one would print them. Needs matplotlib (the extra `plot`).

Each function returns a figure; `save` writes it, in the format of the file's ending:
`save(head(run.look("je suis étudiant"), "decoder.blocks.1.cross", 3), "head.png")`.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import nn

from regard.look.axes import Axis, AxisPair
from regard.look.counterfactual import ask, scaled_and_not
from regard.look.record import Record
from regard.look.wordpieces import readable
from regard.nn.mask import Mask
from regard.nn.positions import PositionTable
from regard.settings.errors import UserError

__all__ = ["grid", "head", "matrix", "positions", "save", "scaling", "triangle"]

Scale = Literal["auto", "linear", "log"]

COLOURS = "Blues"  # from white: one hue, readable in grey and for the colour-blind
SIGNED = "RdBu_r"
INK, GREY = "#222222", "#6B6B6B"
FAINTEST = 1e-3  # the white end of a logarithmic scale
SWALLOWS = 0.5  # the share of all weight from which on one token leaves no room for the others on a linear scale
CELL = 0.27  # inches
LETTER = 0.085  # inches of a label
READABLE = 64  # labels on an axis; more would be unreadable
MAX_BARE_INCHES = 8.0  # inches of a map without labels
BAR = 2.5  # inches of the colour bar, at most
DOTS = 160  # per inch


def save(figure: Figure, file: str | Path) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a word in a script that the font lacks
        figure.savefig(file, dpi=DOTS, bbox_inches="tight", pad_inches=0.1)


def head(record: Record, site: str, head: int, *, scale: Scale = "auto") -> Figure:
    """One head: what each target (a row, named by the token it produced) took of each source."""
    weights = record[site][record.heads[site].index(head)]
    return matrix(weights, record.axes[site], title=f"{site}  head {head}", scale=scale)


def matrix(weights: Float[np.ndarray, "targets sources"], named: AxisPair, *, title: str = "",
           scale: Scale = "auto") -> Figure:
    """Any weights of targets to sources, such as a rollout or a mean over heads.

    The automatic scale is logarithmic where one token has most of all weight: the others would be white.
    """
    targets, sources = readable(named.targets), readable(named.sources)
    left, top = (0.0 if len(words) > READABLE else LETTER * max(map(len, words), default=0)
                 for words in (targets, sources))
    longest = max(*weights.shape, 1)
    cell = CELL if longest <= READABLE else MAX_BARE_INCHES / longest
    figure = _figure(max(2.0, cell * len(sources)) + left + 1.3, max(1.0, cell * len(targets)) + top + 0.8)
    axes = figure.add_subplot()
    image = _map(axes, weights, _norm(weights, scale))
    _label(axes, targets, sources)
    axes.set_title(title, loc="left", color=INK, fontsize=11, pad=10, parse_math=False)
    _bar(figure, image, [axes], "weight")
    return figure


def grid(record: Record, only: str = "*", *, scale: Scale = "auto") -> Figure:
    """All heads of the sites that a glob chooses, a row for each site, on one scale."""
    chosen = [site for site in record if fnmatchcase(site, only)]
    if not chosen:
        raise UserError(f"{only}: chooses no site; there are {', '.join(record)}")
    columns = max(len(record.heads[site]) for site in chosen)
    if scale == "auto" and any(_swallows(weights) for site in chosen for weights in record[site]):
        scale = "log"
    norm = _norm(np.concatenate([record[site].ravel() for site in chosen])[None], scale)
    named = [record.axes[site].sources for site in chosen]
    tops = [LETTER * max(map(len, sources)) for sources, above in zip(named, [(), *named], strict=False)
            if sources != above]
    figure = _figure(1.3 + 1.7 * columns, 0.3 + 1.75 * len(chosen) + sum(tops))
    axes = figure.subplots(len(chosen), columns, squeeze=False)
    above: Axis = ()
    for row, site in zip(axes, chosen, strict=True):
        pair = record.axes[site]
        for number, weights, cell in zip(record.heads[site], record[site], row, strict=False):
            image = _map(cell, weights, norm)
            _label(cell, readable(pair.targets) if cell is row[0] else [],
                   readable(pair.sources) if pair.sources != above else [], size=6)
            cell.set_xlabel("mean" if number < 0 else f"head {number}", color=GREY, fontsize=8)
        for empty in row[len(record.heads[site]) :]:
            empty.set_axis_off()
        row[0].set_ylabel(site, color=INK, fontsize=8)
        above = pair.sources
    _bar(figure, image, axes.ravel().tolist(), "weight")
    return figure


def positions(table: PositionTable, length: int = 64) -> Figure:
    """The vector of each position, a row each."""
    device = next(chain(table.parameters(), table.buffers())).device
    with torch.no_grad():
        vectors = table.vectors(torch.arange(length, device=device)[None])[0].float().cpu().numpy()
    most = float(np.abs(vectors).max())
    figure = _figure(7, 4)
    axes = figure.add_subplot()
    image = axes.imshow(vectors, cmap=SIGNED, norm=Normalize(-most, most), aspect="auto", interpolation="nearest")
    _frame(axes)
    axes.set_xlabel("component of the vector", color=GREY)
    axes.set_ylabel("position", color=GREY)
    axes.tick_params(color=GREY, labelcolor=GREY)
    axes.set_title(f"{type(table).__name__} positions", loc="left", color=INK, fontsize=11)
    _bar(figure, image, [axes], "value")
    return figure


def triangle(model: nn.Module, site: str, head: int, look: Callable[[], Record]) -> Figure:
    """Mask × attention: what a head would take of every token, what it may see, and what it takes.

    `look` runs the model: `lambda: run.look("je suis étudiant", "I am a student")`.
    """
    question, record = ask(model, site, look)
    every, taken = question.weights(mask=Mask())[0, head], question.weights()[0, head]
    panels = {"softmax of all scores": every, "× mask": question.allowed(), "= attention, its rows summing to 1": taken}
    pair = record.axes[site]
    return _side_by_side(panels, readable(pair.targets), readable(pair.sources))


def scaling(*, width: int = 64, length: int = 24, seed: int = 0) -> Figure:
    """A head before any training: softmax(q·k / √d_k) is spread out, softmax(q·k) is peaked."""
    scaled, unscaled = scaled_and_not(width=width, length=length, seed=seed)
    return _side_by_side({f"softmax(q·k / √{width})": scaled, "softmax(q·k)": unscaled}, [], [])


def _side_by_side(panels: dict[str, np.ndarray], targets: Sequence[str], sources: Sequence[str]) -> Figure:
    left, top = (LETTER * max(map(len, words), default=0) for words in (targets, sources))
    size = max(2.4, CELL * len(targets))
    figure = _figure(len(panels) * (size + 0.2) + left + 1.0, size + top + 0.6)
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (axes, (title, weights)) in enumerate(zip(row.tolist(), panels.items(), strict=True)):
        image = _map(axes, weights, Normalize(0, 1))
        _label(axes, targets if place == 0 else [], sources)
        axes.set_title(title, loc="left", color=INK, fontsize=10, pad=8, parse_math=False)
    _bar(figure, image, row.tolist(), "weight")
    return figure


def _figure(width: float, height: float) -> Figure:
    margins = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return Figure(figsize=(width, height), layout=margins, facecolor="white")


def _map(axes: Axes, weights: Float[np.ndarray, "targets sources"] | Bool[np.ndarray, "targets sources"],
         norm: Normalize) -> AxesImage:
    floor = FAINTEST if isinstance(norm, LogNorm) else 0.0  # zero has no logarithm
    image = axes.imshow(np.maximum(weights, floor), cmap=COLOURS, norm=norm, aspect="equal", interpolation="nearest")
    _frame(axes)
    return image


def _frame(axes: Axes) -> None:
    axes.spines[:].set_color(GREY)
    axes.spines[:].set_linewidth(0.5)


def _label(axes: Axes, targets: Sequence[str], sources: Sequence[str], *, size: float = 9) -> None:
    """The sources at the top, the targets at the left."""
    look: dict[str, Any] = {"fontsize": size, "color": INK, "parse_math": False}
    named = 0 < len(sources) <= READABLE
    axes.set_xticks(range(len(sources)) if named else [], sources if named else [], rotation=90, **look)
    named = 0 < len(targets) <= READABLE
    axes.set_yticks(range(len(targets)) if named else [], targets if named else [], **look)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)


def _norm(weights: Float[np.ndarray, "targets sources"], scale: Scale) -> Normalize:
    if scale == "log" or (scale == "auto" and _swallows(weights)):
        return LogNorm(FAINTEST, 1)
    # To the next tenth: a head that is spread out would be pale all over on a scale up to 1.
    return Normalize(0, math.ceil(float(weights.max(initial=0.1)) * 10) / 10)


def _swallows(weights: Float[np.ndarray, "targets sources"]) -> bool:
    return weights.shape[0] > 1 and weights.shape[1] > 2 and float(weights.mean(0).max()) > SWALLOWS


def _bar(figure: Figure, image: AxesImage, axes: Sequence[Axes], what: str) -> None:
    share = min(0.8, BAR / figure.get_figheight())
    bar = figure.colorbar(image, ax=axes, shrink=share, aspect=20, pad=0.02, anchor=(0, 1))
    bar.set_label(what, color=GREY)
    bar.ax.tick_params(color=GREY, labelcolor=GREY, labelsize=8)
    bar.outline.set_linewidth(0.5)
