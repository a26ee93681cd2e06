"""How each kind of tokenizer cuts a text, and how it learns which tokens there are.

All kinds take one road. A space is put before the text, so that its first word has the token that the word
has elsewhere; the text is cut into words (each with the space before it), digits and punctuation; each cut
is spelled in bytes, so that no character is ever unknown; the model joins bytes to tokens. The way back joins
the tokens and takes the one space off again. `characters` and `bytes` have no words: no space, no cuts.
"""

import json
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

__all__ = ["BYTES", "SPECIALS", "TOKENIZER_KINDS", "UNKNOWN", "min_vocabulary", "train_tokenizer"]

TOKENIZER_KINDS = ("bpe", "unigram", "characters", "bytes", "words")
SPECIALS = ("<pad>", "<s>", "</s>")
UNKNOWN = "<unk>"

# Words, single digits, runs of signs, and white space but for the one space that belongs to the next word.
# The bound keeps a line of nothing but `a` from being one word. No cut holds both a sign and a letter, so no
# token learned from a text that says "<s>" can be spelled like the special one.
CUTS = r" ?[\p{L}\p{M}]{1,64}| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]{1,64}|\s{1,64}(?!\S)|\s{1,64}"

# The visible character that stands for each byte in a tokenizer.json: GPT-2's table.
VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
HIDDEN = tuple(byte for byte in range(256) if byte not in VISIBLE)
BYTES = {chr(byte): byte for byte in VISIBLE} | {chr(256 + n): byte for n, byte in enumerate(HIDDEN)}
LETTERS = {byte: letter for letter, byte in BYTES.items()}


def min_vocabulary(kind: str) -> int:
    """The smallest vocabulary of a kind: its special tokens and all bytes, or for `words` a single word."""
    return len(_specials(kind)) + (1 if kind == "words" else len(LETTERS))


def train_tokenizer(texts: Iterable[str], *, kind: str, vocabulary: int, lowercase: bool) -> Tokenizer:
    """The library's tokenizer with at most `vocabulary` tokens."""
    learner = {"bpe": _bpe, "unigram": _unigram, "words": _words, "characters": _characters, "bytes": _bytes}
    model = learner[kind](texts, vocabulary, _pipeline(kind, lowercase=lowercase))
    tokenizer = _pipeline(kind, lowercase=lowercase)
    tokenizer.model = model
    # <unk> is none of them: a reader of the output should see that a word was unknown.
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def _specials(kind: str) -> list[str]:
    return [*SPECIALS, UNKNOWN] if kind == "words" else [*SPECIALS]


def _pipeline(kind: str, *, lowercase: bool) -> Tokenizer:
    before: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    cuts: list[pre_tokenizers.PreTokenizer] = []
    after: list[decoders.Decoder] = [decoders.ByteLevel()]
    if kind not in ("characters", "bytes"):
        before.append(normalizers.Prepend(" "))
        cuts.append(pre_tokenizers.Split(Regex(CUTS), "isolated"))
        after.append(decoders.Strip(" ", 1, 0))
    if kind == "words":
        after.insert(0, decoders.Replace(UNKNOWN, LETTERS[ord(" ")] + UNKNOWN))
    cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(before)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Sequence(after)
    return tokenizer


def _bpe(texts: Iterable[str], vocabulary: int, pipeline: Tokenizer) -> models.Model:
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,  # what was seen once is no pattern, and its token would hardly be trained
        special_tokens=_specials("bpe"),
        initial_alphabet=list(BYTES),
        show_progress=False,
    )
    pipeline.train_from_iterator(texts, trainer)
    model: models.Model = pipeline.model
    return model


def _unigram(texts: Iterable[str], vocabulary: int, pipeline: Tokenizer) -> models.Model:
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=_specials("unigram"),
        initial_alphabet=list(BYTES),
        show_progress=False,
    )
    pipeline.model = models.Unigram()
    pipeline.train_from_iterator(texts, trainer)
    # The trainer goes through a hash table with a random seed. Its sums differ in the last digits, and the
    # bytes that it adds at the end get the lowest score plus 0.0001, 0.0002, … as they come. Rounded, with
    # all those bytes at the lowest score, and sorted, the result is the same every time.
    learned = json.loads(pipeline.to_str())["model"]["vocab"][len(SPECIALS) :]
    scores = {piece: score or 0.0 for piece, score in learned}  # null is infinity: there was no text
    lowest = min(scores.values())
    for piece in BYTES:
        if scores[piece] < lowest + 0.0001 * (len(BYTES) + 1):
            scores[piece] = lowest
    ranked = sorted(scores, key=lambda piece: (-round(scores[piece], 4), piece))
    # It overshoots a vocabulary that is hardly more than the bytes.
    longer = [piece for piece in ranked if piece not in BYTES][: vocabulary - min_vocabulary("unigram")]
    kept = {*BYTES, *longer}
    pieces = [(piece, round(scores[piece], 4)) for piece in ranked if piece in kept]
    return models.Unigram([*((name, 0.0) for name in SPECIALS), *pieces])


def _words(texts: Iterable[str], vocabulary: int, pipeline: Tokenizer) -> models.Model:
    pipeline.model = model = models.WordLevel(unk_token=UNKNOWN)
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=_specials("words"), show_progress=False)
    pipeline.train_from_iterator(texts, trainer)
    return model


def _characters(texts: Iterable[str], vocabulary: int, pipeline: Tokenizer) -> models.Model:
    """The most frequent characters, each joined from its bytes; a rare one stays in bytes.

    No join reaches over the end of a character: a character's first byte is never the second part of one.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(pipeline.normalizer.normalize_str(text))
    tokens = {token: id for id, token in enumerate((*_specials("characters"), *BYTES))}
    joins: list[tuple[str, str]] = []
    for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        spelled = "".join(LETTERS[byte] for byte in character.encode())
        new = [end for end in range(2, len(spelled) + 1) if spelled[:end] not in tokens]
        if len(tokens) + len(new) <= vocabulary:
            tokens |= {spelled[:end]: len(tokens) + n for n, end in enumerate(new)}
            joins += [(spelled[: end - 1], spelled[end - 1]) for end in new]
    return models.BPE(tokens, joins)


def _bytes(texts: Iterable[str], vocabulary: int, pipeline: Tokenizer) -> models.Model:
    return _characters((), vocabulary, pipeline)
