"""Text becomes numbers and comes back unchanged: a tokenizer learned from the user's own text, or a published one.

It is saved as a plain `tokenizer.json` of the Hugging Face `tokenizers` library, which reads this file and
gives the same ids. One difference: that library treats a literal `</s>` in a text as the special token unless
`encode_special_tokens = True`; here a text is always text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import models
from tokenizers.processors import TemplateProcessing

from regard.data.published import MASKS, Specials, library_at, panicking, refusing, specials_of
from regard.data.tokenizer_training import BYTES, SPECIALS, TOKENIZER_KINDS, UNKNOWN, min_vocabulary, train_tokenizer
from regard.settings.errors import Failure, UserError
from regard.settings.opening import replacing

__all__ = ["TOKENIZER_KINDS", "Tokenizer", "checked_length", "train"]

BATCH = 1_024  # texts per call: the library's answers are large, and many of them slow it down
MAX_CALL_CHARACTERS = 100_000  # characters of a text per call: the library needs about 200 bytes for each
LONGEST_TEXT = 1 << 22  # characters of one input: a very long novel
BREAK = re.compile(r"(?<=\S) (?=\S)")
HARD = ("", " ", " a \ue000")  # hard texts for a test; the last ends with a character that no vocabulary has
DIGIT = "0"
OWN = Specials(pad=0, start=1, end=2)
ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # of a vocabulary that falls back to bytes for rare characters


def checked_length(text: str, place: str) -> str:
    """The text, if it is not too long: tokenizing a longer one takes many seconds."""
    if len(text) > LONGEST_TEXT:
        raise UserError(f"{place}: a text of {len(text):,} characters; the limit is {LONGEST_TEXT:,}, so divide it")
    return text


class Tokenizer:
    """Texts to rows of ids, and back to the very same texts.

    Only `words` comes back with `<unk>` for each word it has not learned.

    >>> tokenizer = train(["a dog, a cat", "a cat"], kind="bpe", vocabulary=300)
    >>> [row] = tokenizer.encode(["a cat\\t</s>"])
    >>> tokenizer.pieces(row)
    [' a', ' cat', '\\\\t', '<', '/', 's', '>']
    >>> tokenizer.decode([[tokenizer.start, *row, tokenizer.end, tokenizer.pad]])
    ['a cat\\t</s>']
    """

    def __init__(self, library: Library, specials: Specials = OWN) -> None:
        library.encode_special_tokens = True
        library.no_truncation()  # a published file may contain the length limit of another task
        library.no_padding()
        self._library, self.specials = library, specials
        self.pad, self.start, self.end, self.mask = specials
        # BERT marks the continuation of a word, not its beginning.
        self._goes_on = library.model.continuing_subword_prefix if isinstance(library.model, models.WordPiece) else None
        self.unknown: int | None = library.token_to_id(library.model.unk_token if self._goes_on else UNKNOWN)
        self._never = {id for id, token in library.get_added_tokens_decoder().items() if token.special}
        self._spaced = library.normalizer is not None and library.normalizer.normalize_str("a") in (" a", "▁a")
        self._in_bytes = library.decoder is not None and library.decoder.decode(["aĠ"]) == "a "

    def __len__(self) -> int:
        return self._library.get_vocab_size()

    @property
    def special(self) -> set[int]:
        """The ids of special tokens, among them a published tokenizer's unknown token."""
        return self._never | {id for id in self.specials if id is not None}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special ones."""
        rows: list[list[int]] = [[] for _ in texts]
        parts = [(row, part) for row, text in zip(rows, texts, strict=True) for part in self._parts(text)]
        for first in range(0, len(parts), BATCH):
            batch = parts[first : first + BATCH]
            try:
                with panicking("the tokenizer cannot encode this text"):
                    encoded = self._library.encode_batch_fast([part for _, part in batch], add_special_tokens=False)
            except TypeError:
                _refuse_surrogates(texts)
                raise
            for (row, _), encoding in zip(batch, encoded, strict=True):
                row += encoding.ids
        return rows

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The place of each id of `encode` in the text: its first character, and the one after its last."""
        with panicking("the tokenizer cannot encode this text"):
            return self._library.encode(text, add_special_tokens=False).offsets

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word of each sentence. Concatenated, they are those of the words joined by spaces.

        That holds for every tokenizer whose tokens do not span spaces. A word without a token, such as a control
        character, gets the mask token, or if there is none the end token: each word has its own place.

        >>> tokens = train(["a dog barks"] * 2, kind="bpe", vocabulary=300)
        >>> [[tokens.pieces(ids) for ids in words] for words in tokens.encode_words([["a", "dog", "dogs"]])]
        [[[' a'], [' dog'], [' dog', 's']]]
        """
        # A tokenizer that adds a space before a text adds it before a word; for the others, add it here.
        spaced = [words if self._spaced else [*words[:1], *(f" {word}" for word in words[1:])] for words in sentences]
        different = list(dict.fromkeys(word for words in spaced for word in words))
        nothing = [self.end if self.mask is None else self.mask]
        ids = {word: row or nothing for word, row in zip(different, self.encode(different), strict=True)}
        return [[ids[word] for word in words] for words in spaced]

    def after_space(self, part: str) -> str:
        """Prepare a part of a text that was cut before a space for `encode`, which adds a space there."""
        return part.removeprefix(" ") if self._spaced else part

    def between(self, parts: Sequence[str]) -> list[list[int]]:
        """The ids of the parts of a text between blanks. If a word's token includes its space, so does a blank.

        >>> tokenizer = train(["a dog, a cat"] * 9, kind="bpe", vocabulary=300, mask=True)
        >>> [tokenizer.pieces(ids) for ids in tokenizer.between(["a ", ", a cat"])]
        [[' a'], [',', ' a', ' cat']]
        """
        shorter = parts if self.has_spaces else [*(part.rstrip(" ") for part in parts[:-1]), *parts[-1:]]
        if not self._spaced:
            return self.encode(shorter)
        # The library must not add a space before a continuation: put a digit, which is a separate token, before it, and
        # remove the digit's token.
        first, *others = self.encode([shorter[0], *(f"{DIGIT}{part}" for part in shorter[1:])])
        [digit] = self.encode([DIGIT])
        return [first, *(ids[len(digit):] for ids in others)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row; special ids are skipped, and bytes that make no character become `�`."""
        with panicking("the tokenizer cannot decode these tokens"):
            return self._library.decode_batch(rows, skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable form of each id: ` dog` begins a word, `␣` is a space, `\\xc3` is part of a character."""
        return [self._piece(id) for id in ids]

    def texts(self) -> list[str]:
        """The exact text of each id of the vocabulary: ` dog`, a space, `\\xc3` for part of a character."""
        return [self._text(self._library.id_to_token(id) or "") for id in range(len(self))]

    def save(self, path: Path) -> None:
        """Write a tokenizer.json, and next to it a tokenizer_config.json with the roles of its special tokens."""
        names = {role: self._library.id_to_token(id) for role, id in self.specials._asdict().items() if id is not None}
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names["start"], "eos_token": names["end"],
                 "pad_token": names["pad"], "clean_up_tokenization_spaces": False}
        if "mask" in names:  # an encoder's: the names of its start and end tokens
            about |= {"cls_token": names["start"], "sep_token": names["end"], "mask_token": names["mask"]}
        try:
            with replacing(path.with_name(f"{path.stem}_config.json")) as file:
                file.write((json.dumps(about, indent=1) + "\n").encode())
            with replacing(path) as file:
                file.write(self._library.to_str(pretty=True).encode())
        except OSError as error:
            raise Failure(f"{path}: cannot be written: {error.strerror or error}") from None

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json that `save` or another tool wrote, or a folder with a published tokenizer."""
        library = library_at(path)
        ids = library.get_vocab()
        if set(ids.values()) != set(range(len(ids))):
            raise UserError(f"{path}: the ids of its {len(ids):,} tokens must run from 0 to {len(ids) - 1:,}")
        specials = specials_of(path, ids)
        special = {id for id, token in library.get_added_tokens_decoder().items() if token.special}
        missing = sorted({id for id in specials if id is not None} - special)
        library.add_special_tokens([library.id_to_token(id) for id in missing])
        tokens = cls(library, specials)
        with refusing(f"{path}: cannot encode every text, or decode it"):
            library.decode_batch([encoding.ids for encoding in library.encode_batch(HARD)])
        return tokens

    def __reduce__(self) -> tuple[Callable[[str, Specials], "Tokenizer"], tuple[str, Specials]]:
        # The library's own copies lose the setting that special tokens in a text are text.
        return _from_json, (self._library.to_str(), self.specials)

    def _parts(self, text: str) -> Iterator[str]:
        """A long text in parts whose concatenated ids are those of the whole."""
        start = 0
        while len(text) - start > MAX_CALL_CHARACTERS and self.cuts_at_spaces and (
                space := BREAK.search(text, start + MAX_CALL_CHARACTERS)):
            yield text[start : space.start()]
            # The library adds a space before the next part: the one it was cut at.
            start = space.end() if self._spaced else space.start()
        yield text[start:]

    @cached_property
    def has_spaces(self) -> bool:
        """Whether a space is always a separate token, never part of a word's."""
        texts = self.texts()
        return " " in texts and not any(re.match(r" \S", text) for text in texts)

    @cached_property
    def cuts_at_spaces(self) -> bool:
        """Whether a text can be cut at a space: no token spans several words."""
        return not any(re.search(r"\S ", self._text(token)) for token in self._library.get_vocab(False))

    def _text(self, token: str) -> str:
        """The text of a token of the vocabulary."""
        if self._in_bytes:
            if not BYTES.keys() >= {*token}:  # an added token
                return token
            return bytes(BYTES[letter] for letter in token).decode("utf-8", errors="backslashreplace")
        if self._goes_on:
            if token.startswith(self._goes_on):
                return token.removeprefix(self._goes_on)
            return f" {token}" if token[:1].isalnum() else token  # punctuation mostly follows without a space
        if byte := ONE_BYTE.fullmatch(token):
            return bytes.fromhex(byte[1]).decode("utf-8", errors="backslashreplace")
        return token.replace("▁", " ")

    def _piece(self, id: int) -> str:
        token = self._library.id_to_token(id)
        assert token is not None, f"{id}: no such id"
        if id in self._never or id == self.unknown:
            return token
        text = self._text(token)
        if text.strip(" ") == "":
            return "␣" * len(text)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def train(texts: Iterable[str], *, kind: str, vocabulary: int, lowercase: bool = False,
          mask: bool = False) -> Tokenizer:
    """A tokenizer of at most `vocabulary` tokens, learned from the texts: the same on every machine.

    It has fewer tokens (see `len`) if the texts do not give more. `bpe` and `unigram` learn parts of words;
    `words` are the most frequent words and punctuation marks; all others become `<unk>`. With `lowercase`, decoding
    gives lower case. With `mask`, the last token is the mask token.
    """
    if kind not in TOKENIZER_KINDS:
        near = get_close_matches(kind, TOKENIZER_KINDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{kind}: no such kind of tokenizer (there are {', '.join(TOKENIZER_KINDS)}){hint}")
    if vocabulary < min_vocabulary(kind):
        raise UserError(
            f"a vocabulary of {vocabulary:,} is too small for {kind}: {min_vocabulary(kind)} is the least, "
            f"for the special tokens and {'one word' if kind == 'words' else 'each byte'}"
        )
    beginnings = (text[:MAX_CALL_CHARACTERS] for text in texts)  # enough of a line of megabytes to learn from
    library = train_tokenizer(beginnings, kind=kind, vocabulary=vocabulary - mask, lowercase=lowercase)
    if not mask:
        return Tokenizer(library)
    library.add_special_tokens([MASKS[0]])
    _, start, end = SPECIALS
    # For other tools, which leave it to the tokenizer to say where a text begins and ends.
    library.post_processor = TemplateProcessing(
        single=f"{start} $A {end}", pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, OWN.start), (end, OWN.end)])
    return Tokenizer(library, OWN._replace(mask=library.token_to_id(MASKS[0])))


def _from_json(text: str, specials: Specials) -> Tokenizer:
    return Tokenizer(Library.from_str(text), specials)


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            lone = ascii(text[error.start]).strip("'")
            raise UserError(
                f"text {number}: {lone} at character {error.start} is half a character; was the input UTF-8?"
            ) from None
