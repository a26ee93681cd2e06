"""A picture of how runs have learned: their losses, step by step. Needs matplotlib (the extra `plot`)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from regard.runs.summary import Curves
from regard.settings.opening import replacing

__all__ = ["draw", "picture"]

# Okabe and Ito's, which the colour-blind can tell apart; without the yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555", "#E69F00", "#56B4E9")
MARKERS = "os^D"  # the second seven runs have squares, and so on
INK, GREY, FAINT = "#222222", "#6B6B6B", "#E4E4E4"
LOGARITHMIC_FROM = 5.0  # times the lowest loss; where the highest is less, a plain axis shows more
LABEL_HEIGHT = 0.18  # inches
AROUND = 1.3  # inches of the picture's height that title, ticks and margins take
LONGEST_NAME = 28


class Label(NamedTuple):
    """The label at the end of a curve."""

    text: str
    colour: str
    step: int
    loss: float


def draw(curves: Mapping[str, Curves], file: Path) -> None:
    """The picture of all these runs, by name, in the format that the file's ending says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        with replacing(file) as new:
            picture(curves).savefig(new, format=file.suffix[1:].lower(), dpi=160)


def picture(curves: Mapping[str, Curves]) -> Figure:
    margins = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
    height = max(4.5, AROUND + LABEL_HEIGHT * len(curves))
    figure = Figure(figsize=(8, height), layout=margins, facecolor="white")
    axes = figure.add_subplot()
    labels = []
    for number, (name, its) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number // len(COLOURS) % len(MARKERS)]
        dot = "." if len(its.training) == 1 else None  # or it would not be seen
        axes.plot(*_points(its.training), color=colour, linewidth=1.0, alpha=0.55, marker=dot, clip_on=False)
        axes.plot(*_points(its.validation), color=colour, linewidth=1.8, marker=marker, markersize=3.5, clip_on=False)
        labels += _labels(name, its, colour) if len(curves) > 1 else _labels_of_one(its, colour)
    _scale(axes, curves)
    _dress(axes, list(curves))
    _label(axes, labels, gap=LABEL_HEIGHT / (height - AROUND))
    return figure


def _points(curve: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """A loss that is not finite leaves a gap."""
    return list(curve), [loss if math.isfinite(loss) else math.nan for loss in curve.values()]


def _last(curve: Mapping[int, float]) -> tuple[int, float] | None:
    finite = [(step, loss) for step, loss in curve.items() if math.isfinite(loss)]
    return finite[-1] if finite else None


def _labels(name: str, curves: Curves, colour: str) -> list[Label]:
    end = _last(curves.validation) or _last(curves.training)
    best = "" if curves.best is None else f"  {curves.best:.3g}"
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return [Label(f"{short}{best}", colour, *end)] if end else []


def _labels_of_one(curves: Curves, colour: str) -> list[Label]:
    ends = {"training": _last(curves.training), "validation": _last(curves.validation)}
    return [Label(f"{kind}  {end[1]:.3g}", colour, *end) for kind, end in ends.items() if end]


def _scale(axes: Axes, curves: Mapping[str, Curves]) -> None:
    losses = [loss for its in curves.values() for curve in (its.training, its.validation)
              for loss in curve.values() if math.isfinite(loss)]
    axes.set_xlim(0, max(1, *(its.step for its in curves.values())))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if losses and 0 < min(losses) * LOGARITHMIC_FROM < max(losses):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _dress(axes: Axes, names: Sequence[str]) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", axis="y", length=0, labelcolor=GREY)
    axes.tick_params(axis="x", color=GREY, labelcolor=GREY)
    axes.set_xlabel("step", color=GREY, loc="right")
    title = f"Loss of {names[0]}" if len(names) == 1 else "Loss"
    more = "" if len(names) == 1 else " · at the right: the best validation loss"
    axes.set_title(title, loc="left", color=INK, fontsize=13, fontweight="bold", pad=22, parse_math=False)
    axes.text(0, 1.03, f"points: validation · thin line: training{more}", transform=axes.transAxes, color=GREY,
              fontsize=9)


def _label(axes: Axes, labels: Sequence[Label], *, gap: float) -> None:
    """At the right, as high as its curve ends, or as near as the others leave room."""
    axes.autoscale_view()
    inside = axes.transAxes.inverted()
    ends = [float(inside.transform(axes.transData.transform((label.step, label.loss)))[1]) for label in labels]
    for label, height in zip(labels, spread(ends, gap), strict=True):
        axes.annotate(
            label.text, (label.step, label.loss), (1.03, height), textcoords="axes fraction", color=label.colour,
            verticalalignment="center", parse_math=False, annotation_clip=False,
            # Dotted: beside a run that ended early it is long, and must not be taken for a curve.
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.8, "linestyle": ":",
                        "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 4})


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, moved as little as can be so that they stand a gap apart and, if they fit, between 0 and 1.

    Without the gaps below each, it is the nearest order that never falls: neighbours that would cross share their mean.

    >>> [round(height, 2) for height in spread([0.5, 0.5, 0.98], 0.1)]
    [0.45, 0.55, 0.98]
    >>> [round(height, 2) for height in spread([1.0, 0.99, 0.2], 0.1)]
    [1.0, 0.9, 0.2]
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    groups: list[list[float]] = []
    for rank, place in enumerate(order):
        groups.append([heights[place] - rank * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    room = max(0.0, 1 - gap * (len(heights) - 1))
    moved = [min(max(fmean(group), 0.0), room) for group in groups for _ in group]
    placed = {place: moved[rank] + rank * gap for rank, place in enumerate(order)}
    return [placed[place] for place in range(len(heights))]
