"""Every bad text, through the command line: the right exit code, the place, no traceback. And odd ones that are good.

tests/data has the reader's own tests, thousands of examples each; here the sentence has to reach the person.
"""

import gzip
import io
import json
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

import regard.training.loop  # noqa: F401  (importing torch takes seconds, and is not what is timed)
from regard.cli import main
from regard.data.tokenizer import Tokenizer

TINY = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
        "train.batch_tokens=64", "search.max_tokens=8", "search.beam=1", "device=cpu"]  # fmt: skip
GOOD = "le chat dort\tthe cat sleeps\n"
GOOD_JSON = '{"source": "le chat", "target": "the cat"}\n'


def train(*paths: Path, out: Path, settings: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code of `regard train translate --data PATHS`, and what it says on stderr."""
    arguments = [word for path in paths for word in ("--data", str(path))]
    arguments += [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    argv = ["regard", "train", "translate", *arguments, "--out", str(out)]
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", argv), redirect_stdout(stdout), redirect_stderr(stderr),
          pytest.raises(SystemExit) as ended):
        main()
    for stream in (stdout, stderr):
        stream.seek(0)
    assert (stdout.read() == f"{out}\n") is (ended.value.code == 0)
    return int(ended.value.code), stderr.read()


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by name, with `_` for the dot: train_en is train.en."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


# Name of the file, what it holds, and what is said of it; PATH stands for the file's path.
REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("train.tsv", "", "PATH: the file is empty"),
    "only blank lines": ("train.tsv", " \n\n\t\n", "PATH: only blank lines (3 of them)"),
    "one column": ("train.tsv", f"{GOOD}alone\n", "PATH:2: one column instead of two"),
    "three columns": ("train.tsv", f"{GOOD}a\tb\tc\n", "PATH:2: 3 columns instead of two"),
    "NUL bytes": ("train.tsv", f"{GOOD}a\0\tb\n", "PATH:2: NUL byte at offset 29"),
    "UTF-16 with a BOM": ("train.tsv", GOOD.encode("utf-16"), "PATH:1: byte order mark of UTF-16 at offset 0"),
    "Latin-1": ("train.tsv", f"{GOOD}l'été\tsummer\n".encode("latin-1"), "PATH:2: byte 0xe9 at offset 30 is not UTF-8"),
    "a gzip cut short": ("train.tsv.gz", gzip.compress(GOOD.encode() * 99)[:-20], "PATH: the gzip is cut short"),
    "a gzip that is none": ("train.tsv.gz", GOOD, "PATH: not a valid gzip"),
    "JSON that is broken": ("train.jsonl", f"{GOOD_JSON}{{\n", "PATH:2: broken JSON at column"),
    "an array": ("train.jsonl", f'{GOOD_JSON}["a", "b"]\n', "PATH:2: an array instead of an object"),
    "a missing key": ("train.jsonl", f'{GOOD_JSON}{{"source": "a"}}\n', "PATH:2: no key 'target'"),
    "a number for a text": ("train.jsonl", '{"source": 7, "target": "b"}\n', "PATH:1: 'source' is a number"),
    "a key twice": ("train.jsonl", '{"source": "a", "target": "b", "source": "c"}', "PATH:1: the key 'source'"),
    "NaN": ("train.jsonl", '{"source": "a", "target": "b", "x": NaN}\n', "PATH:1: NaN is not JSON"),
    "a lone surrogate": ("train.jsonl", '{"source": "\\ud800", "target": "b"}\n', "PATH:1: 'source' contains the lone"),
    "a single pair": ("train.tsv", GOOD, "PATH: only one pair; at least two are needed"),
}


@pytest.mark.parametrize(("name", "content", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_bad_text_is_refused_with_its_place(tmp_path: Path, name: str, content: str | bytes, sentence: str) -> None:
    path = write(tmp_path, **{name.replace(".", "_"): content}) / name
    began = time.perf_counter()
    code, said = train(path, out=tmp_path / "run")
    assert time.perf_counter() - began < 5
    assert code == 2
    assert said.startswith(f"regard: {sentence.replace('PATH', str(path))}")
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_one_side_longer_is_refused_with_both_counts(tmp_path: Path) -> None:
    write(tmp_path, train_fr="un\ndeux\ntrois\n", train_en="one\ntwo\n")
    code, said = train(tmp_path / "train.fr", tmp_path / "train.en", out=tmp_path / "run")
    assert code == 2
    assert f"{tmp_path / 'train.fr'} has 3 lines and {tmp_path / 'train.en'} has 2" in said


def test_a_bad_text_leaves_no_run_behind(tmp_path: Path) -> None:
    """Or `regard predict` would take it for the newest, and another `regard train` would not be let in."""
    train(write(tmp_path, train_tsv="alone\n"), out=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_text_that_was_mended_is_trained_on_by_the_same_command(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="alone\n", val_tsv=GOOD)
    assert train(tmp_path, out=tmp_path / "run")[0] == 2
    write(tmp_path, train_tsv=GOOD * 8)
    assert train(tmp_path, out=tmp_path / "run")[0] == 0


# Odd, but good.


def ids(run: Path) -> dict[str, bytes]:
    """What the model reads, and the tokenizers it is read with."""
    files = [*run.glob("data/*.npy"), run / "tokenizer.json", run / "source_tokenizer.json"]
    return {file.name: file.read_bytes() for file in files}


BODY = "".join(f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(20))


@pytest.mark.parametrize("change", [lambda text: text.replace(b"\n", b"\r\n"), lambda text: b"\xef\xbb\xbf" + text,
                                    lambda text: text.removesuffix(b"\n")], ids=["CRLF", "BOM", "no last newline"])
def test_the_bytes_around_the_lines_change_no_token(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    plain = write(tmp_path / "plain", train_tsv=BODY, val_tsv=GOOD)
    other = write(tmp_path / "other", train_tsv=change(BODY.encode()), val_tsv=change(GOOD.encode()))
    assert train(plain, out=tmp_path / "a")[0] == train(other, out=tmp_path / "b")[0] == 0
    assert ids(tmp_path / "a") == ids(tmp_path / "b")


@pytest.mark.parametrize("character", ["\u2028", "\u0085", "\x1c", "\x0b"], ids=ascii)
def test_only_a_newline_ends_a_line(tmp_path: Path, character: str) -> None:
    write(tmp_path, train_tsv=f"{BODY}a{character}b\tc{character}d\n", val_tsv=f"a{character}b\tc{character}d\n")
    code, said = train(tmp_path, out=tmp_path / "run")
    assert code == 0
    assert "21 examples" in said
    kept = [json.loads(line) for line in (tmp_path / "run/data/val.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert kept == [{"source": f"a{character}b", "target": f"c{character}d"}]


def test_a_line_of_ten_megabytes_is_cut_with_a_note(tmp_path: Path) -> None:
    long = "mot " * 2_500_000
    write(tmp_path, train_tsv=f"{BODY}{long}\tlong\n", val_tsv=GOOD)
    code, said = train(tmp_path, out=tmp_path / "run", settings=("data.max_tokens=16",))
    assert code == 0
    assert "note: 1 of 21 sources of train cut to data.max_tokens=16 tokens" in said


@pytest.mark.slow
def test_the_same_line_many_times_takes_seconds(tmp_path: Path) -> None:
    write(tmp_path, train_tsv=GOOD * 100_000)
    began = time.perf_counter()
    code, said = train(tmp_path, out=tmp_path / "run")
    assert code == 0
    assert "source lines of val also stand in train" in said
    assert time.perf_counter() - began < 60


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "words"])
def test_a_text_with_few_characters_trains_a_smaller_vocabulary_and_says_so(tmp_path: Path, kind: str) -> None:
    write(tmp_path, train_tsv="a b\tb a\n" * 8, val_tsv="a\tb\n")
    code, said = train(tmp_path, out=tmp_path / "run", settings=(f"tokens.kind={kind}", "tokens.vocabulary=5000"))
    size = len(Tokenizer.load(tmp_path / "run/tokenizer.json"))
    assert code == 0
    assert size < 300
    assert f"fewer distinct pieces than tokens.vocabulary=5000: {size} tokens are used" in said


def test_lines_that_train_and_test_share_are_counted(tmp_path: Path) -> None:
    write(tmp_path, train_tsv=BODY, val_tsv="neuf\tnew\n", test_tsv="".join(BODY.splitlines(keepends=True)[:3]) + GOOD)
    code, said = train(tmp_path, out=tmp_path / "run")
    assert code == 0
    assert "note: 3 of 4 source lines of test also stand in train" in said


def test_the_first_example_is_shown_as_it_was_read(tmp_path: Path) -> None:
    path = write(tmp_path, pairs_tsv=f"English\tFrench\n[/b] the red\x1b[2J cat\tle chat rouge\n{GOOD}") / "pairs.tsv"
    code, said = train(path, out=tmp_path / "run", settings=("data.source=French", "data.target=English"))
    assert code == 0
    assert "first example: le chat rouge → [/b] the red\\x1b[2J cat\n" in said
    code, said = train(path, out=tmp_path / "other", settings=("data.source=Klingon", "data.target=English"))
    assert code == 2
    assert "no such column; the first line has 'English', 'French'" in said


def test_a_side_is_not_named_where_no_data_is(tmp_path: Path) -> None:
    code, said = train(out=tmp_path / "run", settings=("data.source=Klingon",))
    assert code == 2
    assert said.startswith("regard: --source Klingon: goes with --data")


def test_two_tasks_are_refused_with_the_one_to_change(tmp_path: Path) -> None:
    code, said = train(out=tmp_path / "run", settings=("task=language",))
    assert code == 2
    assert said.startswith("regard: translate and --set task=language: two tasks; leave out --set task=language, or "
                           "the word translate")
