"""Which words of two sentences belong together, read off the attention, and how far that is from the truth."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from regard.data.dataset import Links
from regard.look.axes import AxisPair
from regard.look.record import Record
from regard.look.wordpieces import words

__all__ = ["MEAN", "HeadOfSite", "best", "by_word", "error_rate", "error_rates", "links", "mutual"]

HeadOfSite = tuple[str, int]
"""A site and the number of its head; `MEAN` stands for the average of the site's heads."""

MEAN = -1


def by_word(weights: Float[np.ndarray, "heads targets sources"],
            axes: AxisPair) -> Float[np.ndarray, "heads target_words source_words"]:
    """How much each target word takes of each source word.

    The weights to the pieces of a source word are summed; those of a target word's pieces are averaged, so that
    all words count the same. `</s>` is not a word: its weight is left out.
    """
    to, of = _members(axes.targets), _members(axes.sources)
    to /= to.sum(-1, keepdims=True)
    return to @ weights @ of.T  # type: ignore[no-any-return]


def _members(pieces: Sequence[str]) -> Float[np.ndarray, "words pieces"]:
    found = words(pieces)
    members = np.zeros((len(found), len(pieces)))
    for word, places in zip(members, found, strict=True):
        word[places] = 1
    return members


def links(weights: Float[np.ndarray, "targets sources"]) -> Links:
    """Each target word with the source word that it takes the most of.

    >>> sorted(links(np.array([[0.9, 0.1], [0.6, 0.4]])))
    [(0, 0), (0, 1)]
    """
    return frozenset(zip(weights.argmax(1).tolist(), range(len(weights)), strict=True)) if weights.size else Links()


def mutual(weights: Float[np.ndarray, "targets sources"]) -> Links:
    """Only those links that the source word would choose, too: fewer and surer ones.

    >>> sorted(mutual(np.array([[0.9, 0.1], [0.6, 0.4]])))
    [(0, 0)]
    """
    return links(weights) & frozenset((source, target) for target, source in links(weights.T))


def error_rate(found: Sequence[Links], gold: Sequence[Links]) -> float:
    """1 − 2|A∩G| / (|A| + |G|) over all sentences: Och and Ney 2003, eq. 21, every gold link being sure."""
    right = sum(len(a & g) for a, g in zip(found, gold, strict=True))
    total = sum(map(len, found)) + sum(map(len, gold))
    return 1 - 2 * right / total if total else 0.0


def error_rates(records: Sequence[Record], gold: Sequence[Links], *,
                link: Callable[[Float[np.ndarray, "targets sources"]], Links] = links) -> dict[HeadOfSite, float]:
    """The error rate of every head, and of each site's average, wherever a target looks at a source."""
    found: dict[HeadOfSite, list[Links]] = {}
    for record in records:
        for site in cross_sites(record):
            heads = by_word(record[site], record.axes[site])
            for number, weights in zip((*record.heads[site], MEAN), (*heads, heads.mean(0)), strict=True):
                found.setdefault((site, number), []).append(link(weights))
    return {head: error_rate(its, gold) for head, its in found.items()}


def cross_sites(record: Record) -> list[str]:
    return [site for site in record if site.endswith("cross")]


def best(rates: Mapping[HeadOfSite, float]) -> tuple[HeadOfSite, HeadOfSite]:
    """The head, and the site by the average of its heads, that err the least."""
    single = [head for head in rates if head[1] != MEAN]
    means = [head for head in rates if head[1] == MEAN]
    return min(single, key=rates.__getitem__), min(means, key=rates.__getitem__)
