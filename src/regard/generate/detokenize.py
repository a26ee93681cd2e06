"""From tokens to text as it is written: whole characters only, and nothing of a text at which the answer ends."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from regard.generate.next_token import Drawn

__all__ = ["UNFINISHED", "Completion", "Decode", "StopTexts", "StreamingDecoder", "cut_at_stop", "stream_texts"]

Decode = Callable[[Sequence[int]], str]
"""The text of tokens; bytes that make no character become `�`."""

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
WINDOW = 32  # tokens after which those that are long said are forgotten: decoding stays as cheap as at the beginning


class StreamingDecoder:
    """The text of tokens, piece by piece. Put together, the pieces are what the tokens add to those they come after.

    `known` is their text that was already given.

    >>> pieces = StreamingDecoder(lambda ids: bytes(ids).decode(errors="replace"))
    >>> [pieces.push(byte) for byte in "aé€".encode()], pieces.flush()
    (['a', '', 'é', '', '', '€'], '')
    """

    def __init__(self, decode: Decode, *, after: Sequence[int] = (), known: str = "") -> None:
        self.decode = decode
        self.ids = _ending(after, decode)
        self.said = len(decode(self.ids)) + len(known)  # characters of their text
        self.boundary = len(self.ids)  # where among them a character last ended

    def push(self, id: int) -> str:
        """The text that this token adds; empty while a character is not complete."""
        self.ids.append(id)
        text = self.decode(self.ids)
        whole = text.rstrip(UNFINISHED)
        piece, self.said = whole[self.said :], max(self.said, len(whole))
        if len(whole) == len(text):
            self._forget()
            self.boundary = len(self.ids)
        return piece

    def _forget(self) -> None:
        # The newest stay: a text's first word may be spelled otherwise (without its space) than one that follows.
        if len(self.ids) > WINDOW and (rest := self.decode(self.ids[self.boundary :])):
            self.ids, self.said = self.ids[self.boundary :], len(rest)

    def flush(self) -> str:
        """The rest of the text, at the end of all tokens."""
        piece = self.decode(self.ids)[self.said :]
        self.said += len(piece)
        return piece


def _ending(ids: Sequence[int], decode: Decode) -> list[int]:
    """The last of some tokens, from where a character begins: some decoders take all bytes after half of one for none.

    >>> _ending([*"€".encode(), *b"s" * (WINDOW - 1)], lambda ids: bytes(ids).decode(errors="replace"))[:4]
    [226, 130, 172, 115]
    """
    start = max(0, len(ids) - WINDOW)
    while start and decode(ids[start:]).startswith(UNFINISHED):
        start -= 1
    return list(ids[start:])


class StopTexts:
    """Lets a text through up to the first of the stop texts to be complete, and holds back what may become one.

    >>> stop = StopTexts(["END"])
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
        """The rest of the text, at its end."""
        held, self.held = self.held, ""
        return held


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """A whole text, up to the first of the stop texts.

    >>> cut_at_stop("one END two", ["END"]), cut_at_stop("one two", ["END"])
    ('one ', 'one two')
    """
    stop = StopTexts(stops)
    return stop.push(text) + stop.flush()


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop text.

    >>> _overlap("a nut", "utter"), _overlap("a nut", "nuts"), _overlap("a nut", "a")
    (2, 3, 0)
    """
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)


class Completion:
    """One answer on its way from tokens to text: it ends with the end token, with a stop text, or when it is long."""

    def __init__(self, decode: Decode, *, end: int, longest: int, after: Sequence[int] = (), known: str = "",
                 stop: Sequence[str] = ()) -> None:
        self._pieces, self._stop = StreamingDecoder(decode, after=after, known=known), StopTexts(stop)
        self._end, self._longest = end, longest
        self.tokens: list[int] = []
        """All that were drawn, without the end."""
        self.text = ""
        """The text so far."""
        self.log_probability = 0.0
        self.ended = self._has_end = False

    @property
    def was_cut(self) -> bool:
        """Whether it ended only because it was long."""
        return self.ended and not (self._has_end or self._stop.reached)

    @property
    def score(self) -> float:
        """The mean log-probability of the sampled tokens, including the end."""
        return self.log_probability / max(1, len(self.tokens) + self._has_end)

    def push(self, id: int, log_probability: float) -> str:
        """The text that this token adds to the answer."""
        self.log_probability += log_probability
        self._has_end = id == self._end
        if self._has_end:
            piece = ""
        else:
            self.tokens.append(id)
            piece = self._stop.push(self._pieces.push(id))
        self.ended = self._has_end or self._stop.reached or len(self.tokens) >= self._longest
        if self.ended:
            piece += self._stop.push(self._pieces.flush()) + self._stop.flush()
        self.text += piece
        return piece


def stream_texts(steps: Iterable[Drawn], completions: Sequence[Completion], *,
                 enough: set[int]) -> Iterator[tuple[int, str]]:
    """The rows' texts as they are written: which row, and what is new. Rows that have ended join `enough`."""
    for drawn in steps:
        for row, (id, chance) in enumerate(zip(drawn.tokens.tolist(), drawn.log_probabilities.tolist(), strict=True)):
            if row in enough:
                continue
            if piece := completions[row].push(id, chance):
                yield row, piece
            if completions[row].ended:
                enough.add(row)
