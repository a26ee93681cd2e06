"""Words and their tags come out of files as they stand there, and what is wrong with a file is said with its place."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.conllu import Tagged, Treebank, find_treebank, read_treebank
from regard.settings.errors import UserError


def row(id: str | int, form: str, upos: str = "NOUN", xpos: str = "NN") -> str:
    return "\t".join([str(id), form, form, upos, xpos, "_", "0", "root", "_", "_"]) + "\n"


GO = "# text = don't go\n" + row("1-2", "don't", "_") + row(1, "do", "AUX", "VBP") + row(2, "n't", "PART", "RB") + \
    row(3, "go", "VERB", "VB") + row("3.1", "there", "ADV") + "\n"
CITY = row(1, "New York", "PROPN", "NNP") + row(2, "sleeps", "VERB", "VBZ") + "\n"


def read(folder: Path, text: str | bytes, *, name: str = "words.conllu", column: str | None = None,
         held_out: float = 0.5) -> Treebank:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_treebank([file], column=column, held_out=held_out)


def refused(folder: Path, text: str, *, name: str = "words.conllu", column: str | None = None) -> str:
    with pytest.raises(UserError) as error:
        read(folder, text, name=name, column=column)
    return str(error.value).replace(f"{folder / name}", "PATH")


def test_ranges_and_empty_nodes_are_skipped_and_the_words_are_kept(tmp_path: Path) -> None:
    found = read(tmp_path, GO + CITY)
    assert found.splits["train"] == [Tagged(("do", "n't", "go"), ("AUX", "PART", "VERB"))]


def test_a_space_inside_a_word_does_not_break(tmp_path: Path) -> None:
    found = read(tmp_path, GO + CITY)
    assert found.splits["val"] == [Tagged(("New\u00a0York", "sleeps"), ("PROPN", "VERB"))]


@pytest.mark.parametrize(("column", "tags"), [("xpos", ("VBP", "RB", "VB")), ("XPOS", ("VBP", "RB", "VB")),
                                              ("lemma", ("do", "n't", "go")), ("deprel", ("root",) * 3)])
def test_another_column_can_be_the_tag(tmp_path: Path, column: str, tags: tuple[str, ...]) -> None:
    assert read(tmp_path, GO + CITY, column=column).splits["train"][0].tags == tags


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_the_last_sentence_needs_no_blank_line(tmp_path: Path, end: str) -> None:
    assert len(read(tmp_path, (GO + CITY).rstrip("\n") + end).splits["val"]) == 1


def test_line_ends_of_windows_and_a_gzip_change_nothing(tmp_path: Path) -> None:
    plain = read(tmp_path, GO + CITY).splits
    assert read(tmp_path, (GO + CITY).replace("\n", "\r\n")).splits == plain
    assert read(tmp_path, gzip.compress((GO + CITY).encode()), name="words.conllu.gz").splits == plain


@pytest.mark.parametrize("between", [" ", "\t", "   "])
def test_columns_have_a_tab_or_spaces_between_them(tmp_path: Path, between: str) -> None:
    text = "-DOCSTART- O\n\nMarie NAME\nsleeps O\n\n# O\n".replace(" ", between)
    found = read(tmp_path, text, name="words.conll")
    assert found.splits == {"train": [Tagged(("Marie", "sleeps"), ("NAME", "O"))], "val": [Tagged(("#",), ("O",))]}


def test_a_number_may_be_the_first_word_of_a_file_of_columns(tmp_path: Path) -> None:
    found = read(tmp_path, "1995\tNUM\nwas\tAUX\n\nit\tPRON\n", name="words.tsv")
    assert found.splits["train"] == [Tagged(("1995", "was"), ("NUM", "AUX"))]


def test_conllu_of_another_name_may_begin_with_an_empty_node(tmp_path: Path) -> None:
    found = read(tmp_path, row("0.1", "there", "ADV") + row(1, "go", "VERB") + f"\n{GO}", name="words.txt")
    assert found.splits["train"] == [Tagged(("go",), ("VERB",))]


def test_of_many_columns_the_last_is_the_tag_or_the_one_that_is_named(tmp_path: Path) -> None:
    text = "Marie NNP B-NP B-PER\n\nsleeps VBZ B-VP O\n"
    assert read(tmp_path, text, name="words.txt").splits["train"][0].tags == ("B-PER",)
    assert read(tmp_path, text, name="words.txt", column="2").splits["train"][0].tags == ("NNP",)


BAD = {
    "nothing": ("", "PATH: the file is empty"),
    "comments alone": ("# a\n\n# b\n", "PATH: no word in it, only blank lines and comments (3 of them)"),
    "a column is missing": (GO + "1\tdog\tNOUN\n", "PATH:8: 3 columns, where CoNLL-U has ten with tabs between them"),
    "spaces for tabs": (row(1, "dog").replace("\t", " "), "PATH:1: one column, where CoNLL-U has ten"),
    "an id out of order": (row(1, "a") + row(3, "b"), "PATH:2: the word's id is '3' instead of 2; a blank line"),
    "no blank line": (row(1, "a") + row(1, "b"), "PATH:2: the word's id is '1' instead of 2; a blank line"),
    "an id of many digits": (row("9" * 5000, "a"), "PATH:1: the word's id is"),
    "no id": (row("one", "a"), "PATH:1: the word's id is 'one' instead of 1"),
    "no word": (row(1, ""), "PATH:1: the word is missing: its column is empty"),
    "no tag": (row(1, "dog", ""), "PATH:1: the tag is missing: its column is empty"),
    "a single sentence": (CITY, "PATH: only one sentence; at least two are needed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_conllu_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    text, message = BAD[name]
    assert refused(tmp_path, text).startswith(message)


BAD_COLUMNS = {
    "one column": ("Marie\n", None, "PATH:1: one column instead of two: a word, a tab or spaces, its tag"),
    "one more": ("a X\nb Y Z\n", None, "PATH:2: 3 columns instead of 2, as above,"),
    "a name": ("a X\n", "xpos", "--target xpos: the columns of such a file have no names; give a number"),
    "a number too high": ("a X\n", "3", "--target 3: PATH:1 has the columns 1, the word, to 2"),
    "the word itself": ("a X\n", "1", "--target 1: PATH:1 has the columns 1, the word, to 2"),
    "a document's start alone": ("-DOCSTART- O\n\n", None, "PATH: no sentence in it"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_what_is_wrong_with_columns_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    text, column, message = BAD_COLUMNS[name]
    assert refused(tmp_path, text, name="words.conll", column=column).startswith(message)


def test_a_column_that_is_not_there_is_answered_with_the_near_one_or_with_all(tmp_path: Path) -> None:
    assert refused(tmp_path, CITY, column="upso") == "--target upso: no such column of CoNLL-U; did you mean upos?"
    assert "there are lemma, upos, xpos, feats" in refused(tmp_path, CITY, column="colour")
    assert "no such column" in refused(tmp_path, CITY, column="form")


Sentences = list[list[tuple[str, str]]]


@given(st.lists(st.lists(st.tuples(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda word: word.strip(" ")),
    st.sampled_from(["NOUN", "VERB"])), min_size=1), min_size=2, max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, sentences: Sentences) -> None:
    text = "".join("".join(row(n, *pair) for n, pair in enumerate(pairs, 1)) + "\n" for pairs in sentences)
    found = read(tmp_path_factory.mktemp("data"), text)
    read_back = [*found.splits["train"], *found.splits["val"]]
    assert [[*zip(*sentence, strict=True)] for sentence in read_back] == [
        [(word.strip(" ").replace(" ", "\u00a0"), tag) for word, tag in pairs] for pairs in sentences]


# Which file is which split


def files(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).write_text(GO + CITY)
    return [folder / name for name in names]


def test_a_folder_has_its_splits_by_name(tmp_path: Path) -> None:
    files(tmp_path, "en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu", "en_ewt-ud-train.txt",
          "LICENSE.txt", "README.md", "en_ewt-ud-test_mail.conllu")
    found, _ = find_treebank([tmp_path])
    assert {split: file.name for split, file in found.items()} == {
        "train": "en_ewt-ud-train.conllu", "val": "en_ewt-ud-dev.conllu", "test": "en_ewt-ud-test.conllu",
        "test_mail": "en_ewt-ud-test_mail.conllu"}
    assert next(iter(found)) == "train"


def test_one_file_is_train_and_has_beside_it_what_belongs_to_it(tmp_path: Path) -> None:
    train, dev, other = files(tmp_path, "en-train.conllu", "en-dev.conllu", "mine.conllu")
    assert find_treebank([train]) == ({"train": train, "val": dev}, (f"val read from beside {train}",))
    assert find_treebank([dev]) == ({"train": dev}, ())
    assert find_treebank([other]) == ({"train": other}, ())


def test_several_files_say_what_they_are_for(tmp_path: Path) -> None:
    train, dev, other, second, test = files(
        tmp_path, "a-train.conll", "a-dev.conll", "mine.conll", "b-train.conll", "c-test.conll")
    assert find_treebank([dev, train]) == ({"train": train, "val": dev}, ())
    with pytest.raises(UserError, match=r"mine\.conll: each of several files must have its split in its name"):
        find_treebank([train, other])
    with pytest.raises(UserError, match=r"a-train\.conll and .*b-train\.conll would both be train"):
        find_treebank([train, second])
    with pytest.raises(UserError, match=r"a-dev\.conll, .*c-test\.conll: none of them is train"):
        find_treebank([dev, test])


def test_a_folder_without_a_split_to_train_on_says_what_it_has(tmp_path: Path) -> None:
    files(tmp_path, "dev.conllu")
    with pytest.raises(UserError, match=r"no split to train on; wanted a file such as train\.conllu; found dev"):
        find_treebank([tmp_path])
    with pytest.raises(UserError, match="no such file or directory"):
        find_treebank([tmp_path / "nowhere"])


def test_the_end_of_train_is_held_out_where_there_is_no_val(tmp_path: Path) -> None:
    text = "".join(row(1, f"word{n}") + "\n" for n in range(20))
    found = read(tmp_path, text, held_out=0.1)
    assert [sentence.words for sentence in found.splits["val"]] == [("word18",), ("word19",)]
    assert found.notes == ("no val split: the last 2 sentences of train held out as val",)


def test_sentences_that_train_and_a_test_share_are_counted(tmp_path: Path) -> None:
    files(tmp_path, "train.conllu", "dev.conllu")
    found = read_treebank([tmp_path])
    assert found.notes == ("2 of 2 sentences of val also stand in train",)
