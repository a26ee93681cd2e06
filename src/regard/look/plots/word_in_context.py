"""The picture of `regard explain --word`: how the vector of a word moves with its context."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from regard.look.plots.loss_curves import COLOURS, FAINT, GREY, INK, spread
from regard.look.word_in_context import Word

__all__ = ["picture"]

MAX_TEXT_CHARACTERS = 80  # characters of a text that fit into the key, however wide they are
MAX_TITLE_CHARACTERS = 24  # that fit into a title
NAMED = 16  # pairs of texts whose names fit beside their lines


def picture(word: Word) -> Figure:
    """Left: the similarity of the vectors after each block; right: the path of each vector."""
    height = 4.1 + 0.18 * len(word.texts)  # inches; each has a line in the key
    figure = Figure(figsize=(10, height), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1), facecolor="white")
    left, right = figure.subplots(1, 2)
    _cosines(left, word)
    _ways(right, word)
    # Below both: a legend of one axes would make all axes narrower, and a title would overlap.
    key = figure.legend(loc="outside lower left", frameon=False, fontsize=8, labelcolor=INK)
    for text in key.get_texts():
        text.set_parse_math(False)  # a text may speak of money
    return figure


def _cosines(axes: Axes, word: Word) -> None:
    values, layers = word.cosines, range(word.states.shape[1])
    least = min(0.0, float(values.min()))
    thin = len(word.pairs) > NAMED
    for first, second in word.pairs:  # of one colour: those to the right are the texts'
        axes.plot(layers, values[:, first, second], color=GREY if thin else INK, marker="o", clip_on=False,
                  markersize=2 if thin else 4, linewidth=0.7 if thin else 1.4)
    # Of many the likest and the unlikest are named; the table has all.
    pairs = sorted(word.pairs, key=lambda pair: float(values[-1][pair]))
    pairs = pairs if len(pairs) <= NAMED else pairs[: NAMED // 2] + pairs[-NAMED // 2 :]
    ends = [float(values[-1][pair]) for pair in pairs]
    heights = spread([(end - least) / (1 - least) for end in ends], 0.05)
    for (first, second), end, height in zip(pairs, ends, heights, strict=True):
        axes.annotate(f"{first + 1} and {second + 1}  {end:.2f}", (layers[-1], end), (1.03, height),
                      textcoords="axes fraction", color=INK, fontsize=9, verticalalignment="center",
                      annotation_clip=False)
    axes.set_ylim(least, 1.0)
    axes.set_xlim(0, layers[-1])
    axes.set_title(f"“{_cut(word.word, MAX_TITLE_CHARACTERS)}”: cosine of its vectors", loc="left", color=INK,
                   fontsize=10, parse_math=False)
    axes.set_xlabel("after block (0: as it enters the first)", color=GREY, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GREY, labelsize=8)


def _ways(axes: Axes, word: Word) -> None:
    for place, (text, way) in enumerate(zip(word.texts, word.plane, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        x, y = way.T
        axes.plot(x, y, color=colour, linewidth=1.4, alpha=0.7)
        axes.scatter(x, y, s=np.linspace(14, 60, len(way)), color=colour, zorder=3,
                     label=f"{place + 1}  {_cut(text, MAX_TEXT_CHARACTERS)}")
        # Numbers of ways that end at one place stand beside each other.
        beside = int((np.linalg.norm(word.plane[:place, -1] - way[-1], axis=1) < 0.05 * np.ptp(word.plane)).sum())
        axes.annotate(str(place + 1), way[-1], textcoords="offset points", xytext=(7 + 10 * beside, -3), color=colour,
                      fontsize=10, weight="bold")
    across, up = word.plane[:, 0].mean(0)
    axes.annotate("before the first block", (across, up), textcoords="offset points", xytext=(8, 8),
                  color=GREY, fontsize=8)
    axes.set_title("the way of its vector, a dot after each block", loc="left", color=INK, fontsize=10)
    axes.margins(0.12)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FAINT)


def _cut(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
