"""`regard eval`: other files, shifted copies of labelled texts, and the drop of each."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard.look.confusion import Confusion
from regard.look.plots.charts import taken_for
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.tasks.traits import defaults
from regard.training.loop import train
from regard.verbs.evaluate import Others, main, table


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It learns which colour a text names, at its end."""
    folder = tmp_path_factory.mktemp("eval")
    rows = [(f"{thing} number {n} is {colour}", colour) for n in range(12) for colour in ("red", "blue")
            for thing in ("a car", "the house")]
    (folder / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    (folder / "test.tsv").write_text("my car is red\tred\nyour house is blue\tblue\nred\tred\nblue\tblue\n")
    settings = ["model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "tokens.vocabulary=300",
                "train.batch_tokens=512", "train.steps=40", "train.warmup=5", "train.learning_rate=0.01", "device=cpu",
                f"data.paths={folder}"]
    train(load(None, settings, base=defaults("classify", built_in=False)), folder / "run", quiet=True)
    return folder / "run"


def told(capsys: pytest.CaptureFixture[str], run: Path, *splits: str, **others: object) -> dict[str, dict[str, float]]:
    capsys.readouterr()
    main(run, splits, None, "cpu", "float32", None, True, Others(**others))  # type: ignore[arg-type]
    answer = json.loads(capsys.readouterr().out)
    assert {name: answer[name] for name in ("accuracy", "loss")}.items() <= answer["splits"][answer["split"]].items()
    return dict(answer["splits"])


def test_other_files_are_measured_with_their_drop_against_the_first(run: Path, tmp_path: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("label,text\nred,a red car\nred,a blue car\n")
    other = tmp_path / "other.csv"
    splits = told(capsys, run, "test", data=[other])
    assert list(splits) == ["test", str(other)]
    assert (splits["test"]["accuracy"], splits["test"]["drop"]) == (1.0, 0.0)
    assert (splits[str(other)]["accuracy"], splits[str(other)]["drop"]) == (0.5, 0.5)
    assert splits[str(other)]["examples"] == 2
    assert list(told(capsys, run, data=[other, run.parent])) == [str(other), str(run.parent / "test.tsv")]


def test_columns_of_other_files_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("id,review,colour\n1,a red car,red\n")
    splits = told(capsys, run, data=[tmp_path / "other.csv"], source="review", target="colour")
    assert splits[str(tmp_path / "other.csv")]["accuracy"] == 1.0
    assert "drop" not in splits[str(tmp_path / "other.csv")]  # there is nothing to compare it with


def test_a_column_that_is_not_named_is_the_runs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text("words,kind\n" + "".join(f"{n} cars,{'ab'[n % 2]}\n" for n in range(12)))
    settings = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=1",
                "device=cpu", f"data.paths={tmp_path / 'train.csv'}", "data.source=words", "data.target=kind"]
    train(load(None, settings, base=defaults("classify", built_in=False)), tmp_path / "run", quiet=True)
    (tmp_path / "other.csv").write_text("review,kind\na car,a\n")
    splits = told(capsys, tmp_path / "run", data=[tmp_path / "other.csv"], source="review")
    assert splits[str(tmp_path / "other.csv")]["examples"] == 1


def test_a_shifted_copy_drops_against_its_own(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits = told(capsys, run, shift="length,case")
    assert list(splits) == ["test", "test length", "test case"]
    # Half of the texts lose the word that decides.
    assert splits["test length"]["drop"] == 1.0 - splits["test length"]["accuracy"]
    assert splits["test length"]["loss"] > splits["test"]["loss"]
    assert told(capsys, run, shift="length,case") == splits


def test_the_table_has_a_line_for_each(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(run, [], None, "cpu", "float32", "int8", False, Others(shift="typos"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["split", "accuracy", "macro_f1", "loss", "examples", "drop"]
    assert [line.split("  ")[0] for line in lines[1:5]] == ["test", "test typos", "test int8", "test typos int8"]
    assert lines[5].startswith("test: int8 changes the accuracy by ")
    assert "drop" not in table({"test": {"loss": 1.0}})


def test_what_is_taken_for_what_is_drawn_and_told(run: Path, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    main(run, [], None, "cpu", "float32", None, True, plot=tmp_path / "a.png")
    assert json.loads(capsys.readouterr().out)["confusion"] == {"labels": ["blue", "red"], "counts": [[2, 0], [0, 2]]}
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_the_picture_has_a_cell_for_every_two_labels() -> None:
    figure = taken_for(Confusion(["a", "$b$", "c" * 40], np.array([[8, 0, 2], [0, 5, 0], [0, 0, 0]])), title="a run")
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "$b$", "c" * 23 + "…"]
    assert sorted(text.get_text() for text in axes.texts) == ["100%", "2", "5", "8", "80%"]
    assert any("13 of 15 right" in text.get_text() for text in figure.texts)
    many = taken_for(Confusion([str(n) for n in range(200)], np.eye(200, dtype=np.int64)), title="a run")
    assert many.get_figwidth() < 20


@pytest.mark.parametrize(("others", "message"), [
    ({"shift": "tpyos"}, "--shift tpyos: no such shift; did you mean typos"),
    ({"data": [Path("absent.tsv")]}, "absent.tsv: no such file or directory"),
])
def test_what_cannot_be_measured_is_refused(run: Path, others: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(run, [], None, "cpu", "float32", None, False, Others(**others))  # type: ignore[arg-type]


# Translations.


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It knows seven sentences by heart, of files that are gone."""
    folder = tmp_path_factory.mktemp("translator")
    words = {"chat": "cat", "chien": "dog", "maison": "house", "arbre": "tree", "fleur": "flower", "livre": "book",
             "enfant": "child"}
    (folder / "train.fr").write_text("".join(f"voici un {word} pour moi\n" for word in words) * 4)
    (folder / "train.en").write_text("".join(f"here is a {word} for me\n" for word in words.values()) * 4)
    (folder / "test.fr").write_text("voici un chat pour moi\nvoici un chien pour moi\n")
    (folder / "test.en").write_text("here is a cat for me\nhere is a dog for me\n")
    settings = ["model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "tokens.vocabulary=300",
                "train.batch_tokens=512", "train.steps=60", "train.warmup=5", "train.learning_rate=0.01", "device=cpu",
                "search.beam=1", f"data.paths={folder / 'train.fr'},{folder / 'train.en'}"]
    train(load(None, settings, base=defaults("translate", built_in=False)), folder / "run", quiet=True)
    for side in ("fr", "en"):
        (folder / f"train.{side}").unlink()
    return folder / "run"


def measured(capsys: pytest.CaptureFixture[str], run: Path, *splits: str, **others: object) -> dict[str, Any]:
    capsys.readouterr()
    main(run, splits, None, "cpu", "float32", None, True, Others(**others))  # type: ignore[arg-type]
    return dict(json.loads(capsys.readouterr().out))


def test_a_translator_is_measured_on_parallel_files_in_either_order(translator: Path, tmp_path: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.fr.gz").write_bytes(gzip.compress(b"voici un arbre pour moi\nvoici un livre pour moi\n"))
    (tmp_path / "new.en").write_text("here is a tree for me\nthe library\n")
    fr, en = tmp_path / "new.fr.gz", tmp_path / "new.en"
    answer = measured(capsys, translator, data=[fr, en])
    assert answer["split"] == f"{fr} {en}"
    assert (answer["exact"], answer["sentences"]) == (50.0, 2)
    assert {"bleu", "chrf", "bleu_signature"} <= answer.keys()
    assert "drop" not in answer
    assert measured(capsys, translator, data=[en, fr]) == answer


def test_a_translator_drops_in_bleu_against_the_first(translator: Path, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.tsv").write_text("voici un arbre pour moi\there is a tree for me\nun livre\tthe library\n")
    splits = measured(capsys, translator, data=[translator.parent, tmp_path / "new.tsv"])["splits"]
    own, new = splits.values()
    assert list(splits) == [f"{translator.parent / 'test.fr'} {translator.parent / 'test.en'}",
                            str(tmp_path / "new.tsv")]
    assert (own["drop"], new["drop"]) == (0.0, own["bleu"] - new["bleu"])
    assert new["drop"] > 0


def test_keys_of_other_pairs_are_named(translator: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.jsonl").write_text('{"from": "voici un chat pour moi", "to": "here is a cat for me"}\n')
    answer = measured(capsys, translator, data=[tmp_path / "new.jsonl"], source="from", target="to")
    assert (answer["exact"], answer["sentences"]) == (100.0, 1)


# Raw text.


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer")
    (folder / "text.txt").write_text("the cat sat on the mat\n" * 40)
    settings = ["model.width=32", "model.depth=1", "model.heads=2", "model.dropout=0.0", "tokens.vocabulary=300",
                "train.batch_tokens=256", "train.steps=30", "train.warmup=5", "train.learning_rate=0.01", "device=cpu",
                "data.max_tokens=32", f"data.paths={folder / 'text.txt'}"]
    train(load(None, settings, base=defaults("language", built_in=False)), folder / "run", quiet=True)
    return folder / "run"


def test_a_language_model_is_measured_on_other_texts(writer: Path, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "like.txt").write_text("the cat sat on the mat\n" * 9)
    (tmp_path / "other.jsonl").write_text('{"text": "quite another thing"}\n')
    like, other = tmp_path / "like.txt", tmp_path / "other.jsonl"
    splits = measured(capsys, writer, "val", data=[like, other])["splits"]
    assert list(splits) == ["val", str(like), str(other)]
    assert splits[str(like)]["perplexity"] < 2 < splits[str(other)]["perplexity"]
    assert splits[str(other)]["bytes"] == len("quite another thing")
    main(writer, [], None, "cpu", "float32", None, False, Others([like, other]))
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["split", "loss", "perplexity", "bits_per_byte", "tokens", "bytes"]
    assert [line.split()[0] for line in lines] == [str(like), str(other)]


def test_other_data_may_not_be_taken_for_the_runs_own(writer: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "val").write_text("the cat")
    with pytest.raises(UserError, match="--data val: has the name of the run's own split; give its whole path"):
        main(writer, ["val"], None, "cpu", "float32", None, False, Others([Path("val")]))


@pytest.mark.parametrize(("kind", "others", "message"), [
    ("translator", {"shift": "typos"}, "--shift typos: a run of translate has no perturbations"),
    ("writer", {"shift": "case"}, "--shift case: a run of language has no perturbations"),
    ("writer", {"data": [Path("absent.txt")]}, "absent.txt: no such file or folder"),
    ("translator", {"data": [Path("absent.fr"), Path("absent.en")]}, "absent.fr: no such file or directory"),
])
def test_what_a_run_cannot_be_measured_on_is_refused(kind: str, others: dict[str, object], message: str,
                                                     request: pytest.FixtureRequest) -> None:
    with pytest.raises(UserError, match=message):
        main(request.getfixturevalue(kind), [], None, "cpu", "float32", None, False,
             Others(**others))  # type: ignore[arg-type]


@pytest.mark.parametrize("task", ["mask", "detect"])
def test_an_encoder_that_learns_from_raw_text_is_measured_on_other_texts(
        task: str, writer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["model.width=32", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.batch_tokens=256",
                "train.steps=3", "device=cpu", "data.max_tokens=32", f"data.paths={writer.parent / 'text.txt'}"]
    train(load(None, settings, base=defaults(task, built_in=False)), tmp_path / "run", quiet=True)
    (tmp_path / "other.txt").write_text("the mat sat on the cat\n" * 9)
    splits = measured(capsys, tmp_path / "run", "val", data=[tmp_path / "other.txt"])["splits"]
    assert list(splits) == ["val", str(tmp_path / "other.txt")]
    assert splits["val"].keys() == splits[str(tmp_path / "other.txt")].keys()
    assert splits["val"] != splits[str(tmp_path / "other.txt")]
