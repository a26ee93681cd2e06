"""A corpus is what its files say, or a sentence that names the file, the place and the way out."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.layout import sides_of
from regard.data.text.parallel_files import Pair, ParallelTexts, read_pairs, read_test_pairs
from regard.settings.errors import UserError

TEXT = st.text(st.characters(exclude_characters="\n\r\0\t\ufeff", exclude_categories=["Cs"])).filter(str.strip)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5)
JUNK = st.lists(
    st.sampled_from([b"a", b"b\n", b"\n", b"\t", b'{"source": "a", "target": "b"}', b"{", b"}", b'"', b"\\ud800"])
    | st.binary(max_size=6)
).map(b"".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose files each example writes anew."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "val.tsv").write_text("v\tv\n")
    (folder / "val.jsonl").write_text('{"source": "v", "target": "v"}\n')
    (folder / "val.en").write_text("v\n")
    (folder / "val.de").write_text("v\n")
    return folder


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by name, with `_` for the dot: train_en is train.en."""
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


def refusal(*paths: Path, source: str | None = None, target: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_pairs(paths, source=source, target=target)
    assert caught.value.exit_code == 2
    return str(caught.value)


def rows(corpus: ParallelTexts, split: str = "train") -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in corpus.splits[split]]


def lines(texts: Sequence[str]) -> str:
    return "".join(text + "\n" for text in texts)


@settings(max_examples=1000)
@given(PAIRS)
def test_parallel_text_survives_there_and_back_again(folder: Path, pairs: list[tuple[str, str]]) -> None:
    sources, targets = zip(*pairs, strict=True)
    write(folder, train_en=lines(sources), train_de=lines(targets))
    corpus = read_pairs([folder / "train.en", folder / "train.de"])
    assert rows(corpus) == pairs
    assert corpus.languages == ("en", "de")


@settings(max_examples=1000)
@given(PAIRS)
def test_tsv_survives_there_and_back_again(folder: Path, pairs: list[tuple[str, str]]) -> None:
    write(folder, train_tsv=lines(["\t".join(pair) for pair in pairs]))
    assert rows(read_pairs([folder / "train.tsv"])) == pairs


@settings(max_examples=1000)
@given(PAIRS, st.booleans())
def test_jsonl_survives_there_and_back_again(folder: Path, pairs: list[tuple[str, str]], escaped: bool) -> None:
    records = [json.dumps({"source": s, "target": t, "id": 7}, ensure_ascii=escaped) for s, t in pairs]
    write(folder, train_jsonl=lines(records))
    assert rows(read_pairs([folder / "train.jsonl"])) == pairs


@settings(max_examples=1000)
@given(JUNK, JUNK)
def test_any_bytes_give_a_corpus_or_a_refusal(folder: Path, first: bytes, second: bytes) -> None:
    write(folder, train_tsv=first, train_jsonl=first, train_en=first, train_de=second)
    for names in (["train.tsv"], ["train.jsonl"], ["train.en", "train.de"]):
        assert_read_or_refused([folder / name for name in names])


@settings(max_examples=1000)
@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_broken_gzip_gives_a_corpus_or_a_refusal(folder: Path, noise: bytes, place: int) -> None:
    data = bytearray(gzip.compress(b"a\tb\n" * 20, mtime=0))
    data[place : place + len(noise)] = noise
    write(folder, pairs_tsv_gz=bytes(data))
    assert_read_or_refused([folder / "pairs.tsv.gz"])


def assert_read_or_refused(paths: Sequence[Path]) -> None:
    message = ""
    try:
        corpus = read_pairs(paths)
        assert all(pair.source.strip() and pair.target.strip() for pair in corpus.splits["train"])
    except UserError as error:
        message = str(error)
    assert not message or any(str(path) in message for path in paths)


# Which files


def test_a_directory_of_parallel_files_has_its_splits(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de=b"A\n", valid_en="b\n", valid_de="B\n", README_md="# read me\n")
    for language, text in (("en", b"c\n"), ("de", b"C\n"), ("fr", b"~\n")):
        (tmp_path / f"test_2016_flickr.{language}.gz").write_bytes(gzip.compress(text))
    corpus = read_pairs([tmp_path], source="de", target="en")
    expected = {"train": ("A", "a"), "val": ("B", "b"), "test_2016_flickr": ("C", "c")}
    splits = {split: [Pair(*pair)] for split, pair in expected.items()}
    assert corpus == ParallelTexts(splits, ("de", "en"), (), Pair("A", "a"))


@pytest.mark.parametrize("name", ["val", "valid", "validation", "dev"])
def test_val_has_many_names(tmp_path: Path, name: str) -> None:
    write(tmp_path, train_tsv="a\tA\n", **{f"{name}_tsv": "b\tB\n"})
    assert rows(read_pairs([tmp_path]), "val") == [("b", "B")]


def test_the_direction_is_the_users_choice(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n")
    message = refusal(tmp_path)
    assert "de, en" in message
    assert "--source" in message
    assert "--target" in message


def test_of_two_languages_one_names_the_other(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\nb\n", train_de="A\nB\n")
    assert read_pairs([tmp_path], source="de").languages == ("de", "en")
    assert read_pairs([tmp_path], target="de").languages == ("en", "de")


def test_an_unknown_language_is_refused_with_the_near_one(tmp_path: Path) -> None:
    write(tmp_path, train_eng="a\n", train_de="A\n")
    assert "did you mean eng?" in refusal(tmp_path, source="en", target="de")


def test_a_language_is_not_translated_into_itself(tmp_path: Path) -> None:
    assert "both 'en'" in refusal(tmp_path, source="en", target="en")


def test_two_files_are_the_sides_in_the_order_given(tmp_path: Path) -> None:
    write(tmp_path, one_en="a\nb\n", two_de="A\nB\n")
    corpus = read_pairs([tmp_path / "two.de", tmp_path / "one.en"])
    assert corpus.languages == ("de", "en")
    assert {("A", "a"), ("B", "b")} == {*rows(corpus), *rows(corpus, "val")}


def test_source_and_target_turn_two_files_round(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n", val_en="b\n", val_de="B\n")
    corpus = read_pairs([tmp_path / "train.en", tmp_path / "train.de"], source="de", target="en")
    assert (rows(corpus), rows(corpus, "val")) == ([("A", "a")], [("B", "b")])


def test_source_and_target_that_fit_only_one_file_are_refused(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n")
    message = refusal(tmp_path / "train.en", tmp_path / "train.de", source="en", target="fr")
    assert "en and fr" in message


def test_files_that_name_no_language_take_the_names_given(tmp_path: Path) -> None:
    write(tmp_path, a_txt="a\nb\n", b_txt="A\nB\n")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert read_pairs(files).languages == ("source", "target")
    assert read_pairs(files, source="en", target="de").languages == ("en", "de")


def test_the_splits_beside_train_come_along(tmp_path: Path) -> None:
    for folder, text in (("en", "a"), ("de", "A")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, train_txt=f"{text}\n", dev_txt=f"{text}2\n", test_txt=f"{text}3\n")
    corpus = read_pairs([tmp_path / "en" / "train.txt", tmp_path / "de" / "train.txt"])
    assert rows(corpus, "val") == [("a2", "A2")]
    assert rows(corpus, "test") == [("a3", "A3")]
    assert "val, test read from beside" in corpus.notes[0]


def test_a_split_that_lacks_a_side_is_left_out_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n", val_en="b\n", val_de="B\n", test_en="c\n")
    corpus = read_pairs([tmp_path], source="en", target="de")
    assert set(corpus.splits) == {"train", "val"}
    assert corpus.notes == ("test is left out: its de side is missing",)


def test_no_train_split_is_refused_with_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, dev_en="a\n", test_de="A\n")
    assert "found dev.en, test.de" in refusal(tmp_path)


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    assert "the folder is empty" in refusal(tmp_path)


@pytest.mark.parametrize("files", [("train.en", "train.en.gz"), ("val.en", "dev.en")])
def test_two_files_for_one_split_are_refused(tmp_path: Path, files: tuple[str, str]) -> None:
    write(tmp_path, train_de="A\n", train_en="a\n", val_de="A\n")
    for name in files:
        (tmp_path / name).write_text("a\n")
    message = refusal(tmp_path, source="en", target="de")
    assert all(name in message for name in files)


def test_a_directory_of_two_formats_is_refused(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="a\tA\n", train_jsonl="{}\n")
    assert "train is there as jsonl and as tsv" in refusal(tmp_path)


def test_paths_that_make_no_corpus_are_refused(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n", train_tsv="a\tA\n")
    en, de, tsv = (tmp_path / f"train.{kind}" for kind in ("en", "de", "tsv"))
    assert "no such file or directory" in refusal(tmp_path / "none")
    assert "0 paths" in refusal()
    assert "3 paths" in refusal(en, de, tsv)
    assert "pass both sides" in refusal(en)
    assert "the same file" in refusal(en, en)
    assert "holds both sides" in refusal(en, tsv)
    assert "is a directory" in refusal(en, tmp_path)
    assert "is a directory" in refusal(tmp_path, tmp_path)
    assert "cannot be read" in refusal(Path("a\0b"))


# Which files are measured


def measured(*paths: Path, source: str | None = None, target: str | None = None,
             own: tuple[str | None, str | None] = ("fr", "en")) -> list[list[tuple[str, str]]]:
    corpus = read_test_pairs(paths, source=source, target=target, own=own)
    return [rows(corpus, split) for split in corpus.splits]


def refused(*paths: Path, source: str | None = None, target: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        measured(*paths, source=source, target=target)
    return str(caught.value)


def test_of_two_files_the_runs_own_languages_say_which_is_the_source(tmp_path: Path) -> None:
    write(tmp_path, new_en="a\n", new_txt="t\n", train_md="m\n", train_en="z\n")
    (tmp_path / "new.fr.gz").write_bytes(gzip.compress(b"A\n"))
    fr, en, text, other = (tmp_path / name for name in ("new.fr.gz", "new.en", "new.txt", "train.md"))
    assert measured(fr, en) == measured(en, fr) == [[("A", "a")]]
    assert measured(en, text) == measured(text, en) == measured(en, text, source="fr") == [[("t", "a")]]
    # Where the names do not tell, the first is; and no file beside them comes along, whatever they are called.
    assert measured(text, other) == [[("t", "m")]]
    assert measured(en, fr, own=(None, None)) == [[("a", "A")]]
    assert measured(fr, en, source="en", target="fr") == [[("a", "A")]]


def test_files_of_both_sides_and_parallel_ones_are_measured_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, a_fr="A\n", a_en="a\n", b_en="b\n", b_fr="B\n", c_tsv="C\tc\n",
          d_jsonl='{"en": "d", "fr": "D"}\n', e_jsonl='{"x": "E", "en": "e"}\n')
    a, b, c, d = [tmp_path / "a.fr", tmp_path / "a.en"], [tmp_path / "b.en", tmp_path / "b.fr"], tmp_path / "c.tsv", \
        tmp_path / "d.jsonl"
    corpus = read_test_pairs([*a, c, *b, d], own=("fr", "en"))
    assert list(corpus.splits) == [f"{a[0]} {a[1]}", str(c), f"{b[1]} {b[0]}", str(d)]
    assert measured(*a, c, *b, d) == [[("A", "a")], [("C", "c")], [("B", "b")], [("D", "d")]]
    assert measured(tmp_path / "e.jsonl", source="x") == [[("E", "e")]]


def test_of_a_directory_the_tests_are_measured_or_else_val(tmp_path: Path) -> None:
    write(tmp_path, train_fr="T\n", train_en="t\n", dev_fr="V\n", dev_en="v\n", dev_de="~\n")
    assert measured(tmp_path) == measured(tmp_path, source="fr", target="en") == [[("V", "v")]]
    write(tmp_path, test1_fr="A\n", test1_en="a\n", test2_fr="B\n", test2_en="b\n", test3_fr="C\n")
    assert measured(tmp_path) == measured(tmp_path, target="en") == [[("A", "a")], [("B", "b")]]
    assert measured(tmp_path, source="en", target="fr") == [[("a", "A")], [("b", "B")]]
    write(tmp_path, test1_de="~\n", test2_de="~\n")
    assert measured(tmp_path, source="fr") == measured(tmp_path, target="en") == [[("A", "a")], [("B", "b")]]
    for test in ("test1.de", "test2.de"):
        (tmp_path / test).unlink()
    assert measured(tmp_path, own=(None, "fr")) == [[("a", "A")], [("b", "B")]]
    assert read_test_pairs([tmp_path], own=("fr", "en")).notes == ("test3 is left out: its en side is missing",)
    (tmp_path / "json").mkdir()
    write(tmp_path / "json", test_jsonl='{"en": "d", "fr": "D"}\n', train_fr="T\n", train_en="t\n")
    assert measured(tmp_path / "json") == [[("D", "d")]]


def test_documents_and_words_that_only_begin_like_a_split_are_not_in_the_way_of_pairs(tmp_path: Path) -> None:
    write(tmp_path, val_fr="V\n", val_en="v\n", testing_md="text\n", test_md="text\n", testing_fr="~\n")
    assert measured(tmp_path, own=("fr", None)) == [[("V", "v")]]
    write(tmp_path, test_jsonl='{"en": "d", "fr": "D"}\n')
    assert measured(tmp_path) == [[("D", "d")]]
    write(tmp_path, train_fr="T\nU\n", train_en="t\nu\n", train_md="text\n", train_csv="T,t\n")
    assert list(read_pairs([tmp_path], source="fr").splits) == ["train", "val"]
    (tmp_path / "json").mkdir()
    assert "found train.json" in refusal(write(tmp_path / "json", train_json="{}"))


def test_what_makes_no_pairs_to_measure_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a_fr="A\nB\n", a_en="a\n", b_fr="A\n", c_tsv="C\tc\n", e_en="", train_fr="T\n", train_en="t\n")
    fr, en, other, tsv, empty = (tmp_path / name for name in ("a.fr", "a.en", "b.fr", "c.tsv", "e.en"))
    assert "a.fr has 2 lines and" in refused(en, fr)
    assert "pass both sides" in refused(fr)
    assert "pass both sides" in refused(fr, tsv)
    assert "pass both sides" in refused(fr, tmp_path)
    assert "b.fr: both names say fr; pass each source, and then its target" in refused(fr, other, en, en)
    assert "the same file" in refused(en, en, source="x", target="y")
    assert "--source and --target say de and en" in refused(fr, en, source="de", target="en")
    assert "both 'en'" in refused(fr, en, source="en", target="en")
    assert "would both be 'en'" in refused(fr, en, source="en")  # the run's own target
    assert "the file is empty" in refused(other, empty)
    assert "none: no such file or directory" in refused(fr, tmp_path / "none")
    assert "no test in it; wanted test.SOURCE" in refused(tmp_path)
    write(tmp_path, test_de="D\n", test_cs="C\n")
    assert "holds the languages cs, de; say which way" in refused(tmp_path)
    assert "--source fr: " in refused(tmp_path, source="fr")
    write(tmp_path, test_tsv="D\td\n")
    assert "test is there as cs and as de and as tsv" in refused(tmp_path)


@pytest.mark.parametrize(("names", "source", "target", "sides"), [
    (["train.fr", "train.en.gz"], None, None, ("fr", "en")), (["train.en", "train.fr"], "fr", None, ("fr", "en")),
    (["fr/train.txt", "en/train.txt"], None, None, (None, None)), (["corpus"], "fr", None, ("fr", None)),
    (["of-fr", "of.en"], None, None, (None, "en")), (["train.jsonl"], "from", "to", ("from", "to"))])
def test_the_sides_of_a_run_are_what_its_files_were_called(names: list[str], source: str | None, target: str | None,
                                                           sides: tuple[str | None, str | None]) -> None:
    assert sides_of([Path(name) for name in names], source=source, target=target) == sides


# What they hold


@pytest.mark.parametrize("name", ["train.tsv", "train.jsonl", "train.tsv.gz"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert refusal(tmp_path / name) == f"{tmp_path / name}: the file is empty"


@pytest.mark.parametrize("empty", ["train.en", "train.de"])
def test_an_empty_side_is_refused_by_name(tmp_path: Path, empty: str) -> None:
    write(tmp_path, train_en="a\n", train_de="A\n")
    (tmp_path / empty).write_bytes(b"")
    assert refusal(tmp_path, source="en", target="de") == f"{tmp_path / empty}: the file is empty"


def test_a_side_of_blank_lines_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\nb\n", train_de=" \n\n")
    assert refusal(tmp_path, source="en", target="de").startswith(f"{tmp_path / 'train.de'}: only blank lines")


def test_pairs_that_all_lack_a_side_are_refused(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n\n", train_de="\nB\n")
    assert "no pair has text on both sides" in refusal(tmp_path, source="en", target="de")


def test_one_side_longer_is_refused_with_both_counts(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\nb\nc\n", train_de="A\nB\n")
    message = refusal(tmp_path, source="en", target="de")
    assert "train.en has 3 lines" in message
    assert "train.de has 2" in message


def test_a_pair_with_a_blank_side_is_dropped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, train_en="a\n\n \nd\ne\n", train_de="A\nB\n\n\u3000\nE\n", val_en="v\n", val_de="V\n")
    corpus = read_pairs([tmp_path], source="en", target="de")
    assert rows(corpus) == [("a", "A"), ("e", "E")]
    assert corpus.notes == ("train: 3 of 5 pairs dropped because a side was blank",)


def test_crlf_gives_the_same_pairs(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="a\tA\r\nb\tB\r\n", val_tsv="v\tV\n")
    assert rows(read_pairs([tmp_path])) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(("line", "count"), [("alone", "one column"), ("a\tb\tc", "3 columns")])
def test_a_line_of_tsv_has_two_columns(tmp_path: Path, line: str, count: str) -> None:
    path = write(tmp_path, train_tsv=f"a\tA\n\n{line}\n") / "train.tsv"
    assert refusal(path).startswith(f"{path}:3: {count} instead of two")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"source": "a" "target": "b"}', "broken JSON at column 16"),
        ("[1, 2]", "an array instead of an object"),
        ("7", "a number instead of an object"),
        ('{"sorce": "a", "id": 1}', "no key 'source'; the keys are 'sorce', 'id'; did you mean 'sorce'?"),
        ("{}", "no key 'source'; the keys are none"),
        ('{"source": 7, "target": "b"}', "'source' is a number instead of a text"),
        ('{"source": null, "target": "b"}', "'source' is null"),
        ('{"source": "a", "target": true}', "'target' is a truth value"),
        ('{"source": "a", "target": ["b"]}', "'target' is an array"),
        ('{"source": "a", "target": "b", "source": "c"}', "the key 'source' is there twice"),
        ('{"source": "a", "target": "b", "x": NaN}', "NaN is not JSON"),
        ('{"source": "a", "target": "b", "x": -Infinity}', "-Infinity is not JSON"),
        ('{"source": "a\\ud800", "target": "b"}', "'source' contains the lone surrogate \\ud800"),
        ('{"source": ' + "[" * 100_000, "nested too deep"),
        ('{"source": ' + "1" * 5_000 + "}", "'source' is a number"),
    ],
    ids=lambda value: value[:24],
)
def test_a_line_of_jsonl_is_an_object_of_texts(tmp_path: Path, line: str, sentence: str) -> None:
    good = '{"source": "a", "target": "b"}\n'
    path = write(tmp_path, train_jsonl=f"{good}{line}\n{good}") / "train.jsonl"
    message = refusal(path)
    assert message.startswith(f"{path}:2: ")
    assert sentence in message


def test_source_and_target_name_the_keys_of_jsonl(tmp_path: Path) -> None:
    write(tmp_path, train_jsonl='{"en": "a", "de": "A"}\n', val_jsonl='{"en": "b", "de": "B"}\n')
    corpus = read_pairs([tmp_path], source="de", target="en")
    assert rows(corpus) == [("A", "a")]
    assert corpus.languages == ("de", "en")


def test_a_line_of_ten_megabytes_is_read(tmp_path: Path) -> None:
    long = "word " * 2_000_000
    write(tmp_path, train_tsv=f"a\tA\n{long}\t{long}\n", val_tsv="v\tV\n")
    assert rows(read_pairs([tmp_path]))[1] == (long, long)


# What is held out, and what is said


def test_a_hundredth_is_held_out_where_there_is_no_val(tmp_path: Path) -> None:
    write(tmp_path, train_tsv=lines([f"{n}\t{n}!" for n in range(1000)]))
    corpus = read_pairs([tmp_path])
    assert len(corpus.splits["val"]) == 10
    assert {*rows(corpus), *rows(corpus, "val")} == {(f"{n}", f"{n}!") for n in range(1000)}
    assert corpus.notes == ("no val split: 10 of 1,000 pairs of train are held out as val",)
    assert read_pairs([tmp_path]) == corpus


def test_what_is_said_of_a_single_pair_is_in_the_singular(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="a\tA\nb\tB\n\nc\tC\n")
    assert read_pairs([tmp_path]).notes == ("train: 1 of 4 pairs dropped because a side was blank",
                                            "no val split: 1 of 3 pairs of train is held out as val")
    write(tmp_path, b_fr="x\n", b_en="x\ny\n")
    assert "b.fr has 1 line and" in refusal(tmp_path / "b.fr", tmp_path / "b.en")


def test_what_is_held_out_does_not_depend_on_the_order(tmp_path: Path) -> None:
    texts = [f"{n}\t{n}!" for n in range(500)]
    there = read_pairs([write(tmp_path, train_tsv=lines(texts))])
    back = read_pairs([write(tmp_path, train_tsv=lines(texts[::-1]))])
    assert set(rows(there, "val")) == set(rows(back, "val"))


def test_equal_sources_are_held_out_together(tmp_path: Path) -> None:
    write(tmp_path, train_tsv=lines([f"{n % 100}\t{n}" for n in range(200)]))
    corpus = read_pairs([tmp_path])
    assert len(corpus.splits["val"]) == 2
    assert len({source for source, _ in rows(corpus, "val")}) == 1


def test_a_single_pair_cannot_be_split(tmp_path: Path) -> None:
    assert "only one pair" in refusal(write(tmp_path, train_tsv="a\tA\n"))


def test_lines_that_a_split_shares_with_train_are_counted(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="a\tA\nb\tB\n", val_tsv="a\tA\n", test_tsv="a\tX\nb\tB\nc\tC\n")
    assert read_pairs([tmp_path]).notes == (
        "1 of 1 source line of val also stands in train",
        "2 of 3 source lines of test also stand in train",
    )


MILLION = """
import sys, time
from pathlib import Path
from regard.data.text.parallel_files import read_pairs
start = time.process_time()
corpus = read_pairs([Path(sys.argv[1])])
assert [len(corpus.splits[split]) for split in ("train", "val")] == [998_000, 2_000]
assert time.process_time() - start < 15  # it takes about 2 s; were it quadratic, days
"""


def test_the_same_line_a_million_times_takes_seconds(tmp_path: Path) -> None:
    write(tmp_path, train_tsv="the same\tdasselbe\n" * 1_000_000)
    # In a process of its own, because here every call is checked for its types.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, "-c", MILLION, str(tmp_path)], env=environment, check=True)
