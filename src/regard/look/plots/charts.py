"""The pictures of `regard measure`: its table as heat maps, and the alignment's error over a training; and of
`regard eval`: which labels are taken for which, and with --shots the accuracy against the examples in the prompt."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from regard.data.few_shot import Shots
from regard.look.alignment import HeadOfSite
from regard.look.confusion import Confusion
from regard.look.heatmap import COLOURS as HEAT
from regard.look.plots.loss_curves import COLOURS, FAINT, GREY, INK, spread
from regard.settings.errors import count

__all__ = ["by_head", "by_shots", "over_training", "taken_for"]

TITLES = {"entropy": "entropy (bits)", "distance": "distance (tokens or patches)",
          "first": "share of the first token", "aer": "alignment error rate",
          "pointing": "words that point at their region", "loss": "change of the loss without it",
          "changed": "answers that change without it"}
ABSENT = "#F4F4F4"
DARK = 0.6  # of the scale: from here on figures are white
READABLE = 24  # labels: of more, the figures in the cells could not be read
LETTERS = 24  # of a label's name that are shown
MAX_CELLS_INCHES = 14  # inches of all cells


def by_head(heads: Mapping[HeadOfSite, Mapping[str, float]]) -> Figure:
    """A panel for each measure: a row for each site, a column for each head, the figure in the cell."""
    names = [name for name in TITLES if any(name in columns for columns in heads.values())]
    sites = list(dict.fromkeys(site for site, _ in heads))
    numbers = sorted({number for _, number in heads}, key=lambda number: (number < 0, number))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.8 + columns * (0.55 * len(numbers) + 0.4), rows * (0.3 * len(sites) + 0.8)),
                    layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08), facecolor="white")
    every = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(every.ravel().tolist()):
        if place >= len(names):
            axes.set_axis_off()
            continue
        values = np.array([[heads.get((site, number), {}).get(names[place], np.nan) for number in numbers]
                           for site in sites])
        _panel(axes, values, decimals={"changed": 0, "loss": 3}.get(names[place], 2))
        axes.set_title(TITLES[names[place]], loc="left", color=INK, fontsize=9)
        axes.set_xticks(range(len(numbers)), ["mean" if number < 0 else str(number) for number in numbers], fontsize=8)
        axes.set_yticks(range(len(sites)), sites if place % columns == 0 else [], fontsize=8)
        axes.tick_params(length=0, labelcolor=GREY)
    return figure


def _panel(axes: Axes, values: np.ndarray, *, decimals: int) -> None:
    most = float(np.nanmax(values)) or 1.0
    axes.imshow(values, cmap=HEAT, norm=Normalize(0, most), aspect="auto")
    axes.set_facecolor(ABSENT)
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            axes.text(column, row, f"{value:.{decimals}f}", ha="center", va="center", fontsize=7,
                      color="white" if value > DARK * most else INK)


def over_training(rates: Mapping[int, Mapping[HeadOfSite, float]], chosen: HeadOfSite) -> Figure:
    """The alignment error rate of each head (thin) and of each layer's average (thick), step by step."""
    figure = Figure(figsize=(8, 4.5), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
    axes = figure.add_subplot()
    last = list(rates.values())[-1]
    sites = list(dict.fromkeys(site for site, _ in last))
    ends = []
    for head in sorted(last, key=lambda head: head[1] < 0):  # the averages above the heads
        colour = COLOURS[sites.index(head[0]) % len(COLOURS)]
        name = head[0] if head[1] < 0 else f"{head[0]} head {head[1]}" if head == chosen else ""
        axes.plot(list(rates), [its[head] for its in rates.values()], color=colour, clip_on=False, marker=".",
                  markersize=4,
                  linewidth=2.2 if head[1] < 0 else 1.6 if head == chosen else 0.8,
                  linestyle="--" if head == chosen else "-", alpha=1 if name else 0.45)
        if name:
            ends.append((f"{name}  {last[head]:.3f}", colour, last[head]))
    axes.set_xlim(0, max(rates))
    axes.set_ylim(0, 1)
    for (text, colour, rate), height in zip(ends, spread([rate for *_, rate in ends], 0.055), strict=True):
        axes.annotate(text, (max(rates), rate), (1.02, height), textcoords="axes fraction", color=colour, fontsize=9,
                      verticalalignment="center", parse_math=False, annotation_clip=False)
    _dress(axes)
    return figure


def _plain(axes: Axes) -> None:
    """A line below, faint ones across, and nothing else."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=GREY)
    axes.tick_params(axis="x", color=GREY, labelcolor=GREY)


def _dress(axes: Axes) -> None:
    _plain(axes)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set_xlabel("step", color=GREY, loc="right")
    axes.set_title("Alignment error rate of the cross-attention", loc="left", color=INK, fontsize=13,
                   fontweight="bold", pad=22)
    axes.text(0, 1.03, "thick: average of a layer's heads · thin: its heads · dashed: the best head on validation",
              transform=axes.transAxes, color=GREY, fontsize=9)


def by_shots(found: Sequence[Shots], most_common: float, *, title: str) -> Figure:
    """The accuracy for each number of examples in the prompt, with its standard error, above what is no skill."""
    figure = Figure(figsize=(6.4, 4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
    axes = figure.add_subplot()
    places = range(len(found))  # evenly spaced: 0, 1, 4, 8, 32 would crowd on a plain axis
    axes.axhline(most_common, color=GREY, linewidth=1.2, linestyle="--")
    axes.errorbar(places, [each.accuracy for each in found], [each.error for each in found], color=COLOURS[0],
                  linewidth=1.8, marker="o", markersize=5, capsize=3, elinewidth=1, clip_on=False)
    for place, each in zip(places, found, strict=True):
        axes.annotate(f"{each.accuracy:.2f}", (place, each.accuracy + each.error), (0, 5), textcoords="offset points",
                      ha="center", color=INK, fontsize=9)
    axes.annotate(f"always the\ncommonest label\n{most_common:.2f}", (1, most_common), (6, 0),
                  xycoords=("axes fraction", "data"), textcoords="offset points", va="center", color=GREY, fontsize=8,
                  annotation_clip=False)
    axes.set_xticks(places, [str(each.shots) for each in found])
    axes.set_xlim(-0.3, len(found) - 0.7)
    axes.set_ylim(0, 1)
    _plain(axes)
    axes.set_xlabel("labelled examples in the prompt", color=GREY, loc="right")
    axes.set_title("Accuracy against examples in the prompt", loc="left", color=INK, fontsize=13, fontweight="bold",
                   pad=22)
    axes.text(0, 1.03, f"{title} · {count(found[0].questions, 'text')} · bars: standard error",
              transform=axes.transAxes, color=GREY, fontsize=9, parse_math=False)
    return figure


def taken_for(confusion: Confusion, *, title: str) -> Figure:
    """A row for each label that texts have, a column for each they were given; the colour is the share of the row."""
    counts, names = confusion.counts, [_short(label) for label in confusion.labels]
    totals, longest = counts.sum(1), max(len(_short(label)) for label in confusion.labels)
    cell = min(0.46, MAX_CELLS_INCHES / len(names))
    size, letters = max(cell * len(names), 2.6), min(9, 50 * cell)
    figure = Figure(figsize=(max(size + 0.09 * longest + 1.6, 0.08 * len(title) + 3), size + 0.07 * longest + 1.4),
                    layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
    axes = figure.add_subplot()
    axes.imshow(counts / np.maximum(totals, 1)[:, None], cmap=HEAT, norm=Normalize(0, 1))
    if len(names) <= READABLE:
        for (row, column), number in np.ndenumerate(counts):
            if number:
                axes.text(column, row, f"{number:,}", ha="center", va="center", fontsize=7 if number > 9_999 else 8,
                          color="white" if number > DARK * totals[row] else INK)
    for row in np.flatnonzero(totals).tolist():
        axes.text(len(names) - 0.35, row, f"{counts[row, row] / totals[row]:.0%}", va="center", color=GREY,
                  fontsize=min(8, letters))
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=letters)
    axes.set_yticks(range(len(names)), names, fontsize=letters)
    axes.set_xticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.set_xlabel("given", color=GREY, loc="right")
    axes.set_ylabel("wanted", color=GREY, loc="top")
    # Not above the axes: there the names of the rows would push it to the right.
    figure.suptitle("Confusion matrix\n", x=0.02, ha="left", color=INK, fontsize=13, fontweight="bold")
    figure.text(0.02, 1 - 0.47 / figure.get_figheight(), f"{title} · {np.trace(counts):,} of {totals.sum():,} right · "
                "colour: share of the row", ha="left", va="center", color=GREY, fontsize=9, parse_math=False)
    return figure


def _short(label: str) -> str:
    return label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"
