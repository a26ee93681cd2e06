"""WordBoundaries: which tokens begin a word and which go on with it, and how a token is written into a text."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from regard.data.tokenizer import Tokenizer

__all__ = ["WordBoundaries"]

BYTE = re.compile(r"\\x[0-9a-f]{2}")  # how a tokenizer shows a part of a character
LETTERS = "LMN"  # Unicode's categories of letters, marks and numbers


class WordBoundaries:
    """The relation between a tokenizer's tokens and words.

    >>> from regard.data.tokenizer import train
    >>> tokens = train(["a dogged dog, a cat"] * 9, kind="bpe", vocabulary=270, mask=True)
    >>> [row] = tokens.encode(["a dogfight, a cat"])
    >>> tokens.pieces(row)
    [' a', ' dog', 'f', 'i', 'g', 'h', 't', ',', ' a', ' cat']
    >>> WordBoundaries(tokens).starts(np.array([row])).astype(int)
    array([[1, 1, 0, 0, 0, 0, 0, 1, 1, 1]])
    """

    def __init__(self, tokens: Tokenizer) -> None:
        self.tokens, self.special = tokens, tokens.special

    @cached_property
    def written(self) -> list[str]:
        """The text of each token, with the space before it: ` fried`, `ing`, `!`."""
        return self.tokens.texts()

    def text(self, ids: Sequence[int]) -> str:
        """The text of a word's tokens."""
        text = "".join(self.written[id] for id in ids)
        if not BYTE.search(text):
            return text
        return text[: len(text) - len(text.lstrip(" "))] + self.tokens.decode([list(ids)])[0].lstrip(" ")

    def id_of(self, text: str) -> int | None:
        """The token that adds this to a text."""
        return self._ids.get(text)

    def starts(self, rows: Int[np.ndarray, "rows length"]) -> Bool[np.ndarray, "rows length"]:
        """Where a word begins. Signs, and what is special, are words of their own."""
        goes_on, ends_open = self._ends
        before = np.pad(rows[:, :-1], ((0, 0), (1, 0)), constant_values=self.tokens.pad)
        begins: NDArray[np.bool_] = ~(goes_on[rows] & ends_open[before])
        return begins

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids = {text: id for id, text in reversed(list(enumerate(self.written)))}
        return {text: id for text, id in ids.items() if id not in self.special}

    @cached_property
    def _ends(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each token can go on with a word, and whether a word can go on after it, or after its space."""
        texts = ["" if id in self.special else text for id, text in enumerate(self.written)]
        begins = [bool(text) and (_is_letter(text[0]) or bool(BYTE.match(text))) for text in texts]
        ends = [bool(text) and (_is_letter(text[-1]) or text[-1] == " " or bool(BYTE.match(text[-4:])))
                for text in texts]
        return np.array(begins), np.array(ends)


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in LETTERS
