"""Pieces of words as a tokenizer writes them, and the words they make."""

from collections.abc import Sequence

from regard.data.published import ENDS
from regard.data.tokenizer_training import SPECIALS

__all__ = ["readable", "words"]

SPECIAL = {*SPECIALS, *(token for ends in ENDS for token in ends)}


def words(pieces: Sequence[str]) -> list[list[int]]:
    """The places of each word's pieces. Spaces between words, and tokens such as `</s>`, belong to none.

    >>> words([" un", " pet", "it", " chat", "?", "</s>"])
    [[0], [1, 2], [3, 4]]
    >>> words(["<|endoftext|>", "un", " pet", "it"])
    [[1], [2, 3]]
    """
    found: list[list[int]] = []
    is_inside = False
    for place, piece in enumerate(pieces):
        if _is_between(piece):
            is_inside = False
        elif is_inside and not piece.startswith(" "):
            found[-1].append(place)
        else:
            found.append([place])
            is_inside = True
    return found


def readable(pieces: Sequence[str]) -> list[str]:
    """Labels for people: words without their space, and a dot before what goes on with one.

    >>> readable([" un", " pet", "it", " chat", "?", "</s>"])
    ['un', 'pet', '·it', 'chat', '?', '</s>']
    """
    goes_on = {place for word in words(pieces) for place in word[1:]}
    return [f"·{piece}" if place in goes_on and piece[0].isalnum() else piece.removeprefix(" ")
            for place, piece in enumerate(pieces)]


def _is_between(piece: str) -> bool:
    return piece in SPECIAL or piece.strip("␣") == ""
