"""Files, folders, patterns, gzip and JSONL become the same documents, and every character lands in one split."""

import gzip
import json
import os
import tempfile
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.builtin import standard_library
from regard.data.corpus import Corpus, find_texts, pieces, read_corpus, read_tests
from regard.data.tokenizer import train
from regard.settings.errors import UserError

LINES = st.lists(st.text(st.sampled_from("ab  \n\té漢"), min_size=1, max_size=20), min_size=1, max_size=12)


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def corpus(*paths: Path, held_out: float = 0.1, key: str = "text") -> Corpus:
    return read_corpus(find_texts(paths), held_out=held_out, key=key)


def texts(found: Corpus) -> dict[str, list[str]]:
    return {split: ["".join(document) for document in text.documents()] for split, text in found.splits.items()}


# Which files there are.


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_of_a_folder_only_plain_files_are_read(tmp_path: Path) -> None:
    """Whoever opened the pipe would wait for ever."""
    os.mkfifo(written(tmp_path, {"a.txt": "a"}) / "pipe")
    assert [text.path.name for text in find_texts([tmp_path])] == ["a.txt"]


def test_a_link_to_a_folder_is_followed_but_not_in_circles(tmp_path: Path) -> None:
    """Without it, part of the text would be missing and nobody be told."""
    data, elsewhere = tmp_path / "data", written(tmp_path / "elsewhere", {"b.txt": "b"})
    written(data, {"a.txt": "a"})
    try:
        (data / "train").symlink_to(elsewhere, target_is_directory=True)
        (elsewhere / "back").symlink_to(data, target_is_directory=True)
    except OSError:
        pytest.skip("links are not allowed here")
    found = find_texts([data])
    assert [text.path.relative_to(data).as_posix() for text in found] == ["a.txt", "train/b.txt"]
    assert [text.split for text in found] == [None, "train"]


def test_a_folder_is_read_with_all_below_it_but_for_what_is_hidden(tmp_path: Path) -> None:
    files = {"b.txt": "b", "a/z.md": "z", "a/c/d.py": "d", ".git/x": "x", ".DS_Store": "y"}
    found = find_texts([written(tmp_path, files)])
    assert [text.path.relative_to(tmp_path).as_posix() for text in found] == ["b.txt", "a/z.md", "a/c/d.py"]


def test_a_pattern_means_the_files_it_fits(tmp_path: Path) -> None:
    written(tmp_path, {"b.txt": "b", "a/z.md": "z", "a/c/d.py": "d", "e.py": "e"})
    assert {text.path.name for text in find_texts([tmp_path / "**" / "*.py"])} == {"d.py", "e.py"}
    assert {text.path.name for text in find_texts([tmp_path / "*"])} == {"b.txt", "z.md", "d.py", "e.py"}


def test_what_is_meant_twice_is_read_once(tmp_path: Path) -> None:
    written(tmp_path, {"a.txt": "a"})
    assert len(find_texts([tmp_path, tmp_path / "a.txt", tmp_path / "*.txt"])) == 1


@pytest.mark.parametrize(("wanted", "said"), [
    ("nowhere.txt", "no such file or folder"), ("*.nothing", "no file of this name"),
    ("/dev/null", "not a plain file")])
def test_a_path_that_means_no_file_is_refused(tmp_path: Path, wanted: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_texts([tmp_path / wanted])


# Splits.


@pytest.mark.parametrize("names", [
    ("train.txt", "val.txt", "test.txt"), ("wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"),
    ("train/a.txt", "dev/a.txt", "test/a.txt"), ("train-00001.jsonl", "validation_0.jsonl", "test.jsonl")])
def test_a_name_says_which_split_it_is(tmp_path: Path, names: tuple[str, ...]) -> None:
    contents = [json.dumps({"text": word}) if names[0].endswith("jsonl") else word for word in ("one", "two", "three")]
    written(tmp_path, dict(zip(names, contents, strict=True)))
    assert texts(corpus(tmp_path)) == {"train": ["one"], "val": ["two"], "test": ["three"]}


def test_a_folder_of_tests_deep_in_a_tree_is_text_like_any_other(tmp_path: Path) -> None:
    written(tmp_path, {"src/tests/test_a.py": "a" * 10, "src/val.py": "b" * 10})
    assert set(corpus(tmp_path).splits) == {"train", "val"}
    assert "".join(chain(*texts(corpus(tmp_path)).values())) == "b" * 10 + "a" * 10


def test_beside_a_file_called_train_others_are_left_out(tmp_path: Path) -> None:
    written(tmp_path, {"train.txt": "x" * 20, "README.md": "read me", "val.txt": "y"})
    found = corpus(tmp_path)
    assert texts(found) == {"train": ["x" * 20], "val": ["y"]}
    assert any("README.md left out" in note for note in found.notes)


def test_only_test_data_is_no_data_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text to train on"):
        corpus(written(tmp_path, {"test.txt": "x"}))


def test_a_file_is_measured_whole_whatever_it_is_called(tmp_path: Path) -> None:
    written(tmp_path, {"train.txt": "x", "test.txt": "y", "new.jsonl": '{"body": "one"}\n{"body": "two"}\n'})
    assert texts(read_tests(tmp_path / "train.txt")) == {str(tmp_path / "train.txt"): ["x"]}
    assert texts(read_tests(tmp_path / "new.jsonl", key="body")) == {str(tmp_path / "new.jsonl"): ["one", "two"]}


def test_of_a_folder_with_splits_the_tests_are_measured_or_else_val(tmp_path: Path) -> None:
    written(tmp_path, {"train.txt": "x", "val.txt": "y"})
    assert texts(read_tests(tmp_path)) == {f"{tmp_path} val": ["y"]}
    written(tmp_path, {"test1.txt": "a", "test2/c.txt": "c", "test2/b.txt": "b", "test3.txt": ""})
    found = read_tests(tmp_path)
    assert texts(found) == {f"{tmp_path} test1": ["a"], f"{tmp_path} test2": ["b", "c"]}
    assert found.notes == (f"2 files left out: others are called test1; the first is {tmp_path / 'train.txt'}",
                           f"{tmp_path / 'test3.txt'} left out: empty")
    assert texts(read_tests(tmp_path / "t*1.txt")) == {f"{tmp_path / 't*1.txt'} test1": ["a"]}


def test_of_a_folder_without_splits_all_is_measured(tmp_path: Path) -> None:
    written(tmp_path, {"notes.md": "x", "testing.md": "y"})
    assert texts(read_tests(tmp_path)) == {str(tmp_path): ["x", "y"]}
    written(tmp_path, {"test.txt": "z"})
    found = read_tests(tmp_path)
    assert texts(found) == {f"{tmp_path} test": ["z"]}
    assert found.notes == (f"2 files left out: others are called test; the first is {tmp_path / 'notes.md'}",)


@pytest.mark.parametrize("files", [{}, {"train.txt": "x"}, {"train.txt": "x", "test.txt": " \n"}, {"a.txt": ""}])
def test_a_folder_without_a_text_to_measure_on_is_refused(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    with pytest.raises(UserError, match="no text to measure on; wanted a file, or some whose names say test"):
        read_tests(written(tmp_path, files))


def test_of_one_file_the_last_tenth_of_the_characters_is_held_out(tmp_path: Path) -> None:
    text = "".join(f"{n} é\n" for n in range(1000))
    found = corpus(written(tmp_path, {"input.txt": text}) / "input.txt")
    assert texts(found) == {"train": [text[: int(len(text) * 0.9)]], "val": [text[int(len(text) * 0.9) :]]}
    assert [part.characters for part in found.splits.values()] == [len("".join(t)) for t in texts(found).values()]


def test_of_many_documents_the_last_are_held_out(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(50))
    found = texts(corpus(written(tmp_path, {"all.jsonl": lines}), held_out=0.2))
    assert found == {"train": [f"document {n}" for n in range(40)], "val": [f"document {n}" for n in range(40, 50)]}


@given(st.lists(st.text("ab\n", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=8),
       st.floats(0.05, 0.95))
def test_every_character_is_in_exactly_one_split(documents: list[str], held_out: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), {f"{n}.txt": text for n, text in enumerate(documents)})
        try:
            found = texts(corpus(Path(folder), held_out=held_out))
        except UserError as error:
            assert "too few" in str(error)  # noqa: PT017 (it may succeed as well)
            return
    assert "".join(found["train"] + found["val"]) == "".join(documents)
    assert all(found.values())


# What is in a file.


def test_a_gzip_is_what_it_holds(tmp_path: Path) -> None:
    text = "zwei Wörter\n" * 50
    plain = corpus(written(tmp_path / "a", {"x.txt": text}))
    packed = corpus(written(tmp_path / "b", {"x.txt.gz": gzip.compress(text.encode())}))
    assert texts(packed) == texts(plain)


def test_line_ends_and_the_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    text = "a line\nand another\n\n" * 9
    plain = corpus(written(tmp_path / "a", {"x.txt": text}))
    other = corpus(written(tmp_path / "b", {"x.txt": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()}))
    assert texts(other) == texts(plain)


def test_a_line_of_json_is_a_document_under_its_key(tmp_path: Path) -> None:
    lines = ['{"body": "one\\ntwo", "id": 1}', "", '{"body": " "}', '{"body": "three"}'] * 10
    found = texts(corpus(written(tmp_path, {"x.jsonl": "\n".join(lines)}), key="body"))
    assert found["train"] + found["val"] == ["one\ntwo", "three"] * 10


@pytest.mark.parametrize(("content", "said"), [
    (b"caf\xe9", "is not UTF-8; it looks like Latin-1: convert it with `iconv"), (b"\x00\x01binary", "NUL byte"),
    (b"", "no text in it"), (b" \n\n", "no text in it"),
    (gzip.compress(b"abc" * 999, mtime=0)[:-9], "gzip is cut short"),
    ("a".encode("utf-16"), "byte order mark of UTF-16")])
def test_a_file_that_is_no_text_is_an_error_if_named_and_else_left_out(
        tmp_path: Path, content: bytes, said: str) -> None:
    written(tmp_path, {"good.txt": "some good text", "wrong": content})
    with pytest.raises(UserError, match=said) as error:
        corpus(tmp_path / "wrong")
    assert "\n" not in str(error.value)
    found = corpus(tmp_path)
    assert "".join(chain(*texts(found).values())) == "some good text"
    assert len(found.notes) == 2
    assert "wrong left out" in found.notes[0]


@pytest.mark.parametrize(("files", "notes"), [
    ({f"{n:02}.txt": "text" for n in range(30)}, ("no val split: the last 3 of 30 documents are held out as val",)),
    ({f"{n}.txt": "text" for n in range(10)}, ("no val split: the last of 10 documents is held out as val",)),
    ({"all.txt": "some text " * 9}, ("no val split: the last 10% of the text is held out as val",)),
    ({"train.txt": "text", "valid.txt": "text"}, ()),
])
def test_what_is_held_out_is_said(tmp_path: Path, files: dict[str, str | bytes], notes: tuple[str, ...]) -> None:
    assert corpus(written(tmp_path / "data", files)).notes == notes


@pytest.mark.parametrize("line", ['{"text": 7}', '{"txt": "a"}', "[]", "{"])
def test_broken_json_is_an_error_that_names_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match=r"x\.jsonl:2: "):
        corpus(written(tmp_path, {"x.jsonl": f'{{"text": "a"}}\n{line}\n'}))


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.gz"])
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40) | st.text(max_size=40).map(str.encode)
       | st.text(max_size=20).map(lambda text: json.dumps({"text": text}).encode() * 2))
def test_any_bytes_are_text_or_one_line_about_why_not(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        found = texts(corpus(tmp_path / name))
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 (it may succeed as well)
        assert name in str(error)  # noqa: PT017
        return
    assert set(found) == {"train", "val"}
    assert all("".join(documents) for documents in found.values())


# Pieces.


@given(LINES, st.integers(1, 40))
def test_pieces_are_the_document_cut_before_single_spaces(lines: list[str], size: int) -> None:
    found = list(pieces(lines, size))
    assert "".join(found) == "".join(lines)
    for one, other in pairwise(found):
        assert not one[-1].isspace()
        assert other[0] == " "
        assert not other[1].isspace()


@settings(max_examples=50)
@given(st.lists(st.text(st.sampled_from("漢字\n"), min_size=1, max_size=900) | st.just("a b c "), max_size=12))
def test_a_text_without_spaces_is_cut_all_the_same(parts: list[str]) -> None:
    """As Chinese is: else a file of a gigabyte would be encoded at once, at 200 bytes a character."""
    found = list(pieces(parts, 10, most=100))
    assert "".join(found) == "".join(parts)
    assert max(map(len, found)) < 200


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "bytes", "words"])
def test_the_ids_of_the_pieces_are_those_of_the_whole(kind: str) -> None:
    lines = [f"def f{n}(a, b):\n    return  a + 'é{n}' \n" for n in range(40)]
    tokens = train(lines, kind=kind, vocabulary=300)
    first, *others = pieces(lines, 100)
    parts = [first, *map(tokens.after_space, others)]
    assert len(parts) > 5
    assert list(chain(*tokens.encode(parts))) == tokens.encode(["".join(lines)])[0]


# What is built in.


def test_the_built_in_text_is_pythons_own_library_in_a_fixed_order() -> None:
    files = standard_library.files(200)
    assert len(set(files)) == 200
    assert files == standard_library.files(200)
    assert files[:50] == standard_library.files(50)
    assert {file.suffix for file in files} == {".py"}
    assert not any({"test", "tests", "site-packages"} & set(file.parts) for file in files)
