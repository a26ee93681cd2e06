"""Labelled files: what is written in any of the formats is read again, and what cannot be is refused with its place."""

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.labelled import Columns, LabelledFile, Sample, read_corpus, read_file
from regard.data.splits import find_splits, find_tests
from regard.settings.errors import UserError

ONE, MANY = Columns(), Columns(several=True)

# Whatever UTF-8 can say on one line of a table, without NUL.
CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\t\r\n"), max_size=20)
# A label is an answer: on one line, without space around it.
LABEL = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)
ROWS = st.lists(st.tuples(CELL, LABEL), min_size=1, max_size=6)
JUNK = st.binary(max_size=60) | st.text('{}[]":,\t\n\r ab1_labetx', max_size=60).map(str.encode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property: each writes its files anew."""
    return tmp_path_factory.mktemp("labelled")


def pairs(file: LabelledFile) -> list[tuple[str, str]]:
    return [(sample.text, *sample.labels) for sample in file.samples]


@given(ROWS)
def test_tsv_survives_there_and_back_again(folder: Path, rows: list[tuple[str, str]]) -> None:
    rows = [("text", "label"), *rows]
    (folder / "a.tsv").write_bytes("".join(f"{text}\t{label}\n" for text, label in rows).encode())
    assert pairs(read_file(folder / "a.tsv", ONE)) == rows[1:]


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=20), LABEL),
                min_size=1, max_size=6))
def test_csv_survives_there_and_back_again_with_commas_quotes_and_newlines(folder: Path,
                                                                          rows: list[tuple[str, str]]) -> None:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([("text", "label"), *rows])
    (folder / "a.csv").write_bytes(written.getvalue().encode())
    assert pairs(read_file(folder / "a.csv", ONE)) == rows


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), LABEL), min_size=1, max_size=6),
       st.booleans())
def test_jsonl_survives_there_and_back_again(folder: Path, rows: list[tuple[str, str]], escaped: bool) -> None:
    lines = [json.dumps({"id": 7, "label": label, "text": text}, ensure_ascii=escaped) for text, label in rows]
    (folder / "a.jsonl").write_bytes("".join(line + "\n" for line in lines).encode())
    assert pairs(read_file(folder / "a.jsonl", ONE)) == rows


@settings(max_examples=300)
@given(JUNK, st.booleans())
def test_any_bytes_give_samples_or_a_refusal_that_names_the_file(folder: Path, junk: bytes, several: bool) -> None:
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.all"):
        (folder / name).write_bytes(junk)
        try:
            said = str(read_file(folder / name, Columns(several=several)).path)
        except UserError as error:
            said = str(error)
        assert said.startswith(str(folder / name))


@pytest.mark.parametrize(("name", "content"), [
    ("a.tsv", "good film\tpos\nbad film\tneg\n"),
    ("a.tsv", "sentence\tlabel\ngood film\tpos\nbad film\tneg\n"),
    ("a.tsv", "label\tid\ttext\npos\t1\tgood film\nneg\t2\tbad film\n"),
    ("a.csv", "good film,pos\r\n\r\nbad film,neg\r\n"),
    ("a.csv", '\ufefflabel,text\npos,"good film"\nneg,bad film\n'),
    ("a.jsonl", '{"text": "good film", "label": "pos"}\n\n{"sentence": "bad film", "label": " neg "}\n'),
    ("a.txt", "pos good film\nneg bad film\n"),
])
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_samples_come_from_every_format(tmp_path: Path, name: str, content: str, packed: bool) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert pairs(read_file(path, ONE)) == [("good film", "pos"), ("bad film", "neg")]


def test_columns_and_keys_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("stars,label,review\n5,x,good\n1,y,bad\n")
    (tmp_path / "a.jsonl").write_text('{"review": "good", "stars": 5}\n{"review": "bad", "stars": 1}\n')
    for name in ("a.csv", "a.jsonl"):
        assert pairs(read_file(tmp_path / name, Columns("review", "stars"))) == [("good", "5"), ("bad", "1")]
    assert pairs(read_file(tmp_path / "a.csv", Columns("review"))) == [("good", "x"), ("bad", "y")]


def test_a_label_in_json_may_be_a_number_or_a_truth_value(tmp_path: Path) -> None:
    lines = [{"text": "a", "label": value} for value in (0, 1.5, True, False, " b  c ")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [label for _, label in pairs(read_file(tmp_path / "a.jsonl", ONE))] == ["0", "1.5", "true", "false", "b c"]


def test_several_labels_have_commas_between_them_or_are_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\tb, a,b\ny\t\n")
    (tmp_path / "a.jsonl").write_text('{"text": "x", "labels": ["b", "a"]}\n{"text": "y", "labels": []}\n')
    for name in ("a.tsv", "a.jsonl"):
        assert read_file(tmp_path / name, MANY).samples == [Sample("x", ("a", "b")), Sample("y", ())]


# Name of the file, what it holds, and what is said of it; PATH stands for the file's path.
REFUSED = {
    "empty": ("a.tsv", "", "PATH: no labelled text in it"),
    "only blank lines": ("a.tsv", " \n\n\t\n", "PATH: no labelled text in it"),
    "only a header": ("a.csv", "text,label\n", "PATH: no labelled text in it"),
    "one column": ("a.tsv", "a\tx\nalone\n", "PATH:2: one column instead of two: text, a tab, label"),
    "three columns": ("a.csv", "a,x\nb,y,z\n", "PATH:2: 3 columns instead of two: text, a comma, label"),
    "fewer than the header": ("a.csv", "id,text,label\n1,a,x\n2,b\n", "PATH:3: 2 columns, but the first line has 3"),
    "half a header": ("a.tsv", "text\tsentiment\na\tx\n", "PATH:1: no column 'label'; the first line has 'text', "
                                                          "'sentiment'; choose one with --target"),
    "no label": ("a.tsv", "a\tx\nb\t \n", "PATH:2: no label"),
    "broken quotes": ("a.csv", 'a,x\n"b"c,y\n', "PATH:2: broken CSV"),
    "a quote without an end": ("a.csv", 'a,x\n"b,y\n', "PATH:2: broken CSV"),
    "a missing key": ("a.jsonl", '{"text": "a", "lable": 1}\n', "PATH:1: no key 'label'; the keys are 'text', 'lable'"),
    "a list": ("a.jsonl", '{"text": "a", "label": ["x"]}\n', "PATH:1: a list of labels; with --set data.multi_label"),
    "null": ("a.jsonl", '{"text": "a", "label": null}\n', "PATH:1: the label is null"),
    "a number for a text": ("a.jsonl", '{"text": 1, "label": "x"}\n', "PATH:1: 'text' is a number"),
    "half a character": ("a.jsonl", '{"text": "a", "label": "\\ud800"}\n', "PATH:1: 'label' contains the lone"),
}


@pytest.mark.parametrize(("name", "content", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as refused:
        read_file(tmp_path / name, ONE)
    assert str(refused.value).startswith(sentence.replace("PATH", str(tmp_path / name)))


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\na\tx\n")
    with pytest.raises(UserError, match="no column 'review'; the first line has 'text', 'label'"):
        read_file(tmp_path / "a.tsv", Columns("review"))
    (tmp_path / "a.all").write_text("x a\n")
    with pytest.raises(UserError, match="--source and --target name columns"):
        read_file(tmp_path / "a.all", Columns("review"))


def test_a_label_with_a_comma_cannot_be_one_of_several(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": ["a,b"]}\n')
    with pytest.raises(UserError, match="has a comma"):
        read_file(tmp_path / "a.jsonl", MANY)


# Splits.


def fill(folder: Path, **files: str) -> Path:
    """Files by name, with `__` for the dot."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


FEW = "a x\nb y\nc x\nd y\n"


def test_a_part_of_a_name_says_the_split(tmp_path: Path) -> None:
    fill(tmp_path, README__md="text", TREC__train__all=FEW, TREC__test__all=FEW, TREC__dev__all=FEW)
    found, notes = find_splits([tmp_path])
    assert {split: path.name for split, path in found.items()} == {
        "train": "TREC.train.all", "val": "TREC.dev.all", "test": "TREC.test.all"}
    assert notes == ()
    assert find_splits([tmp_path / "TREC.train.all"])[0] == found
    assert find_splits([found["test"], found["train"]])[0] == {"train": found["train"], "test": found["test"]}
    assert find_tests(tmp_path) == [found["test"]]


def test_only_files_called_like_train_belong_to_it(tmp_path: Path) -> None:
    fill(tmp_path, train__tsv=FEW, test__tsv=FEW, test_hard__tsv=FEW, test__log="", valid__json="")
    assert list(find_splits([tmp_path])[0]) == ["train", "test", "test_hard"]
    assert find_tests(tmp_path) == [tmp_path / "test.tsv", tmp_path / "test_hard.tsv"]


def test_words_that_only_begin_like_a_split_and_documents_are_not_in_the_way(tmp_path: Path) -> None:
    fill(tmp_path, test__jsonl=FEW, testing__md="text", testing__jsonl=FEW, test__md="text", training__csv=FEW)
    assert find_tests(tmp_path) == [tmp_path / "test.jsonl"]
    fill(tmp_path, train__jsonl=FEW, train__md="text", testb__jsonl=FEW, test2016__jsonl=FEW, testset__jsonl=FEW)
    assert list(find_splits([tmp_path])[0]) == ["train", "test", "test2016", "testb", "testset"]
    assert find_splits([tmp_path / "train.md"])[0]["train"] == tmp_path / "train.md"  # who names it means it


def test_of_a_treebank_the_sentences_are_measured_and_not_their_plain_text(tmp_path: Path) -> None:
    ud = "en_ewt-ud"
    files = {f"{ud}-{split}__{ending}": FEW for split in ("train", "test") for ending in ("conllu", "txt")}
    assert find_tests(fill(tmp_path, **files), kinds=("conllu", "txt")) == [tmp_path / f"{ud}-test.conllu"]


def test_one_file_of_any_name_is_train(tmp_path: Path) -> None:
    fill(tmp_path, reviews__tsv=FEW, test__tsv=FEW)
    assert list(find_splits([tmp_path / "reviews.tsv"])[0]) == ["train"]


@pytest.mark.parametrize(("names", "given", "message"), [
    (["train.tsv", "train.csv"], ["."], "train.csv and train.tsv would both be train; pass the files"),
    (["test.tsv"], ["."], "no split to train on; .* found test.tsv"),
    (["train.json"], ["."], "no split to train on; .* found train.json"),
    (["README"], ["."], "no split to train on; .* found no split"),
    (["train.tsv", "more.tsv"], ["train.tsv", "more.tsv"], "more.tsv: each of several files must have its split"),
    (["test.tsv", "val.tsv"], ["test.tsv", "val.tsv"], "none of them is train"),
    (["a-train.tsv", "b-train.tsv"], ["a-train.tsv", "b-train.tsv"], "would both be train; leave one of them out"),
    (["train.tsv"], [".", "train.tsv"], "is a directory; pass one directory, or files"),
    ([], ["absent.tsv"], "absent.tsv: no such file or directory"),
])
def test_splits_that_cannot_be_told_are_refused(tmp_path: Path, names: list[str], given: list[str],
                                                message: str) -> None:
    for name in names:
        (tmp_path / name).write_text(FEW)
    with pytest.raises(UserError, match=message):
        find_splits([tmp_path / name for name in given])


def test_an_empty_folder_and_empty_folders_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r": the folder is empty$"):
        find_splits([tmp_path])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=r": its folders hold no file: a/, b/$"):
        find_splits([tmp_path])
    (tmp_path / "b" / "train.tsv").write_text(FEW)
    with pytest.raises(UserError, match="no split to train on"):
        find_splits([tmp_path])


def test_a_folder_without_a_test_is_none(tmp_path: Path) -> None:
    fill(tmp_path, train__tsv=FEW)
    with pytest.raises(UserError, match="contains no test"):
        find_tests(tmp_path)


def test_without_validation_a_share_of_every_label_is_held_out(tmp_path: Path) -> None:
    labels = ["common"] * 200 + ["rare"] * 20 + ["once"]
    (tmp_path / "a.tsv").write_text("".join(f"text {n}\t{label}\n" for n, label in enumerate(labels)))
    corpus = read_corpus([tmp_path / "a.tsv"], ONE, held_out=0.1)
    counts = {split: Counter(sample.labels[0] for sample in its) for split, its in corpus.splits.items()}
    assert counts == {"train": {"common": 180, "rare": 18, "once": 1}, "val": {"common": 20, "rare": 2}}
    assert corpus.notes == ("3 labels: common (200), rare (20), once (1)",
                            "no val split: 22 of 221 texts of train are held out as val")
    assert read_corpus([tmp_path / "a.tsv"], ONE, held_out=0.1) == corpus


def test_of_few_texts_one_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tx\nb\ty\nc\tx\n")
    splits = read_corpus([tmp_path / "a.tsv"], ONE, held_out=0.1).splits
    assert [sample.labels for sample in splits["val"]] == [("x",)]
    assert {sample.labels for sample in splits["train"]} == {("x",), ("y",)}
    (tmp_path / "a.tsv").write_text("a\tx\nb\ty\n")
    with pytest.raises(UserError, match="no label has two texts"):
        read_corpus([tmp_path / "a.tsv"], ONE, held_out=0.1)


@pytest.mark.parametrize(("files", "message"), [
    ({"train": "a\tx\nb\tx\n"}, "train.tsv: all texts have one label, 'x'; at least two"),
    ({"train": "a\tx\nb\ty\n", "test": "c\tx\nd\tz\n"}, "test.tsv:2: unknown label 'z'; the model knows x, y"),
    ({"train": "".join(f"pos\ttext {n}\n" for n in range(20))}, "20 different labels of 20 texts; is the label in"),
])
def test_labels_that_cannot_be_learned_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for split, content in files.items():
        (tmp_path / f"{split}.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        read_corpus([tmp_path], ONE, held_out=0.1)


def test_texts_that_train_and_test_share_are_counted(tmp_path: Path) -> None:
    fill(tmp_path, train__tsv="a\tx\nb\ty\n", val__tsv="c\tx\n", test__tsv="a\tx\nd\ty\n\ty\n")
    assert read_corpus([tmp_path], ONE, held_out=0.1).notes == (
        f"{tmp_path / 'test.tsv'}: 1 of 3 texts is empty", "2 labels: x (1), y (1)",
        "1 of 3 texts of test also stands in train")


def test_an_old_file_in_latin_1_is_read_and_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "old.all").write_bytes("0 sisterðcity\n1 été\n".encode("latin-1"))
    file = read_file(tmp_path / "old.all", ONE)
    assert pairs(file) == [("sisterðcity", "0"), ("été", "1")]
    assert file.notes == (f"{tmp_path / 'old.all'}: is not UTF-8; reading it as Latin-1",)
    (tmp_path / "new.tsv").write_bytes("été\t1\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"new.tsv:1: byte 0xe9 at offset 0 is not UTF-8"):
        read_file(tmp_path / "new.tsv", ONE)


def test_a_cell_of_a_long_document_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{'word ' * 50_000},x\nshort,y\n")
    assert len(read_file(tmp_path / "a.csv", ONE).samples[0].text) == 250_000


# What a person may have meant otherwise.


def corpus_of(folder: Path, name: str, lines: list[str]) -> tuple[str, ...]:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return read_corpus([folder / name], Columns(), held_out=0.1).notes


def test_labels_are_counted_for_the_user_and_a_first_line_that_may_be_no_example_is_spoken_of(tmp_path: Path) -> None:
    rows = [f"text number {n}\t{'good' if n % 2 else 'bad'}" for n in range(60)]
    assert "2 labels: bad (30), good (30)" in corpus_of(tmp_path, "plain.tsv", rows)
    notes = corpus_of(tmp_path, "named.tsv", ["review\tmood", *rows])
    assert any("no other text has the label 'mood'" in note and "--source and --target" in note for note in notes)


def test_the_usual_names_of_columns_may_be_in_capitals(tmp_path: Path) -> None:
    rows = [f"text number {n}\t{'good' if n % 2 else 'bad'}" for n in range(60)]
    assert "2 labels: bad (30), good (30)" in corpus_of(tmp_path, "plain.tsv", ["Text\tLabel", *rows])


def test_columns_that_seem_to_be_the_other_way_round_are_refused(tmp_path: Path) -> None:
    rows = [f"{'good' if n % 2 else 'bad'}\tthis is the text with number {n % 12}" for n in range(60)]
    with pytest.raises(UserError, match="labels of 7 words on average, and texts of 1; is the label in another"):
        corpus_of(tmp_path, "turned.tsv", rows)
