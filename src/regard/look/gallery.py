"""The gallery of mistakes: one HTML file that needs no network, each mistake with its attention beside it."""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

import numpy as np
from jaxtyping import Float

from regard.look.record import Labels

__all__ = ["Mistake", "page", "spread"]

CELL = 18  # pixels of a weight
LETTER = 7.4  # pixels that a letter of a label takes, about
SLANT = 60  # degrees at which the columns' labels stand
FAINT = 0.02  # a weight below this would not be seen, and is left out: a row has fifty others at the most


@dataclass(frozen=True)
class Mistake:
    """An answer that is not its reference."""

    source: str
    reference: str
    answer: str
    loss: float
    """Of the reference, per token."""
    length: int
    """Tokens of the source."""
    labels: Labels
    weights: Float[np.ndarray, "targets sources"]
    """Where the model looked while it gave its own answer."""

    @property
    def spread(self) -> float:
        return spread(self.weights)


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
    policy = (f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; "
              "base-uri 'none'; form-action 'none'")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(summary)}</p>
<p class="sort">Sort by
<button type="button" data-by="loss" aria-pressed="true">loss</button>
<button type="button" data-by="length" aria-pressed="false">length</button>
<button type="button" data-by="spread" aria-pressed="false">how diffuse the attention was</button></p>
</header>
<main>
{"".join(map(_card, ordered))}</main>
<footer>Loss: −log of the reference's probability, per token. Spread: over how many source tokens the attention to the
source goes while a token of the answer is written (e to its entropy; mean over layers and heads).</footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _card(mistake: Mistake) -> str:
    reference, answer = _compared(mistake.reference, mistake.answer)
    keys = f'data-loss="{mistake.loss:.6f}" data-length="{mistake.length}" data-spread="{mistake.spread:.6f}"'
    return f"""<article {keys}>
<div>
<dl>
<dt>source</dt><dd dir="auto">{escape(mistake.source)}</dd>
<dt>reference</dt><dd dir="auto">{reference}</dd>
<dt>answer</dt><dd dir="auto">{answer}</dd>
</dl>
<p class="figures"><b>{mistake.loss:.2f}</b> loss <b>{mistake.length}</b> tokens <b>{mistake.spread:.1f}</b> spread</p>
</div>
<figure tabindex="0" aria-label="attention, from the answer's tokens to the source's">{_map(mistake)}</figure>
</article>
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
                        for place, word in enumerate(words))

    return marked(one, shared[0]), marked(other, shared[1]) or "<i>nothing</i>"


def _map(mistake: Mistake) -> str:
    """A heat map as SVG. A weight is the opacity of its cell, as an attribute: inline styles are forbidden here."""
    targets, sources = ([word.strip() or word for word in words] for words in (
        mistake.labels.targets, mistake.labels.sources))
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
        for column in np.flatnonzero(mistake.weights[row] >= FAINT).tolist():
            weight = float(mistake.weights[row, column])
            parts.append(f'<rect x="{left + CELL * column:.0f}" y="{y:.0f}" width="{CELL}" height="{CELL}" '
                         f'fill-opacity="{weight:.2f}"><title>{escape(word)} ← {escape(sources[column])} '
                         f'{weight:.2f}</title></rect>')
    return "".join([*parts, "</svg>"])


def _hash(content: str) -> str:
    """As a policy names what it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


STYLE = """
:root { color-scheme: light dark;
  --heat: #1f5fa8; --ground: #eef1f5; --line: #d8dde4; --mark: #ffe2a8; --quiet: #5d6672 }
@media (prefers-color-scheme: dark) {
  :root { --heat: #8ec5ff; --ground: #1d232b; --line: #333b46; --mark: #6b4e00; --quiet: #9aa5b1 }
}
body { font: 16px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 }
header p { margin: .4rem 0 }
.figures, dt, footer { color: var(--quiet) }
button { font: inherit; padding: .15rem .7rem; border: 1px solid var(--line); border-radius: 1rem; background: none;
  color: inherit; cursor: pointer }
button[aria-pressed=true] { background: var(--heat); border-color: var(--heat); color: Canvas }
article { display: grid; grid-template-columns: 34rem minmax(0, 1fr); gap: 1rem 2rem;
  align-items: center; border-top: 1px solid var(--line); padding: 1.2rem 0 }
@media (max-width: 60rem) { article { grid-template-columns: minmax(0, 1fr) } }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: 0 }
dd { margin: 0; overflow-wrap: anywhere }
mark { background: var(--mark); color: inherit; border-radius: .2rem; padding: 0 .15rem }
.figures { margin: .8rem 0 0; font-size: .9rem; word-spacing: .1rem }
.figures b { color: CanvasText; font-weight: 600 }
.figures b:not(:first-child) { margin-left: .9rem }
figure { margin: 0; overflow: auto; max-height: 32rem }
svg { display: block; font: 12px system-ui, sans-serif; fill: currentColor }
svg rect { fill: var(--heat) }
svg rect.ground { fill: var(--ground) }
svg .row { text-anchor: end }
footer { border-top: 1px solid var(--line); padding: 1rem 0; font-size: .85rem }
"""

SCRIPT = """
const list = document.querySelector("main"), buttons = document.querySelectorAll("button");
for (const button of buttons) {
  button.addEventListener("click", () => {
    const by = button.dataset.by;
    list.append(...[...list.children].sort((a, b) => b.dataset[by] - a.dataset[by]));
    for (const each of buttons) each.setAttribute("aria-pressed", each === button);
  });
}
"""
