"""`regard explain --word` with several texts: the model's own numbers, and one line where a word is missing."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from regard.data.tokenizer import train as learn
from regard.look.encoder_states import layers
from regard.predictor import load
from regard.settings.errors import UserError
from regard.training.loop import train
from regard.verbs.explain_word import main, places
from regard.verbs.train import settled

TEXTS = ["the bank of the river", "money in the bank"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for split, numbers in (("train", range(20)), ("val", range(20, 24))):
        lines = (f"{TEXTS[n % 2]} {n}\t{'ab'[n % 2]}\n" for n in numbers)
        (folder / f"{split}.tsv").write_text("".join(lines))
    settings = ["model.width=16", "model.depth=2", "model.heads=2", "tokens.vocabulary=300", "train.steps=2",
                "train.batch_tokens=64", "device=cpu", "data.max_tokens=12"]
    train(settled("classify", [folder], None, None, None, settings), folder / "run", quiet=True)
    return folder / "run"


def test_a_word_has_one_vector_before_the_blocks_and_others_after_them(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(TEXTS, "bank", run, None, "cpu", True)
    said = json.loads(capsys.readouterr().out)
    cosines = np.array(said["cosines"])
    assert cosines.shape == (3, 2, 2)
    assert np.allclose(cosines[:, [0, 1], [0, 1]], 1, atol=1e-5)
    # Positions are turned into the queries and keys of this model: before the first block they change nothing.
    assert np.isclose(cosines[0, 0, 1], 1, atol=1e-5)
    assert (cosines[1:, 0, 1] < 0.9999).all()


def test_the_layers_are_those_that_the_model_goes_through(run: Path) -> None:
    predictor = load(run, device="cpu")
    [row] = predictor.task.data.rows([TEXTS[0]])
    states, encoder = layers(predictor.model, row, pad=predictor.task.data.tokens.pad), predictor.model.encoder
    with torch.no_grad():
        whole = encoder(encoder.embed(torch.tensor([row])))
        torch.testing.assert_close(encoder.norm(states[-1:]), whole)
        torch.testing.assert_close(states[:1], encoder.embed(torch.tensor([row])))
    assert not encoder.blocks[0]._forward_hooks


def test_a_word_of_several_tokens_is_all_of_them() -> None:
    tokens = learn(["the bank of a river"] * 3, kind="bytes", vocabulary=300)
    text = "Le café du Banküfer, the bank"
    ids = tokens.encode([text])[0]
    for word in ("café", "bank", "du"):
        found = places(word, text, tokens)
        assert tokens.decode([[ids[place] for place in found]])[0].strip() == word


def test_the_picture_is_drawn_and_the_table_has_a_row_for_each_layer(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*TEXTS, "a bank for $5 or $6"], "Bank", run, tmp_path / "bank.png", "cpu", False)
    said = capsys.readouterr()
    assert (tmp_path / "bank.png").stat().st_size > 10_000
    assert [line.split("  ")[0] for line in said.out.splitlines()[-3:]] == [
        "before them", "after block 1", "after block 2"]
    assert "1 and 2   1 and 3   2 and 3" in said.out


@pytest.mark.parametrize("texts", [["W" * 200, "the bank"], ["a bank", "a bank"], ["a bank"] * 12],
                         ids=["long", "short", "many"])
def test_the_title_of_the_picture_runs_into_no_label_however_long_the_texts_are(texts: list[str]) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from regard.look.plots.word_in_context import picture
    from regard.look.word_in_context import Word

    alike = np.ones((len(texts), 3, 4))  # the labels stand at the top
    figure = picture(Word("internationalisation", texts, alike))
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    title = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert not any(title.overlaps(label.get_window_extent()) for label in axes.texts)
    assert figure.legends[0].get_window_extent().width < figure.bbox.width


@pytest.mark.parametrize(("texts", "word", "says"), [
    (["the bank", "the banks"], "bank", "text 2: has no word 'bank': the banks"),
    (["the bank", "bank"], " ", "text 1: has no word ' '"),
    (["the bank", "bank"], None, "2 texts: choose a word in all of them with --word"),
    (["the bank", "river " * 20 + "bank"], "bank", "text 2: 'bank' is not among the first 10 tokens"),
])
def test_what_cannot_be_shown_is_said_in_a_line(run: Path, texts: list[str], word: str | None, says: str) -> None:
    with pytest.raises(UserError) as error:
        main(texts, word, run, None, "cpu", False)
    assert says in str(error.value)
    assert error.value.exit_code == 2


def test_a_word_that_gives_no_token_is_named(run: Path, tmp_path: Path) -> None:
    """As BERT's tokenizer drops some signs."""
    copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "tokenizer.json"
    tokens = json.loads(file.read_text(encoding="utf-8"))
    drop = {"type": "Replace", "pattern": {"String": "~"}, "content": ""}
    tokens["normalizer"] = {"type": "Sequence", "normalizers": [drop, tokens["normalizer"]]}
    file.write_text(json.dumps(tokens), encoding="utf-8")
    (tmp_path / "run" / "MANIFEST.json").unlink()  # whoever edits a file of a run deletes its digests
    with pytest.raises(UserError, match=r"text 1: the model has no token for '~~'"):
        main(["a ~~ bank", "~~"], "~~", tmp_path / "run", None, "cpu", False)


def test_a_text_without_the_word_is_refused_before_torch_is_imported() -> None:
    script = ("import sys; from regard.cli import main\n"
              "sys.argv = ['regard', 'explain', '--word', 'bank', 'the bank', 'the river']\n"
              "try: main()\n"
              "except SystemExit as end: print(end.code, 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert done.stderr.strip() == "regard: text 2: has no word 'bank': the river"
