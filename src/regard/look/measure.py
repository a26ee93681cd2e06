"""Numbers about attention: how spread out it is, how far it reaches, where it points, how it moves a word."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.data.dataset import Box, Regions
from regard.data.tokenizer import Tokenizer
from regard.look.alignment import MEAN, HeadOfSite
from regard.look.axes import AxisPair, Grid, GridPart, grid_parts, word_places
from regard.look.record import Record
from regard.look.thread_hooks import in_this_thread
from regard.look.wordpieces import words
from regard.settings.errors import UserError

__all__ = ["MEASURES", "by_head", "distance", "entropy", "first", "moved", "patch_distance", "pointing", "points_at"]

Measure = Callable[[Float[np.ndarray, "*heads targets sources"], AxisPair], Float[np.ndarray, "*heads rows"]]
"""A number for each row. Some measures leave rows out."""


def entropy(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """In bits: 0 where all goes to one token, log₂ n where it is spread evenly over n.

    >>> entropy(np.array([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]))
    array([0., 2.])
    """
    logarithms = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(0.0 - (weights * logarithms).sum(-1))


def distance(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """How many places away the weight lies on average; between two sentences, how far from the diagonal."""
    targets, sources = weights.shape[-2:]
    return np.asarray((weights * np.abs(np.arange(targets)[:, None] - np.arange(sources))).sum(-1))


def patch_distance(weights: Float[np.ndarray, "*heads patches others"],
                   grid: Grid) -> Float[np.ndarray, "*heads patches"]:
    """How many patches away the weight of each patch lies on average (Dosovitskiy et al. 2021, D.7, figure 7).

    `weights` are those of the patches to each other; they need not sum to 1, as a class token has some, too.

    >>> patch_distance(np.eye(4)[::-1], Grid(2, 2)).round(2).tolist()
    [1.41, 1.41, 1.41, 1.41]
    """
    cells = np.stack(np.divmod(np.arange(grid.height * grid.width), grid.width), -1)
    apart = np.linalg.norm(cells[:, None] - cells, axis=-1)
    total = weights.sum(-1)
    return np.asarray((weights * apart).sum(-1) / np.where(total > 0, total, 1))


def first(weights: Float[np.ndarray, "*heads targets sources"]) -> Float[np.ndarray, "*heads targets"]:
    """The share of the first token, where heads look that find nothing (Xiao et al. 2024)."""
    return weights[..., 0]


def _distance(weights: Float[np.ndarray, "*heads targets sources"],
              axes: AxisPair) -> Float[np.ndarray, "*heads rows"]:
    """Between patches of a picture in patches, else in places. From a word to a picture there is none."""
    if not grid_parts(axes.targets) and not grid_parts(axes.sources):
        return distance(weights)
    parts = grid_parts(axes.targets) if axes.targets == axes.sources else ()
    own = [patch_distance(weights[..., patches, patches], grid) for grid, patches in parts]
    return np.concatenate([weights[..., :0, 0], *own], axis=-1)


MEASURES: dict[str, Measure] = {
    "entropy": lambda weights, axes: entropy(weights), "distance": _distance,
    "first": lambda weights, axes: first(weights)}


def by_head(records: Sequence[Record], measure: Measure) -> dict[HeadOfSite, float]:
    """The mean of a measure over all rows of all records, for each site and head; those without a row are left out."""
    rows: dict[HeadOfSite, list[np.ndarray]] = {}
    for record in records:
        for site, weights in record.items():
            for number, row in zip(record.heads[site], measure(weights, record.axes[site]), strict=True):
                rows.setdefault((site, number), []).append(row)
    return {head: float(np.concatenate(its).mean()) for head, its in rows.items() if sum(map(len, its))}


def pointing(records: Sequence[Record], gold: Sequence[Regions],
             answers: Sequence[Callable[[int], Sequence[int]]]) -> dict[HeadOfSite, float]:
    """The share of words that point at their region, for every head and each site's average: the pointing game.

    Only words with a region count. `answers` say which rows, of how many, belong to the answer. Sites where these are
    patches, or that see no picture, are left out.
    """
    found: dict[HeadOfSite, list[np.ndarray]] = {}
    for record, regions, rows in zip(records, gold, answers, strict=True):
        for site, weights in record.items():
            axes = record.axes[site]
            answer = rows(len(axes.targets))
            if (seen := _picture_seen_by(axes, answer)) is None or not (named := _words(axes, answer)):
                continue
            maps = np.stack([weights[:, its, seen.patches].mean(1) for its in named], 1)
            for number, each in zip((*record.heads[site], MEAN), (*maps, maps.mean(0)), strict=True):
                found.setdefault((site, number), []).append(points_at(each, seen.grid, regions))
    return {head: float(np.concatenate(its).mean()) for head, its in found.items() if sum(map(len, its))}


def _picture_seen_by(axes: AxisPair, answer: Sequence[int]) -> GridPart | None:
    """The picture that the rows of an answer look at, if they are words and there is one."""
    pictures = grid_parts(axes.sources)
    return pictures[-1] if pictures and {*answer} <= {*word_places(axes.targets)} else None


def _words(axes: AxisPair, answer: Sequence[int]) -> list[list[int]]:
    """The rows of each word of an answer."""
    return [[answer[piece] for piece in pieces] for pieces in words([axes.targets[row] for row in answer])]


def points_at(weights: Float[np.ndarray, "words patches"], grid: Grid,
              regions: Regions) -> Bool[np.ndarray, " pointing"]:
    """Whether the strongest patch of each word that has a region lies on it (the pointing game; Zhang et al. 2016).

    >>> points_at(np.array([[0.1, 0.9], [0.8, 0.2]]), Grid(1, 2), {0: [Box(0, 0.5, 1, 1)], 1: [Box(0, 0.5, 1, 1)]})
    array([ True, False])
    """
    height, width = grid.height, grid.width
    wanted = [word for word in sorted(regions) if word < len(weights)]
    strongest = [divmod(int(weights[word].argmax()), width) for word in wanted]
    return np.array([any(_is_on(row / height, column / width, 1 / height, 1 / width, box) for box in regions[word])
                     for word, (row, column) in zip(wanted, strongest, strict=True)], dtype=bool)


def _is_on(top: float, left: float, height: float, width: float, box: Box) -> bool:
    """Whether a patch's centre lies in the box, or the box's centre in the patch: a box may be smaller than a patch."""
    x, y = left + width / 2, top + height / 2
    middle_x, middle_y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    return (box.top <= y <= box.bottom and box.left <= x <= box.right) or (
        top <= middle_y <= top + height and left <= middle_x <= left + width)


@torch.no_grad()
def moved(tower: nn.Module, tokens: Tokenizer, word: str, one: str, other: str) -> list[float]:
    """The similarity of a word's vectors in two texts: their cosine on entering the tower, and after each block.

    A word that means what its neighbours make of it, as "bank" beside "river" or "street", begins near 1 and moves
    away. The tower is an encoder or a decoder; a word in several pieces is their mean.
    """
    pairs = zip(_states(tower, tokens, word, one), _states(tower, tokens, word, other), strict=True)
    return [float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs]


def _states(tower: nn.Module, tokens: Tokenizer, word: str, text: str) -> list[Float[Tensor, " width"]]:
    if word not in text.split():
        raise UserError(f"{word}: no word of {text!r}")
    [ids] = tokens.encode([text])
    pieces = words(tokens.pieces(ids))[text.split().index(word)]
    found: list[Tensor] = []
    blocks: Sequence[nn.Module] = tower.blocks  # type: ignore[assignment]
    keep = in_this_thread(lambda block, inputs, output: found.append(output))
    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        device = next(tower.parameters()).device
        found.append(tower.embed(torch.tensor([[*ids, tokens.end]], device=device)))  # type: ignore[operator]
        tower(found[0])
    finally:
        for hook in hooks:
            hook.remove()
    return [states[0, pieces].float().mean(0) for states in found]
