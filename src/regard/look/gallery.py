"""The gallery of mistakes: one HTML file that needs no network, each mistake with its attention, if any, beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

import numpy as np
from jaxtyping import Float

from regard.look.axes import AxisPair, grid_parts, unit, word_places
from regard.look.document import document
from regard.look.record import Record

__all__ = ["AnswerWeights", "Mistake", "page", "spread"]

CELL = 18  # pixels of a weight
LETTER = 7.4  # pixels that a letter of a label takes, about
SLANT = 60  # degrees of the columns' labels
ALL_PATCHES = " all patches"
FAINT = 0.02  # smaller weights would be invisible and are left out: a row has at most fifty others


@dataclass(frozen=True)
class AnswerWeights:
    """Where a model looked while it gave its own answer."""

    axes: AxisPair
    weights: Float[np.ndarray, "targets sources"]

    @staticmethod
    def of_rows(rows: Sequence[int], axes: AxisPair, weights: Float[np.ndarray, "targets sources"]) -> "AnswerWeights":
        """Of the rows that an answer was read from. Of patches it is the mean."""
        words = {*word_places(axes.targets)}
        named = [row for row in rows if row in words]
        if not named:
            return AnswerWeights(AxisPair((ALL_PATCHES,), axes.sources), weights[list(rows)].mean(0, keepdims=True))
        return AnswerWeights(AxisPair(tuple(axes.targets[row] for row in named), axes.sources), weights[named])


@dataclass(frozen=True)
class Mistake:
    """An answer that is not its reference."""

    source: str
    reference: str
    answer: str
    loss: float
    """Of the reference, per token."""
    length: int | None
    """Places of the source, such as tokens; the words of a text, where the model has no attention."""
    attention: AnswerWeights | None
    picture: str | None = None
    """The source as an image, as a data URL."""

    @property
    def spread(self) -> float | None:
        return None if self.attention is None else spread(self.attention.weights)


def spread(weights: Float[np.ndarray, "targets sources"]) -> float:
    """Over how many words attention is spread: e to the mean of its rows' entropies.

    >>> spread(np.array([[1.0, 0.0, 0.0]])), round(spread(np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])), 6)
    (1.0, 2.0)
    """
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(np.exp(-(weights * logs).sum(-1).mean()))


def page(mistakes: Sequence[Mistake], *, title: str, summary: str) -> str:
    """All of it, the highest loss first."""
    ordered = sorted(mistakes, key=lambda mistake: -mistake.loss)
    return document("gallery", script="gallery", style="gallery", title=title, summary=escape(summary),
                    pictures=any(map(_has_picture, mistakes)),
                    cards="".join(map(_card, ordered)))


def _has_picture(mistake: Mistake) -> bool:
    seen = mistake.attention
    return mistake.picture is not None or (seen is not None and bool(grid_parts(seen.axes.sources)))


def _card(mistake: Mistake) -> str:
    reference, answer = _compared(mistake.reference, mistake.answer)
    keys = f'data-loss="{mistake.loss:.6f}" data-length="{mistake.length or 0}" data-spread="{mistake.spread or 0:.6f}"'
    length, figure = "" if mistake.length is None else f"<b>{mistake.length}</b> words", ""
    picture = "" if mistake.picture is None else f'<img class="picture" alt="" src="{escape(mistake.picture)}">\n'
    if mistake.attention is not None:
        length = f"<b>{mistake.length}</b> {unit(mistake.attention.axes.sources)} <b>{mistake.spread:.1f}</b> spread"
        figure = ('<figure tabindex="0" aria-label="attention, from the answer to the source">'
                  f"{(_maps if grid_parts(mistake.attention.axes.sources) else _map)(mistake.attention)}</figure>\n")
    return f"""<article {keys}>
<div>
{picture}<dl>
<dt>source</dt><dd dir="auto">{escape(mistake.source)}</dd>
<dt>reference</dt><dd dir="auto">{reference}</dd>
<dt>answer</dt><dd dir="auto">{answer}</dd>
</dl>
<p class="figures"><b>{mistake.loss:.2f}</b> loss {length}</p>
</div>
{figure}</article>
"""


def _compared(reference: str, answer: str) -> tuple[str, str]:
    """Both texts as HTML, with the words marked that the other one lacks.

    >>> _compared("the red car", "the <b> car")
    ('the <mark>red</mark> car', 'the <mark>&lt;b&gt;</mark> car')
    """
    one, other = reference.split(), answer.split()
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    shared = [{place for block in blocks for place in range(block[side], block[side] + block.size)} for side in (0, 1)]

    def marked(words: list[str], kept: set[int]) -> str:
        return " ".join(escape(word) if place in kept else f"<mark>{escape(word)}</mark>"
                        for place, word in enumerate(words)) or "<i>nothing</i>"

    return marked(one, shared[0]), marked(other, shared[1])


def _maps(seen: AnswerWeights) -> str:
    """A picture for each word, with the attention over it."""
    from regard.look.picture_maps import data_url, word_maps

    record = Record({"": seen.weights[None]}, {"": seen.axes}, {"": (0,)})
    return "".join(f'<div class="map"><img alt="" src="{data_url(image)}"><span>{escape(name)}</span></div>'
                   for name, image in word_maps(record, "").items())


def _map(seen: AnswerWeights) -> str:
    """A heat map as SVG. A weight is the opacity of its cell, as an attribute: inline styles are forbidden here."""
    targets, sources = ([word.strip() or word for word in words] for words in (
        seen.axes.targets, seen.axes.sources))
    angle = math.radians(SLANT)
    left = 8 + LETTER * max(map(len, targets))
    top = 14 + math.sin(angle) * LETTER * max(map(len, sources))
    right = left + max(CELL * (column + 1) + math.cos(angle) * LETTER * len(word)
                       for column, word in enumerate(sources))
    width, height = CELL * len(sources), CELL * len(targets)
    parts = [f'<svg role="img" aria-label="heat map" width="{right:.0f}" height="{top + height:.0f}">',
             f'<rect class="ground" x="{left:.0f}" y="{top:.0f}" width="{width}" height="{height}"/>']
    for column, word in enumerate(sources):
        x, y = left + CELL * (column + 0.7), top - 5
        parts.append(f'<text transform="translate({x:.0f} {y:.0f}) rotate(-{SLANT})">{escape(word)}</text>')
    for row, word in enumerate(targets):
        y = top + CELL * row
        parts.append(f'<text class="row" x="{left - 5:.0f}" y="{y + 0.7 * CELL:.0f}">{escape(word)}</text>')
        for column in np.flatnonzero(seen.weights[row] >= FAINT).tolist():
            weight = float(seen.weights[row, column])
            parts.append(f'<rect x="{left + CELL * column:.0f}" y="{y:.0f}" width="{CELL}" height="{CELL}" '
                         f'fill-opacity="{weight:.2f}"><title>{escape(word)} ← {escape(sources[column])} '
                         f'{weight:.2f}</title></rect>')
    return "".join([*parts, "</svg>"])
