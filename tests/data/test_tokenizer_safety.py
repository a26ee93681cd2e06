"""Tokenizers from elsewhere: those that people use are read as they are, those that would do harm are refused."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.data import tokenizer_safety
from regard.data.tokenizer import Tokenizer, train
from regard.data.tokenizer_training import TOKENIZER_KINDS
from regard.settings.errors import UserError

Steps = dict[str, Any]


def replace(old: str, new: str) -> Steps:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def pattern(old: str, new: str) -> Steps:
    return {"type": "Replace", "pattern": {"Regex": old}, "content": new}


def split(regex: str) -> Steps:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def normalizers(*steps: Steps) -> Steps:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def splitters(*steps: Steps) -> Steps:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def decoders(*steps: Steps) -> Steps:
    return {"decoder": {"type": "Sequence", "decoders": list(steps)}}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
LLAMA2 = decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                  {"type": "Strip", "content": " ", "start": 1, "stop": 0})
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
TABLE = base64.b64encode((8).to_bytes(4, "little") + bytes(8) + b" \0" + "صلى".encode() + b"\0").decode()
# The steps of the files that their authors published.
PUBLISHED: dict[str, Steps] = {
    "BERT": {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                            "strip_accents": None, "lowercase": True},
             "pre_tokenizer": {"type": "BertPreTokenizer"},
             "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
    "GPT-2 and RoBERTa": {"pre_tokenizer": {**BYTES, "use_regex": True}, "decoder": BYTES},
    "SmolLM": splitters({"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}),
    "Llama 2": normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")) | LLAMA2,
    "Llama 3": splitters(split(CL100K), BYTES) | {"decoder": BYTES},
    "Qwen": {"normalizer": {"type": "NFC"}} | splitters(split(CL100K.replace("{1,3}", "")), BYTES),
    "Gemma": {"normalizer": replace(" ", "▁"), "pre_tokenizer": {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}},
    "T5 and XLM-R": normalizers({"type": "Precompiled", "precompiled_charsmap": TABLE}, pattern(" {2,}", "▁"))
    | splitters({"type": "WhitespaceSplit"}, METASPACE) | {"decoder": METASPACE},
    "ALBERT": normalizers(replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                          {"type": "Lowercase"}),
    "BLOOM": splitters(split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), BYTES),
    "CLIP": normalizers({"type": "NFC"}, pattern(r"\s+", " "), {"type": "Lowercase"})
    | splitters(split(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), BYTES),
    "DeepSeek": splitters(
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
        split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
              r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), BYTES),
}
DOUBLE = replace("a", "aa")
BOMBS: dict[str, tuple[Steps, str]] = {
    "a doubled 28 times": (normalizers(*[DOUBLE] * 28), "took more than"),
    "doubled by bytes": (normalizers(*[{"type": "ByteLevel"}] * 20), r"took more than|made [0-9,]+ characters of"),
    "a pattern of patterns": ({"pre_tokenizer": split("(a+)+$")}, "failed on one of 1,001 characters: .*over"),
    "many repetitions": ({"pre_tokenizer": split("a*" * 30 + "(?:bd|ce)")}, "took more than|failed on one of"),
    "and to replace": ({"normalizer": pattern("(a+)+$", "b")}, "failed on one of 1,001 characters: .*over"),
    "a rare sign": (normalizers(*[replace("☃", "☃☃")] * 12), r"took more than|made [0-9,]+ characters of"),
    "in two steps": (normalizers(*[replace("a", "bb"), replace("b", "aa")] * 4), r"made [0-9,]+ characters of"),
    "between all": (normalizers(*[pattern("x*", "b")] * 8), r"made [0-9,]+ characters of|failed on one"),
    "pieces of nothing": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "must be non-zero"),
    "on the way back": (decoders(*[DOUBLE] * 8), r"made [0-9,]+ characters of"),
    "a long one": ({"normalizer": replace("a", "b" * 10_000)}, r"took more than|made [0-9,]+ characters of"),
    "no such step": ({"normalizer": {"type": "Nothing"}}, "not a tokenizer.json: data did not match"),
}
SLOW = {"a doubled 28 times", "doubled by bytes"}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    path = tmp_path_factory.mktemp("tokens") / "tokenizer.json"
    train(["a dog, a cat"] * 3, kind="bpe", vocabulary=300).save(path)
    return dict(json.loads(path.read_text(encoding="utf-8")))


def saved(folder: Path, content: Steps) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}', encoding="utf-8")
    return folder / "tokenizer.json"


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_tokenizer_that_people_use_needs_no_trial(name: str, learned: Steps, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_safety, "CHILD", "raise SystemExit")
    tokenizer_safety.refuse_harmful(saved(tmp_path, learned | PUBLISHED[name]), json.dumps(learned | PUBLISHED[name]))
    if name != "T5 and XLM-R":  # whose table here is too short to be read
        assert Tokenizer.load(tmp_path / "tokenizer.json").encode(["a dog"])


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_our_own_tokenizers_need_no_trial(kind: str, lowercase: bool, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_safety, "CHILD", "raise SystemExit")
    train(["a dog, a cat"] * 3, kind=kind, vocabulary=300, lowercase=lowercase, mask=True).save(
        tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(["a dog"])


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
                                  for name in BOMBS])
def test_a_tokenizer_that_does_harm_is_refused(name: str, learned: Steps, tmp_path: Path,
                                               capfd: pytest.CaptureFixture[str]) -> None:
    steps, said = BOMBS[name]
    path = saved(tmp_path, learned | steps)
    with pytest.raises(UserError, match=said) as refusal:
        Tokenizer.load(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert capfd.readouterr() == ("", "")  # the library tells of its panics on stderr


def test_an_unusual_tokenizer_that_does_no_harm_is_read(learned: Steps, tmp_path: Path) -> None:
    steps = normalizers(*(replace(*each) for each in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss"))))
    assert not tokenizer_safety.is_plain(steps)
    tokens = Tokenizer.load(saved(tmp_path, learned | steps))
    assert tokens.encode(["schön"]) == tokens.encode(["schoen"])


def test_the_tokenizer_of_gpt_4o_is_tried_and_read(learned: Steps, tmp_path: Path) -> None:
    """It has two repetitions in a row, and a choice after them."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    suffix = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    words = "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{upper}{some}{lower}{more}{suffix}" for some, more in ("*+", "+*"))
    o200k = words + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    assert not tokenizer_safety.has_bounded_backtracking(o200k)
    assert Tokenizer.load(saved(tmp_path, learned | splitters(split(o200k), BYTES))).encode(["a dog"])


NEEDY = """#!/bin/sh
if test -z "$NEEDED"; then echo "first" >&2; echo "python: cannot open libpython" >&2; exit 127; fi
exec '{}' "$@"
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such scripts")
@pytest.mark.parametrize("needed", ["x", ""])
def test_a_trial_has_the_environment_that_python_needs_and_says_what_it_lacked(
        needed: str, learned: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text(NEEDY.format(sys.executable))
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("NEEDED", needed)
    content = json.dumps(learned | normalizers(replace("ä", "ae"), *[replace("ö", "oe")] * 2))
    if needed:
        tokenizer_safety.refuse_harmful(tmp_path / "tokenizer.json", content)
        return
    with pytest.raises(UserError, match=r"cannot be tried in a process of its own: python: cannot open libpython$"):
        tokenizer_safety.refuse_harmful(tmp_path / "tokenizer.json", content)


MEASURED = """
import re, resource, sys
from pathlib import Path
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)
try:
    Tokenizer.load(Path(sys.argv[1]))
except UserError as error:
    own = int(re.search("VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
    print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
    assert "torch" not in sys.modules
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted otherwise elsewhere")
def test_a_tokenizer_that_would_take_gigabytes_is_refused_within_half_of_one(learned: Steps, tmp_path: Path) -> None:
    path = saved(tmp_path, learned | normalizers(*[DOUBLE] * 28))
    child = subprocess.run([sys.executable, "-c", MEASURED, path], text=True, capture_output=True, check=True,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert 0 < int(child.stdout) < 500_000  # kB


def test_a_panic_of_the_library_at_a_text_is_a_sentence(learned: Steps, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.published.refuse_harmful", lambda path, content: None)
    tokens = Tokenizer.load(saved(tmp_path, learned | {"pre_tokenizer": split("(a+)+$")}))
    for ask in (lambda text: tokens.encode([text]), tokens.spans):
        with pytest.raises(UserError, match=r"the tokenizer cannot encode this text: .*over"):
            ask("a" * 50 + "!")


def test_a_pattern_is_tame_that_matches_in_few_ways() -> None:
    tame = ["a+b*", "(a|b)", "(ab)?c", "(?:a+)?", "[(a+)+]*", r"\(a+\)+", "a{1,64}", r"(?i:'s|'t)", r"\p{L}{2}", "a++b",
            "(ab)+", "a+?b|c+d", "a*b+|c*d+"]
    wild = ["(a+)+", "(a*){2,}", "((a|b+)c)*", r"(a)\1", "a{1000}", "(a{9}){9}", "(a", "a)", "(?:(?:a+)?)*",
            "x" * 1_001, "a*" * 9 + "(?:bd|ce)", "a*a*b", "a*(?:b|c)d*e", "(a*a*)", "(a|a)*b", "(?:aa?)*b", "a?" * 9,
            "a{1,9}a{1,9}b", "(a|a)" * 9, "a{1,2}+b", "a**", "a{2,}a*b", r"a*\c|a*", "(?i)a*|a*", "(?~a)a*"]
    assert [tokenizer_safety.has_bounded_backtracking(each) for each in tame] == [True] * len(tame)
    assert [tokenizer_safety.has_bounded_backtracking(each) for each in wild] == [False] * len(wild)


def test_a_table_of_characters_with_a_long_text_for_one_is_no_plain_step() -> None:
    long = base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"x" * 1_000 + b"\0").decode()
    for table, plain in ((TABLE, True), (long, False), ("%", False), (None, False)):
        assert tokenizer_safety.is_plain(normalizers({"type": "Precompiled", "precompiled_charsmap": table})) is plain


ODD: list[object] = [None, True, -1, 1e308, 10**30, "", "x", [], [[]], {}, {"type": []}, {"type": "Sequence"}, "\ud800"]


def test_a_tokenizer_with_anything_anywhere_is_read_or_refused_by_its_name(learned: Steps, tmp_path: Path) -> None:
    few = {**learned, "added_tokens": learned["added_tokens"][:3]}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        sequence = {"type": "Sequence", **dict.fromkeys(tokenizer_safety.PARTS, "x")}
        for odd in (sequence, {"type": "Replace"}, [], "x", 3):
            refused_or_read(saved(tmp_path, {**few, part: odd}))
    for part in ("model", "added_tokens", "version", "truncation", "padding", "post_processor"):
        for odd in ODD:
            refused_or_read(saved(tmp_path, {**few, part: odd}))
    for part, value in few["model"].items():
        for odd in ODD:
            refused_or_read(saved(tmp_path, {**few, "model": {**few["model"], part: odd}}))
            if isinstance(value, dict):
                refused_or_read(saved(tmp_path, {**few, "model": {**few["model"], part: {**value, "a": odd}}}))


def refused_or_read(path: Path) -> None:
    said = str(path)
    try:
        Tokenizer.load(path)
    except UserError as error:
        said = str(error)
    assert said.startswith(str(path.parent))


@pytest.mark.parametrize("content", ["[" * 100_000, "9" * 10_000, "\ufeff{}", "{", "[]", "null", '{"model": NaN}'])
def test_what_is_no_tokenizer_is_refused_by_its_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer\.json: "):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_tokenizer_larger_than_any_is_refused_unread(tmp_path: Path) -> None:
    with open(tmp_path / "tokenizer.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match=r"is larger than 67.1 MB"):
        Tokenizer.load(tmp_path / "tokenizer.json")
