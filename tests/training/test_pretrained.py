"""What a model has read before it meets labels: it knows words that were never labelled."""

import json
import random
from pathlib import Path

import pytest

from regard.training.loop import train
from regard.verbs.evaluate import Others, main
from regard.verbs.train import settled

SMALL = ("train.batch_tokens=256", "train.warmup=5", "train.schedule=constant", "train.evaluate_every=1000",
         "device=cpu", "model.dropout=0", "train.precision=float32")
FRESH = ("model.preset=elmo", "model.width=16")
WORDS = [f"{first}{second}m" for first in "bdfgklnprt" for second in "aeiou"]
random.Random(1).shuffle(WORDS)
KINDS = {"animal": WORDS[:24], "thing": WORDS[24:48]}  # no letter tells one from the other
SAYS = {"animal": "the {} eats meat\n", "thing": "the {} stops here\n"}  # raw text does
LABELLED, OTHERS = slice(0, 16), slice(16, 24)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of both ways that has read all words among others."""
    folder = tmp_path_factory.mktemp("source")
    lines = [SAYS[kind].format(word) for kind, words in KINDS.items() for word in words] * 12
    random.Random(0).shuffle(lines)
    (folder / "a.txt").write_text("".join(lines))
    train(settled("language", [folder / "a.txt"], None, None, None, [
        *SMALL, *FRESH, "tokens.kind=words", "data.max_tokens=16", "train.steps=150", "train.batch_tokens=512",
        "train.learning_rate=0.02", "train.label_smoothing=0"]), folder / "run", quiet=True)
    return folder / "run"


def scores(task: str, data: list[Path], out: Path, source: Path, *, pretrained: bool) -> dict[str, dict[str, float]]:
    """Of a model whose language models stay as they are, or of the same one, with the same tokens, from scratch."""
    how = (f"train.init_from={source}", "train.trainable=head") if pretrained else (
        *FRESH, f"tokens.file={source / 'tokenizer.json'}")
    run = settled(task, data, None, None, None, [*SMALL, "train.steps=40", "train.learning_rate=0.01", *how])
    return train(run, out, quiet=True)


def test_features_of_a_language_model_tell_the_tags_of_words_that_were_never_tagged(
    source: Path, tmp_path: Path
) -> None:
    """From scratch they can only be guessed: that makes half of the words right, and a half of the others."""
    for split, some in (("train", LABELLED), ("val", OTHERS)):
        (tmp_path / f"{split}.conll").write_text("\n".join(
            f"the\tDET\n{word}\t{kind}\n" for kind, words in KINDS.items() for word in words[some]))
    with_features, scratch = (
        scores("tag", [tmp_path], tmp_path / f"run-{pretrained}", source, pretrained=pretrained)["val"]["accuracy"]
        for pretrained in (True, False))
    assert with_features > 0.95
    assert scratch < 0.85


def test_pretrained_a_classifier_loses_less_on_a_shifted_test_than_from_scratch(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both know the labelled words; the shifted test has others."""
    for name, some in (("train", LABELLED), ("val", LABELLED), ("shifted", OTHERS)):
        (tmp_path / f"{name}.tsv").write_text("label\ttext\n" + "".join(
            f"{kind}\tthe {word}\n" for kind, words in KINDS.items() for word in words[some]))
    drops = []
    for pretrained in (True, False):
        out = tmp_path / f"run-{pretrained}"
        scores("classify", [tmp_path / "train.tsv", tmp_path / "val.tsv"], out, source, pretrained=pretrained)
        capsys.readouterr()
        main(out, ["val"], None, "cpu", "float32", None, True, Others([tmp_path / "shifted.tsv"]))
        own, shifted = json.loads(capsys.readouterr().out)["splits"].values()
        assert own["accuracy"] == 1.0
        drops.append(shifted["drop"])
    assert drops[0] < 0.1
    assert drops[1] > 0.25
