"""Plots of models that read patches: how far each head looks by depth, and which positions are similar."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from regard.look.axes import grid_parts
from regard.look.heatmap import SIGNED
from regard.look.measure import MEASURES, by_head
from regard.look.plots.loss_curves import COLOURS, FAINT, GREY, INK
from regard.look.record import Record
from regard.look.rollout import stacks
from regard.models.inputs import PatchInputs
from regard.nn.positions import PositionTable
from regard.settings.errors import UserError

__all__ = ["attention_distance", "position_similarity", "similarity"]

HEADROOM = 1.12  # of the highest point


def attention_distance(records: Sequence[Record], *, patch: int = 1) -> Figure:
    """The mean distance from a patch to where it looks, for each head and layer (Dosovitskiy et al. 2021, figure 7).

    `patch` is the side of a patch in pixels; without it, distances are in patches.
    """
    own = [record.only([site for site, axes in record.axes.items()
                        if axes.targets == axes.sources and grid_parts(axes.sources)]) for record in records]
    found = by_head(own, MEASURES["distance"])
    layers = [(number, site) for stack in stacks(list(dict.fromkeys(site for site, _ in found))).values()
              for number, site in sorted(stack.items())]
    if not layers:
        raise UserError("the records hold no attention of patches to each other")
    figure = _figure(6.4, 4)
    axes = figure.add_subplot()
    every = [[patch * value for (where, _), value in found.items() if where == site] for _, site in layers]
    for (number, _), heads in zip(layers, every, strict=True):
        axes.plot([number] * len(heads), heads, "o", color=COLOURS[0], markersize=5, alpha=0.55, markeredgewidth=0)
    means = [float(np.mean(heads)) for heads in every]
    axes.plot([number for number, _ in layers], means, color=COLOURS[1], linewidth=1.6)
    axes.set_ylim(0, HEADROOM * max(max(heads) for heads in every))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=GREY)
    axes.set_xlabel("layer", color=GREY, loc="right")
    axes.set_title("How far heads look", loc="left", color=INK, fontsize=13, fontweight="bold", pad=22)
    axes.text(0, 1.03, f"mean distance of attention in {'patches' if patch == 1 else 'pixels'} · dots: heads · "
              "line: mean of a layer", transform=axes.transAxes, color=GREY, fontsize=9)
    return figure


def position_similarity(inputs: PatchInputs) -> Figure:
    """For each patch a small map: how similar its position's vector is to those of all patches (figure 7, middle)."""
    height, width = inputs.grid
    cosines = similarity(inputs).reshape(height, width, height, width)
    whole = np.full((height * (height + 1) - 1, width * (width + 1) - 1), np.nan)
    for row, column in np.ndindex(height, width):
        top, left = row * (height + 1), column * (width + 1)
        whole[top : top + height, left : left + width] = cosines[row, column]
    figure = _figure(6.2, 1 + 5.2 * height / width)
    axes = figure.add_subplot()
    drawn = axes.imshow(whole, cmap=SIGNED, norm=Normalize(-1, 1), interpolation="nearest")
    axes.set_xticks([(width + 1) * column + (width - 1) / 2 for column in range(width)], [*map(str, range(width))])
    axes.set_yticks([(height + 1) * row + (height - 1) / 2 for row in range(height)], [*map(str, range(height))])
    axes.tick_params(length=0, labelcolor=GREY, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("column of the patch", color=GREY, loc="right")
    axes.set_ylabel("row of the patch", color=GREY, loc="top")
    axes.set_title("Which positions are similar", loc="left", color=INK, fontsize=13, fontweight="bold")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, aspect=30)
    bar.set_label("cosine", color=GREY)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=GREY)
    return figure


@torch.no_grad()
def similarity(inputs: PatchInputs) -> Float[np.ndarray, "patches patches"]:
    """The cosines of the vectors of the patches' positions."""
    table, layout = inputs.positions, inputs.layout
    if not isinstance(table, PositionTable):
        raise UserError("the positions of this model have no vectors; they have with model.positions=learned or "
                        "sinusoidal")
    device = next(inputs.parameters()).device
    vectors = table.vectors(torch.arange(layout.places, device=device)[None])[0, layout.before :].float()
    return np.asarray(torch.cosine_similarity(vectors[:, None], vectors, dim=-1).cpu().numpy())


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15), facecolor="white")
