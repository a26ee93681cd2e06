"""Text from a file as a line of a terminal shows it: control characters visible, and no longer than the line."""

import unicodedata

__all__ = ["visible"]

CUT = " …"


def visible(text: str, columns: int) -> str:
    """The text on one line of at most `columns` columns. Unprintable characters become escapes.

    >>> visible("one\\ttwo\\x1b[2J", 40)
    'one\\\\ttwo\\\\x1b[2J'
    >>> visible("the red cat", 8)
    'the re …'
    """
    shown, room, cut = list[str](), columns, 0
    for character in text:
        piece = character if character.isprintable() else ascii(character)[1:-1]
        room -= sum(map(_width, piece))
        if room < 0:
            return "".join(shown[:cut]) + CUT
        shown.append(piece)
        if room >= len(CUT):  # as much as leaves room for the mark
            cut = len(shown)
    return "".join(shown)


def _width(character: str) -> int:
    """Columns on a terminal: a combining accent takes none, a Chinese character two."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
