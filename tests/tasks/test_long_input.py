"""Inputs longer than those of training are read where that is asked for, and their cost is said first."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.cli import app
from regard.long_input import operations, reading
from regard.models.build import text_encoder
from regard.predictor import load
from regard.settings.errors import UserError
from regard.settings.schema import Tower
from regard.training.loop import train
from regard.verbs.train import settled

SHORT, LONG = 12, 96
TEXT = "the red car " * 20


def trained(folder: Path, task: str, *settings: str) -> Path:
    tsv = ["the red car 1\tred", "the blue car 2\tblue"] * 10
    for split in ("train", "val", "test"):
        (folder / f"{split}.tsv").write_text("".join(f"{line}\n" for line in tsv))
    run = folder / "run"
    train(settled(task, [folder], None, None, None, [
        "model.width=16", "model.depth=1", "model.heads=2", "tokens.kind=characters", "tokens.vocabulary=300",
        "train.steps=2", "train.batch_tokens=64", "device=cpu",
        f"data.max_tokens={SHORT}", *settings]), run, quiet=True)
    return run


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("translate"), "translate")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("classify"), "classify")


def test_a_translator_reads_beyond_the_length_of_its_training(
        translator: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut, whole = load(translator), load(translator, input_tokens=LONG)
    assert "inputs of up to 96 tokens are read, and the model was trained on up to 12" in capsys.readouterr().err
    record = cut.look(TEXT, "red"), whole.look(TEXT, "red")
    site = "encoder.blocks.0.self"
    assert [one[site].shape[-1] for one in record] == [SHORT, LONG]
    # What stands at its end counts.
    other = TEXT[:90] + "blue!" + TEXT[95:]
    assert whole.choices(TEXT, "red") != whole.choices(other, "red")
    assert cut.choices(TEXT, "red") == cut.choices(other, "red")
    assert whole.predict(["the red car"]) == cut.predict(["the red car"])


def test_an_encoder_reads_beyond_the_length_of_its_training(classifier: Path) -> None:
    cut, whole = load(classifier), load(classifier, input_tokens=LONG)
    other = TEXT[:90] + "blue" + TEXT[94:]
    assert (cut.embed([TEXT]) == cut.embed([other])).all()
    assert (whole.embed([TEXT]) != whole.embed([other])).any()
    before = {file: file.stat().st_mtime_ns for file in classifier.rglob("*") if file.is_file()}
    assert whole.evaluate("val") != cut.evaluate("val")  # its sentences, too, are longer than 12 characters
    assert {file: file.stat().st_mtime_ns for file in classifier.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("window", [None, 4])
def test_the_cost_that_is_said_is_that_of_the_products(window: int | None) -> None:
    model = text_encoder(Tower(width=32, depth=2, heads=4, positions="none", score="distance"), vocabulary=8).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(1, LONG, 32))
    weights, attention = operations(model, LONG, window=window)
    if window is None:
        assert weights + attention == pytest.approx(counter.get_total_flops(), rel=0.05)
    else:
        assert attention == operations(model, LONG)[1] * 9 // LONG
    # Twice the length: twice the products with weights; four times those of full attention, twice those of a window.
    more = operations(model, 2 * LONG, window=window)
    assert more[0] == 2 * weights
    assert more[1] == (4 if window is None else 2) * attention


def test_what_cannot_be_read_is_refused(translator: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="input_tokens=5: the run reads 12 tokens already"):
        load(translator, input_tokens=5)
    learned = trained(tmp_path, "classify", "model.positions=learned", "model.max_positions=20")
    with pytest.raises(UserError, match=r"the model has learned positions for 20 tokens.*take 20"):
        load(learned, input_tokens=21)
    assert load(learned, input_tokens=20).predict([TEXT])


def test_a_language_model_needs_no_permission_to_read_on() -> None:
    run = settled("language", [], None, None, None, [])
    with pytest.raises(UserError, match="reads inputs of any length"):
        reading(run, 10**6)


def test_the_command_reads_as_far_as_it_is_told_and_says_the_cost_first(
        classifier: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number, more in enumerate(([], ["--input-tokens", str(LONG)])):
        place = tmp_path / f"{number}.npy"
        app(["predict", "--run", str(classifier), "--embed", str(place), TEXT, *more], standalone_mode=False)
        said = capsys.readouterr().err
        assert ("96 tokens are read" in said, "cut to data.max_tokens=12" in said) == (bool(more), not more)
    assert (np.load(tmp_path / "0.npy") != np.load(tmp_path / "1.npy")).any()
    app(["predict", "--run", str(classifier), TEXT, "--input-tokens", str(LONG)], standalone_mode=False)
    assert "96 tokens are read" in capsys.readouterr().err
