"""Draws attention pooling: what three widths make of the same points, and the attention matrix of each.

    python docs/pictures/pooling.py
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from regard import NadarayaWatsonRegressor
from regard.look.heatmap import COLOURS, GREY, INK, save

FILE = Path(__file__).with_suffix(".png")
POINTS, QUERIES, NOISE, END = 50, 200, 0.35, 5.0
TICKS = [0, 0.01, 0.05, 0.2, 0.5, 1]
SEEN, SAID, TRUTH = "#6B6B6B", "#0072B2", "#D55E00"


def truth(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(x) + x**0.8


def curve(axes: Axes, model: NadarayaWatsonRegressor, x: np.ndarray, y: np.ndarray, title: str) -> None:
    asked = np.linspace(0, END, 500)
    axes.plot(asked, truth(asked), color=TRUTH, linewidth=1.2, linestyle=(0, (4, 2)), label="truth")
    axes.scatter(x, y, s=13, color=SEEN, alpha=0.8, linewidth=0, label="training points")
    axes.plot(asked, model.predict(asked[:, None]), color=SAID, linewidth=2.0, label="prediction")
    axes.set_title(f"{title}: σ = {model.width_:.2f}", loc="left", color=INK, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(0, END)


def matrix(axes: Axes, model: NadarayaWatsonRegressor, x: np.ndarray) -> object:
    """A row for each query, a column for each training point, both in the order of x.

    The scale goes by the root: fifty weights that are spread out would be white beside a single one.
    """
    asked = np.linspace(0, END, QUERIES)
    image = axes.imshow(model.weights(asked[:, None]), cmap=COLOURS, norm=PowerNorm(0.5, 0, 1), aspect="auto",
                        interpolation="nearest", extent=(0, len(x), END, 0))
    axes.set_xlabel("training point (key)", color=GREY)
    return image


def picture() -> Figure:
    draw = np.random.default_rng(1)
    x = np.sort(draw.uniform(0, END, POINTS))
    y = truth(x) + draw.normal(0, NOISE, POINTS)
    chosen = NadarayaWatsonRegressor().fit(x[:, None], y)
    widths = {"too narrow": chosen.width_ / 6, "by leave-one-out": chosen.width_, "too wide": chosen.width_ * 6}
    figure = Figure(figsize=(11, 6.4), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08), facecolor="white")
    above, below = figure.subplots(2, 3, sharey="row")
    for fit, weights, (title, width) in zip(above, below, widths.items(), strict=True):
        model = NadarayaWatsonRegressor(width=width).fit(x[:, None], y)
        curve(fit, model, x, y, title)
        fit.set_xlabel("x", color=GREY)
        image = matrix(weights, model, x)
    above[0].legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower center")
    above[0].set_ylabel("y", color=GREY)
    below[0].set_ylabel("x asked for (query)", color=GREY)
    for axes in (*above, *below):
        axes.tick_params(color=GREY, labelcolor=GREY, labelsize=8)
        axes.spines[:].set_color(GREY)
        axes.spines[:].set_linewidth(0.5)
    bar = figure.colorbar(image, ax=below, aspect=20, pad=0.01, ticks=TICKS, format="%g")
    bar.set_label("weight", color=GREY)
    bar.ax.tick_params(color=GREY, labelcolor=GREY, labelsize=8)
    bar.outline.set_linewidth(0.5)
    return figure


if __name__ == "__main__":
    save(picture(), FILE)
