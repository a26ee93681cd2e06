"""Which columns are read: those that the user names, or that a first line names; never the names as an example."""

from pathlib import Path

import pytest

from regard.data.labelled import Columns, read_file
from regard.data.text.parallel_files import ParallelTexts, read_pairs, read_test_pairs
from regard.data.visible import visible
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.tasks import make
from regard.tasks.traits import defaults

BODY = "the red cat\tle chat rouge\nthe dog\tle chien\n"
PAIRS = {("the red cat", "le chat rouge"), ("the dog", "le chien")}
TURNED = {(target, source) for source, target in PAIRS}
SMALL = ["data.built_in_size=40", "tokens.vocabulary=300", "model.width=16", "model.heads=2", "model.depth=1"]


def table(folder: Path, content: str, name: str = "pairs.tsv") -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def pairs(corpus: ParallelTexts) -> set[tuple[str, str]]:
    return {(pair.source, pair.target) for split in corpus.splits.values() for pair in split}


@pytest.mark.parametrize(("header", "source", "target", "wanted"), [
    ("English\tFrench", "French", "English", TURNED), ("English\tFrench", "English", "French", PAIRS),
    ("English\tFrench", "French", None, TURNED), ("English\tFrench", None, "English", TURNED),
    ("a b\tc d", "c d", "a b", TURNED), ("source\ttarget", "target", "source", TURNED),
    ("\nEnglish \t French", "French", "English", TURNED)])
def test_named_columns_of_a_table_are_read(tmp_path: Path, header: str, source: str | None, target: str | None,
                                           wanted: set[tuple[str, str]]) -> None:
    corpus = read_pairs([table(tmp_path, f"{header}\n{BODY}")], source=source, target=target)
    assert pairs(corpus) == wanted
    assert not any("names of the columns" in note for note in corpus.notes)


def test_two_of_many_columns_are_read(tmp_path: Path) -> None:
    file = table(tmp_path, "id\ten\tfr\n1\tthe cat\tle chat\n2\tthe dog\tle chien\n")
    assert pairs(read_pairs([file], source="fr", target="en")) == {("le chat", "the cat"), ("le chien", "the dog")}
    file = table(tmp_path, "id\ttarget\tsource\n1\tthe cat\tle chat\n2\tthe dog\tle chien\n")
    assert pairs(read_pairs([file])) == pairs(read_pairs([file], source="source")) == {
        ("le chat", "the cat"), ("le chien", "the dog")}


@pytest.mark.parametrize(("header", "source", "target", "sentence"), [
    ("English\tFrench", "Klingon", "English", "PATH:1: --source Klingon: no such column; the first line has 'English', "
                                              "'French'; if that line is an example, leave --source and --target out"),
    ("English\tFrench", "French", "english", "--target english: no such column; the first line has 'English', "
                                             "'French'; did you mean 'English'?"),
    ("English\tFrench\tFrench", "French", "English", "--source French: several columns"),
    ("id\tEnglish\tFrench", "French", None, "PATH:1: the first line has 'id', 'English', 'French'; say which column is "
                                            "the target with --target")])
def test_a_column_that_is_not_there_is_refused_with_those_that_are(
        tmp_path: Path, header: str, source: str | None, target: str | None, sentence: str) -> None:
    file = table(tmp_path, f"{header}\n{BODY}")
    with pytest.raises(UserError) as caught:
        read_pairs([file], source=source, target=target)
    assert sentence.replace("PATH", str(file)) in str(caught.value)


def test_a_line_that_differs_from_the_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pairs.tsv:3: 2 columns, but the first line has 3"):
        read_pairs([table(tmp_path, "id\ten\tfr\n1\ta\tb\nc\td\n")], source="en", target="fr")
    with pytest.raises(UserError, match="only a header, and no pair below it"):
        read_pairs([table(tmp_path, "English\tFrench\n")])


@pytest.mark.parametrize("header", ["English\tFrench", "source\ttarget", "Deutsch\tEnglish", "src\tTGT"])
def test_a_first_line_of_plain_names_is_no_example_and_is_spoken_of(tmp_path: Path, header: str) -> None:
    corpus = read_pairs([table(tmp_path, f"{header}\n{BODY}")])
    assert pairs(corpus) == PAIRS
    assert "is read as a header" in corpus.notes[0]
    # Where it is an example all the same, a line above it says so.
    assert len(pairs(read_pairs([table(tmp_path, f"source\ttarget\n{header}\n{BODY}")]))) == 3


@pytest.mark.parametrize(("first", "is_spoken_of"), [
    ("es\tit", True), ("question\tanswer", True), ("en\tfr", True), ("Deutsch\tGerman", False),
    ("English\tanglais", False), ("the cat\tle chat", False), ("it\tit", False), ("source\tla source", False)])
def test_a_line_that_may_be_an_example_stays_one(tmp_path: Path, first: str, is_spoken_of: bool) -> None:
    corpus = read_pairs([table(tmp_path, f"{first}\n{BODY}")])
    assert pairs(corpus) == {tuple(first.split("\t")), *PAIRS}
    assert any("is read as an example; if it names the columns" in note for note in corpus.notes) \
        is is_spoken_of


def test_one_of_two_keys_of_json_names_the_other(tmp_path: Path) -> None:
    file = table(tmp_path, '{"en": "a", "fr": "A"}\n{"en": "b", "fr": "B"}\n', "pairs.jsonl")
    assert pairs(read_pairs([file], source="fr")) == pairs(read_pairs([file], target="en")) == {("A", "a"), ("B", "b")}
    with pytest.raises(UserError, match="no key 'Klingon'; the keys are 'en', 'fr'"):
        read_pairs([file], source="Klingon", target="en")


def test_names_that_two_files_contradict_are_refused(tmp_path: Path) -> None:
    en, fr = table(tmp_path, "a\nb\n", "train.en"), table(tmp_path, "A\nB\n", "train.fr")
    with pytest.raises(UserError, match=r"--source Klingon: .*train.en says by its name that it is en; give that"):
        read_pairs([en, fr], source="Klingon")
    with pytest.raises(UserError, match=r"--source Klingon: .* holds en, fr"):
        read_pairs([tmp_path], source="Klingon", target="en")


def test_what_a_run_is_measured_on_is_read_by_the_columns_it_was_trained_on(tmp_path: Path) -> None:
    trained = read_pairs([table(tmp_path, f"English\tFrench\n{BODY}")], source="French", target="English")
    own = trained.languages
    assert own == ("French", "English")
    same = table(tmp_path, f"English\tFrench\n{BODY}", "same.tsv")
    assert pairs(read_test_pairs([same], own=own)) == pairs(trained) == TURNED
    plain = table(tmp_path, BODY, "plain.tsv")
    found = read_test_pairs([plain], own=own)
    assert pairs(found) == PAIRS
    assert "its first line names no columns; the first is read as French, the second as English" in found.notes[0]
    json = table(tmp_path, '{"source": "le chat", "target": "the cat"}\n', "test.jsonl")
    assert pairs(read_test_pairs([json], own=own)) == {("le chat", "the cat")}


def test_other_splits_are_read_by_the_columns_of_train(tmp_path: Path) -> None:
    table(tmp_path, f"English\tFrench\n{BODY}", "train.tsv")
    table(tmp_path, "French\tEnglish\nle roi\tthe king\n", "val.tsv")
    (val,) = read_pairs([tmp_path]).splits["val"]
    assert (val.source, val.target) == ("the king", "le roi")


LABELLED = "very good\tgood\nvery bad\tbad\nbad\tbad\n"


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_names_of_a_text_and_its_label_are_no_example(tmp_path: Path, ending: str) -> None:
    def read(content: str, columns: Columns = Columns()) -> tuple[list[str], tuple[str, ...]]:  # noqa: B008 (a tuple)
        content = content if ending == "tsv" else content.replace("\t", ",")
        found = read_file(table(tmp_path, content, f"texts.{ending}"), columns)
        return [sample.text for sample in found.samples], found.notes

    texts = ["very good", "very bad", "bad"]
    names, notes = read(f"Review\tsentiment\n{LABELLED}")
    assert names == texts
    assert "'Review', 'sentiment' is read as a header" in notes[0]
    assert read(f"Review\tsentiment\n{LABELLED}", Columns("Review", "sentiment")) == (texts, ())
    # The way out that the note gives; and a label that other texts have.
    assert read(f"text\tlabel\nReview\tsentiment\n{LABELLED}")[0] == ["Review", *texts]
    assert read(f"Review\tsentiment\n{LABELLED}hm\tsentiment\n")[0] == ["Review", *texts, "hm"]


@pytest.mark.parametrize(("task", "options", "files", "sentence"), [
    ("language", ["data.source=Klingon"], {"a.txt": "some text\n" * 9}, "--source Klingon: names the key of the text"),
    ("mask", ["data.target=en"], {"a.txt": "some text\n" * 9}, "--target en: raw text has no second side"),
    ("tag", ["data.source=en"], {"train.tsv": "the\tDET\n\ncat\tNOUN\n"}, "--source en: has no effect on tag")])
def test_a_name_that_nothing_is_called_is_refused(tmp_path: Path, task: str, options: list[str],
                                                  files: dict[str, str], sentence: str) -> None:
    for name, content in files.items():
        table(tmp_path, content, name)
    run = load(None, [*SMALL, *options, f"data.paths={tmp_path}"], base=defaults(task, built_in=False))
    with pytest.raises(UserError, match=sentence):
        make(run).data.prepare(tmp_path / "run")


@pytest.mark.parametrize(("task", "files", "first"), [
    ("translate", {"train.tsv": f"English\tFrench\n{BODY}"}, "the red cat → le chat rouge"),
    ("classify", {"train.tsv": LABELLED}, "very good → good"),
    ("tag", {"train.conllu": "".join(f"{n}\t{word}\t_\t{tag}" + "\t_" * 6 + "\n" for n, word, tag in (
        (1, "the", "DET"), (2, "cat", "NOUN"))) + "\n1\tdog\t_\tNOUN" + "\t_" * 6 + "\n"}, "the/DET cat/NOUN"),
    ("language", {"a.txt": "\n  once upon a time\nthere was a cat\n" + "and so on\n" * 40}, "  once upon a time"),
    ("mask", {"a.txt": "once upon a time\n" * 40}, "once upon a time")])
def test_every_task_keeps_its_first_example_as_it_was_read(tmp_path: Path, task: str, files: dict[str, str],
                                                           first: str) -> None:
    (tmp_path / "data").mkdir()
    for name, content in files.items():
        table(tmp_path / "data", content, name)
    run = load(None, [*SMALL, f"data.paths={tmp_path / 'data'}"], base=defaults(task, built_in=False))
    fresh, again = make(run), make(run)
    fresh.data.prepare(tmp_path / "run")
    assert fresh.data.first == first
    again.data.prepare(tmp_path / "run")  # from what is kept
    assert again.data.first == first


def test_a_line_for_a_terminal_hides_nothing_and_fits() -> None:
    assert visible("a\tb\x1b[31m\u202ec\r\n", 80) == r"a\tb\x1b[31m\u202ec\r\n"
    assert visible("abcd", 4) == "abcd"
    assert visible("abcde", 4) == "ab …"
    assert visible("中文字", 5) == "中 …"
    assert visible("e\u0301" * 4, 4) == "e\u0301" * 4
