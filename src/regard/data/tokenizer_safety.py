"""Tokenizers from elsewhere are tried before they are used: some take all memory for a short text, or fail on it.

A tokenizer.json names steps. Almost all published ones (of BERT, GPT-2, Llama and their kin) have only steps that
cannot make a text much longer, and patterns that match a text in few ways: those are read as they are. Any
other encodes a few texts in a process of its own first, within limits of memory and time.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from regard.settings.errors import UserError, amount

__all__ = ["MAX_TOKENIZER_BYTES", "refuse_harmful"]

MAX_TOKENIZER_BYTES = 1 << 26  # bytes of a tokenizer.json; that of Gemma, with 262,144 tokens, has half of it
MEMORY = 400 << 20  # bytes; and some for each byte of the file
MEMORY_EACH = 40
SECONDS = 10  # of a processor; on a busy machine the clock shows more
TRIAL_TIMEOUT = 120  # seconds by the clock
GROWTH = 20  # characters for one; Unicode's own compatibility forms reach 18
LENGTH = 1_000  # characters of a text to try
TEXTS = 64  # of each kind to try

# Steps that, however often they come, make a text little longer and look at each character a few times at most.
PLAIN = {
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip", "StripAccents",  # normalizers
    "BertPreTokenizer", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "UnicodeScripts", "Whitespace",
    "WhitespaceSplit",  # pre-tokenizers
    "BPEDecoder", "ByteFallback", "CTC", "Fuse", "WordPiece"}  # decoders
LIMITED = {"ByteLevel": 1, "Precompiled": 1, "Prepend": 2, "Replace by longer": 2, "Replace by pattern": 2}
"""Steps that may make a text longer, and how often they may come."""
WAYS = 64  # in which the choices of one alternative may be made
UNUSUAL = r"\\[1-9kgcCMX]|\(\?[(~#&RP]|\(\?[a-z-]*(x|\))"
"""In a pattern: references, control characters, conditions, absences, comments, flags without a group."""
SIGNS = r"\(\??|\)|\||[*+][+?]?|\?[+?]?|\{\d*,?\d*\}\??|[^()|*+?{]|\{"
PARTS = ("normalizers", "pretokenizers", "decoders")  # of a Sequence

CHILD = """
import json, sys
asked = json.load(sys.stdin)
sys.path[:] = asked["path"]
try:
    import resource
except ImportError:  # Windows: the limit of time is the parent's
    pass
else:
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from tokenizers import Tokenizer
told, library = {"grows": 0}, None
try:
    library = Tokenizer.from_str(asked["tokenizer"])
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    for text in asked["texts"]:
        normal = library.normalizer.normalize_str(text) if library.normalizer else text
        pieces = library.pre_tokenizer.pre_tokenize_str(normal) if library.pre_tokenizer else []
        ids = library.encode(text, add_special_tokens=False).ids
        longest = max(len(normal), sum(len(piece) for piece, _ in pieces), len(ids), len(library.decode(ids)))
        if longest > asked["growth"] * max(len(text), 100):
            told = {"grows": longest, "from": len(text)}
            break
except BaseException as error:  # a panic of the library is no Exception
    told = {"fails": str(error), "on": 0 if library is None else len(text)}
print(json.dumps(told))
"""


def refuse_harmful(path: Path, content: str) -> None:
    """Refuse a tokenizer.json that would take too much memory or time, or fails on a text. It has been read as text."""
    try:
        parts = json.loads(content)
        if not isinstance(parts, dict) or is_plain(parts):
            return  # the library reports that it is not an object
    except RecursionError:
        raise UserError(f"{path}: not a tokenizer.json: is nested too deeply") from None
    except ValueError:
        return  # and that it is not JSON
    memory = MEMORY + MEMORY_EACH * len(content)
    asked = {"path": sys.path, "memory": memory, "seconds": SECONDS, "growth": GROWTH, "tokenizer": content,
             "texts": list(_texts(parts))}
    try:
        child = subprocess.run([sys.executable, "-I", "-S", "-c", CHILD], input=json.dumps(asked), text=True,
                               encoding="utf-8", errors="replace", capture_output=True, timeout=TRIAL_TIMEOUT,
                               check=False,
                               env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        raise _refusal(path, f"it took more than {TRIAL_TIMEOUT} seconds") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be tried in a process of its own: {error.strerror or error}") from None
    try:
        told = json.loads(child.stdout)
    except ValueError:
        said = child.stderr.strip().rpartition("\n")[2]
        if child.returncode and said and "memory" not in child.stderr.lower():  # Rust and Python name it
            raise UserError(f"{path}: cannot be tried in a process of its own: {said}") from None
        raise _refusal(path, f"it took more than {SECONDS} seconds or {amount(memory)}") from None
    if "fails" in told and not told["on"]:
        raise UserError(f"{path}: not a tokenizer.json: {told['fails']}")
    if "fails" in told:
        raise _refusal(path, f"it failed on one of {told['on']:,} characters: {told['fails']}")
    if told["grows"]:
        raise _refusal(path, f"it made {told['grows']:,} characters of {told['from']:,}")


def _refusal(path: Path, why: str) -> UserError:
    return UserError(f"{path}: was tried on short texts and refused: {why}; take the tokenizer from where the model "
                     "was first published")


def is_plain(parts: Mapping[str, Any]) -> bool:
    """Whether every step of a tokenizer is known to be harmless."""
    reading = [*_steps(parts.get("normalizer")), *_steps(parts.get("pre_tokenizer"))]
    return _are_plain(reading) and _are_plain([*_steps(parts.get("decoder"))])


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    if isinstance(step, dict) and step.get("type") == "Sequence":
        for part in (part for name in PARTS for part in _listed(step.get(name))):
            yield from _steps(part)
    elif step is not None:
        yield step if isinstance(step, dict) else {}


def _listed(parts: Any) -> list[Any]:
    return parts if isinstance(parts, list) else [] if parts is None else [parts]


def _are_plain(steps: Sequence[Mapping[str, Any]]) -> bool:
    left = dict(LIMITED)
    return all(_is_plain(step, left) for step in steps)


def _is_plain(step: Mapping[str, Any], left: dict[str, int]) -> bool:
    kind, pattern, content = step.get("type"), step.get("pattern"), step.get("content")
    match kind, pattern:
        case "Replace", {"String": str(old)}:
            if not isinstance(content, str) or len(content) > 4 * len(old):
                return False
            kind = "Strip" if len(content) <= len(old) else "Replace by longer"
        case "Replace", {"Regex": str(regex)} if (
                isinstance(content, str) and len(content) <= 1 and has_bounded_backtracking(regex)):
            kind = "Replace by pattern" if content else "Strip"
        case "Split", {"String": str()}:
            return True
        case "Split", {"Regex": str(regex)}:
            return has_bounded_backtracking(regex)
        case "Prepend", _ if len(str(step.get("prepend"))) > GROWTH:
            return False
        case "Precompiled", _ if not _is_short(step.get("precompiled_charsmap")):
            return False
    if kind in left:
        left[kind] -= 1
        return left[kind] >= 0
    return isinstance(kind, str) and kind in PLAIN


def _is_short(charsmap: Any) -> bool:
    """Whether what SentencePiece's table puts for a character is always short: texts with a NUL after each."""
    try:
        table = base64.b64decode(charsmap, validate=True)
        texts = table[4 + int.from_bytes(table[:4], "little") :]
    except (TypeError, ValueError):
        return False
    return b"\0" in texts and max(map(len, texts.split(b"\0"))) <= 4 * GROWTH


def has_bounded_backtracking(regex: str) -> bool:
    """True if there are few ways to match a text: at most one repetition in each alternative, and few choices.

    A repetition with which an alternative ends does not count: nothing after it can fail and have it tried again.

    >>> has_bounded_backtracking(r" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+(?!\\S)")
    True
    >>> [has_bounded_backtracking(regex) for regex in ("(a+)+$", "(a|b)*", "a*a*b")]
    [False, False, False]
    """
    if len(regex) > LENGTH or re.search(UNUSUAL, regex):
        return False
    without = re.sub(r"\\p\{\^?\w+\}|\\P\{\w+\}|\\x\{\w+\}|\\.", "x", regex, flags=re.DOTALL)
    while (fewer := re.sub(r"\[\^?\]?[^\[\]]*\]", "x", without)) != without:  # classes may hold classes
        without = fewer
    if any(len(number) > 2 for number in re.findall(r"[{,](\d+)(?=[,}])", without)):
        return False
    signs = re.findall(SIGNS, without)
    varies = [False]  # of each open group, whether something in it repeats or is a choice
    ways, repetitions = 1, 0  # of the outermost alternative
    for sign, after in pairwise([*signs, "|"]):
        if sign[0] == "(":
            varies.append(False)
        elif sign == ")":
            if len(varies) == 1:
                return False
            inner = varies.pop()
            if inner and after[0] in "*+{":
                return False
            varies[-1] |= inner
        elif sign == "|" and len(varies) == 1:
            ways, repetitions = 1, 0
        elif sign == "|" or sign[0] == "?":
            varies[-1], ways = True, 2 * ways
        elif sign[0] in "*+{":
            varies[-1] = True
            if after[0] in "*+{":  # a repetition of a repetition
                return False
            is_last = after == "|" and len(varies) == 1
            repetitions += not is_last and (sign[0] != "{" or "," in sign)
        if repetitions > 1 or ways > WAYS:
            return False
    return len(varies) == 1


def _texts(parts: Mapping[str, Any]) -> Iterator[str]:
    """Texts that a bad step would be seen by: what the steps speak of, again and again, and each of its characters."""
    yield from ("", " ", "Le chat noir, 3.5 kg, n’a pas mangé :-) \t\n 猫 e\u0301 \ufdfa")
    steps = [parts.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    words = dict.fromkeys(_words(steps))
    signs = dict.fromkeys("a 1\n!é" + "".join(words))
    for some in (islice(words, TEXTS), islice(signs, TEXTS)):
        for word in some:
            yield (word * LENGTH)[:LENGTH] + ("!" if word != "!" else "a")
    # The library does not begin to match where a text has none of the characters that a pattern ends with.
    for sign in islice(signs, TEXTS):
        yield sign * LENGTH + ("!" if sign != "!" else "a") + "".join(islice(signs, TEXTS))


def _words(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        if content and not any("\ud800" <= sign <= "\udfff" for sign in content):
            yield content[:LENGTH]
    elif isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _words(part)
