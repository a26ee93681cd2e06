"""Published tokenizers: their files, and their special tokens."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from regard.data.tokenizer_safety import MAX_TOKENIZER_BYTES, refuse_harmful
from regard.data.tokenizer_training import SPECIALS
from regard.settings.errors import UserError, amount
from regard.settings.opening import refuse_irregular, to_read
from regard.settings.setting import shown

__all__ = ["ENDS", "MASKS", "Specials", "library_at", "panicking", "refusing", "specials_of"]

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # the second: as OpenAI itself named them
ENDS = (("[CLS]", "[SEP]"), ("<|endoftext|>", "<|endoftext|>"), ("<s>", "</s>"),
        ("<|begin_of_text|>", "<|end_of_text|>"))
ROLES = {"pad": ("pad_token",), "start": ("cls_token", "bos_token"), "end": ("sep_token", "eos_token"),
         "mask": ("mask_token",)}  # an encoder's tokens first: RoBERTa names both, and they are the same

PADS = ("<pad>", "[PAD]")
MASKS = ("<mask>", "[MASK]")


class Specials(NamedTuple):
    """The ids of special tokens. If a tokenizer has no padding token, the end token takes its place: it is masked."""

    pad: int
    start: int
    end: int
    mask: int | None = None
    """The mask token, if the tokenizer has one."""


def library_at(path: Path) -> Library:
    """The tokenizer of a `tokenizer.json`, or of a folder with one, with GPT-2's pair of files or with BERT's one."""
    if not path.is_dir():
        return _parsed(path)
    for vocabulary, merges in PAIRS:
        if not (path / "tokenizer.json").exists() and (path / vocabulary).is_file() and (path / merges).is_file():
            return _byte_level(path / vocabulary, path / merges)
    if (path / "tokenizer.json").exists():
        return _parsed(path / "tokenizer.json")
    if (path / "vocab.txt").is_file():
        return _word_pieces(path / "vocab.txt", _content(path / "tokenizer_config.json"))
    raise UserError(f"{path}: has no tokenizer.json, vocab.txt, or vocab.json and merges.txt; transformers converts a "
                    "tokenizer.model: AutoTokenizer.from_pretrained(…).save_pretrained(…)")


def specials_of(path: Path, ids: Mapping[str, int]) -> Specials:
    """The special tokens, from the files next to the tokenizer, or else from their names."""
    said = _said(path, ids)
    if [ids.get(name) for name in SPECIALS] == [0, 1, 2]:
        said = {"pad": 0, "start": 1, "end": 2} | said
    elif "end" not in said:
        said = _named(path, ids) | said
    end = said["end"]
    mask = said.get("mask", next((ids[name] for name in MASKS if name in ids), None))
    # Without a mask token it is a decoder's tokenizer, whose padding is masked.
    named = [ids[name] for name in PADS if name in ids and mask is not None]
    return Specials(said.get("pad", next(iter(named), end)), said.get("start", end), end, mask)


@contextmanager
def panicking(what: str) -> Iterator[None]:
    """Report a text at which the library panics: a pattern may match too slowly, and the library gives up."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise UserError(f"{what}: {error}") from None
        raise


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Report an error of the library. It raises nothing narrower than Exception, and its panics are no Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UserError(f"{what}: {error}") from error
        raise


def _parsed(path: Path) -> Library:
    content = _text(path, "a tokenizer.json")
    refuse_harmful(path, content)
    with refusing(f"{path}: not a tokenizer.json"):
        return Library.from_str(content)


def _text(path: Path, what: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="", opener=to_read) as file:
            if os.fstat(file.fileno()).st_size > MAX_TOKENIZER_BYTES:
                raise UserError(f"{path}: is larger than {amount(MAX_TOKENIZER_BYTES)}: not {what}")
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not {what}: {error}") from error


def _byte_level(vocabulary: Path, merges: Path) -> Library:
    """GPT-2's: words by its pattern, spelled in bytes, joined by the merges in their order."""
    for path in (vocabulary, merges):
        refuse_irregular(path)
    with refusing(f"{vocabulary} and {merges.name}: not a vocabulary and its merges"):
        library = Library(models.BPE.from_file(str(vocabulary), str(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _word_pieces(vocabulary: Path, about: Mapping[str, Any]) -> Library:
    """BERT's WordPiece: split words and punctuation; take the longest known prefix, then continue with `##`."""
    content = _text(vocabulary, "a vocab.txt").removesuffix("\n").split("\n")
    ids = {token.removesuffix("\r"): id for id, token in enumerate(content)}
    if len(ids) != len(content) or "[UNK]" not in ids:
        raise UserError(f"{vocabulary}: not a vocabulary of BERT: a token occurs twice, or [UNK] is missing")
    library = Library(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=about.get("tokenize_chinese_chars") is not False,
        strip_accents=strip if isinstance(strip := about.get("strip_accents"), bool) else None,
        lowercase=about.get("do_lower_case") is not False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    return library


def _said(path: Path, ids: Mapping[str, int]) -> dict[str, int]:
    """The special tokens in the files next to a tokenizer, the first file first."""
    folder, name = (path, "tokenizer.json") if path.is_dir() else (path.parent, path.name)
    files = [f"{Path(name).stem}_config.json"]
    if name == "tokenizer.json":  # another name has only its own config: the other files describe the model's tokenizer
        files += ["special_tokens_map.json", "config.json", "generation_config.json"]
    said: dict[str, int] = {}
    for file in (folder / file for file in files):
        content = _content(file)
        for role, key in ((role, key) for role, keys in ROLES.items() for key in keys):
            if role not in said and (token := _token(content.get(key))) is not None:
                said[role] = _known(file, key, token, ids.get(token), ids.values())
            elif role not in said and (id := _id(content.get(f"{key}_id"))) is not None:
                said[role] = _known(file, f"{key}_id", id, id, ids.values())
    return said


def _named(path: Path, ids: Mapping[str, int]) -> dict[str, int]:
    for first, last in ENDS:
        if first in ids and last in ids:
            return {"start": ids[first], "end": ids[last]}
    raise UserError(f"{path}: which of its tokens ends a text? Put it into a tokenizer_config.json next to it, as in "
                    "{\"eos_token\": \"</s>\"}")


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(file, "JSON")) if file.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: is not a JSON object")
    return content


def _token(said: object) -> str | None:
    """The text of a token; older files have an object instead."""
    text = said.get("content") if isinstance(said, dict) else said
    return text if isinstance(text, str) else None


def _id(said: object) -> int | None:
    """The id; of several end tokens the first."""
    first = said[0] if isinstance(said, list) and said else said
    return first if isinstance(first, int) and not isinstance(first, bool) and first >= 0 else None  # −1 says none


def _known(file: Path, key: str, said: object, id: int | None, ids: Iterable[int]) -> int:
    if id is None or id not in ids:
        raise UserError(f"{file}: {key}={shown(said)}: the tokenizer next to it has no such token")
    return id
