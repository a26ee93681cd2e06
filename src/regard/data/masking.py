"""Masking: choose the tokens of a text to hide, and their replacements, for the model to predict."""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.data.batch import IGNORED
from regard.data.tokenizer import Tokenizer
from regard.data.whole_words import WordBoundaries
from regard.settings.schema import Masking

__all__ = ["NOISE", "Hidden", "MaskingPolicy"]

NOISE = 3  # random numbers for each token: whether it is predicted, how it is hidden, and which token replaces it


class Hidden(NamedTuple):
    """Rows with blanks, the places to predict, and their targets. Rows with fewer places have IGNORED."""

    tokens: Int[np.ndarray, "rows length"]
    places: Int[np.ndarray, "rows asked"]
    targets: Int[np.ndarray, "rows asked"]


@dataclass(frozen=True)
class MaskingPolicy:
    """Hides tokens as BERT does (Devlin et al. 2019, 3.1 and A.1)."""

    how: Masking
    words: WordBoundaries
    mask: int
    special: Bool[np.ndarray, " vocabulary"]
    """The ids that are never predicted, and never replace another one."""
    ordinary: Int[np.ndarray, " ids"]
    """All others."""

    @classmethod
    def of(cls, how: Masking, tokens: Tokenizer) -> "MaskingPolicy":
        assert tokens.mask is not None
        words, special = WordBoundaries(tokens), np.zeros(len(tokens), dtype=bool)
        special[list(words.special)] = True
        return cls(how, words, tokens.mask, special, np.flatnonzero(~special))

    def most(self, length: int) -> int:
        """Number of places of a row with this many tokens, used or not: the same for all rows of a shape."""
        return int(_counts(self.how.rate, np.array([length - 2]))[0])  # its start and its end are never predicted

    def hide(self, rows: Int[np.ndarray, "rows length"], noise: Float[np.ndarray, "rows noise length"]) -> Hidden:
        """The hidden tokens of a row depend only on the row's own noise, uniform between 0 and 1."""
        which, fate, other = noise[:, 0], noise[:, 1], noise[:, 2]
        places, counts = self._chosen(rows, which)
        asked = np.arange(places.shape[1]) < counts[:, None]
        places = np.where(asked, places, 0)  # the first token, which stays as it is
        stood, chance, lot = (np.take_along_axis(each, places, 1) for each in (rows, fate, other))
        any_token = self.ordinary[(lot * len(self.ordinary)).astype(np.int64)]
        new = np.where(chance < self.how.mask_share, self.mask,
                       np.where(chance < self.how.mask_share + self.how.random_share, any_token, stood))
        hidden = rows.copy()
        np.put_along_axis(hidden, places, np.where(asked, new, stood), 1)
        return Hidden(hidden, places, np.where(asked, stood, IGNORED))

    def _chosen(self, rows: Int[np.ndarray, "rows length"], which: Float[np.ndarray, "rows length"],
                ) -> tuple[Int[np.ndarray, "rows asked"], Int[np.ndarray, " rows"]]:
        """Places of each row, ordered by noise, and the number of them to predict."""
        real, most = ~self.special[rows], self.most(rows.shape[1])
        counts = _counts(self.how.rate, real.sum(1))
        if not self.how.whole_words:
            return np.where(real, which, np.inf).argsort(1, kind="stable")[:, :most], counts
        starts = np.where(self.words.starts(rows), np.arange(rows.shape[1]), 0)
        first = np.maximum.accumulate(starts, axis=1)  # of each token's word, whose noise is that of all its tokens
        order = np.where(real, np.take_along_axis(which, first, 1), np.inf).argsort(1, kind="stable")
        chosen = [_whole_words(order[row, :size], first[row], count)
                  for row, (size, count) in enumerate(zip(real.sum(1).tolist(), counts.tolist(), strict=True))]
        places = np.array([[*some, *[0] * (most - len(some))] for some in chosen], dtype=np.int64)
        return places.reshape(len(rows), most), np.array(list(map(len, chosen)), dtype=np.int64)


def _counts(share: float, tokens: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """The number of tokens to predict: at least one if the text has any."""
    return np.clip(np.rint(share * tokens).astype(np.int64), np.minimum(1, tokens), tokens)


def _whole_words(order: Int[np.ndarray, " real"], first: Int[np.ndarray, " length"], count: int) -> list[int]:
    """At most `count` places, word by word; a word that does not fit is left out.

    If not even the first word fits, as in text without spaces, a part of it is taken.
    """
    chosen = list[int]()
    for _, word in groupby(order.tolist(), key=lambda place: first[place]):
        places = list(word)
        if len(chosen) + len(places) <= count:
            chosen += places
    return chosen or order[:count].tolist()
