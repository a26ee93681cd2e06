"""From tokens to text as it is written: whole characters only, and nothing of a text at which the answer ends."""

from collections.abc import Callable, Sequence

__all__ = ["Decode", "Pieces", "Stop", "Writing"]

Decode = Callable[[Sequence[int]], str]
"""The text of tokens; bytes that make no character become `�`."""

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
WINDOW = 32  # tokens after which those that are long said are forgotten: decoding stays as cheap as at the beginning


class Pieces:
    """The text of tokens, piece by piece. Put together, the pieces are the text of all tokens decoded at once.

    >>> pieces = Pieces(lambda ids: bytes(ids).decode(errors="replace"))
    >>> [pieces.push(byte) for byte in "aé€".encode()], pieces.flush()
    (['a', '', 'é', '', '', '€'], '')
    """

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.ids: list[int] = []
        self.said = 0  # characters of their text
        self.boundary = 0  # where among them a character last ended

    def push(self, id: int) -> str:
        """What this token adds; nothing as long as a character is not complete."""
        self.ids.append(id)
        text = self.decode(self.ids)
        whole = text.rstrip(UNFINISHED)
        piece, self.said = whole[self.said :], len(whole)
        if len(whole) == len(text):
            self._forget()
            self.boundary = len(self.ids)
        return piece

    def _forget(self) -> None:
        # The newest stay: a text's first word may be spelled otherwise (without its space) than one that follows.
        if len(self.ids) > WINDOW and (rest := self.decode(self.ids[self.boundary :])):
            self.ids, self.said = self.ids[self.boundary :], len(rest)

    def flush(self) -> str:
        """What was held back, at the end of all tokens."""
        piece = self.decode(self.ids)[self.said :]
        self.said += len(piece)
        return piece


class Stop:
    """Lets a text through up to the first of the stop texts to be complete, and holds back what may become one.

    >>> stop = Stop(["END"])
    >>> [stop.push(piece) for piece in ("one E", "NE", "ND two")], stop.reached
    (['one ', 'EN', ''], True)
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.held = ""
        self.reached = False

    def push(self, piece: str) -> str:
        if self.reached:
            return ""
        text = self.held + piece
        found = [(start + len(stop), start) for stop in self.texts if (start := text.find(stop)) >= 0]
        if found:
            self.reached, self.held = True, ""
            return text[: min(found)[1]]
        kept = max((_overlap(text, stop) for stop in self.texts), default=0)
        self.held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self.held = self.held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop text.

    >>> _overlap("a nut", "utter"), _overlap("a nut", "nuts"), _overlap("a nut", "a")
    (2, 3, 0)
    """
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


class Writing:
    """One answer on its way from tokens to text."""

    def __init__(self, decode: Decode, *, stop: Sequence[str] = ()) -> None:
        self._pieces, self._stop = Pieces(decode), Stop(stop)
        self.text = ""
        """What has been let through so far."""

    @property
    def stopped(self) -> bool:
        """Whether a stop text has come: the rest does not count."""
        return self._stop.reached

    def push(self, id: int) -> str:
        """What this token adds to the answer."""
        return self._say(self._stop.push(self._pieces.push(id)))

    def flush(self) -> str:
        """What the end of all tokens adds."""
        return self._say(self._stop.push(self._pieces.flush()) + self._stop.flush())

    def _say(self, piece: str) -> str:
        self.text += piece
        return piece
