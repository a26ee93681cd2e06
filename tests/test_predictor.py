"""A trained run with narrower weights: nearly the same answers, nearly the same perplexity."""

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.settings.errors import UserError
from regard.verbs.evaluate import main as evaluate

TINY = ["model.width=64", "model.depth=1", "model.heads=2", "model.dropout=0", "train.learning_rate=5e-3",
        "train.warmup=20", "search.beam=2", "device=cpu"]

pytestmark = pytest.mark.skipif(
    not {"x86", "fbgemm", "qnnpack"} & {*torch.backends.quantized.supported_engines},
    reason="torch was built without 8-bit products")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    lines = [f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(20)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "val.tsv").write_text("".join(lines), encoding="utf-8")
    settings = regard.recipe(overrides=[*TINY, f"data.paths={folder}", "train.steps=80", "train.batch_tokens=256"])
    regard.train(settings, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer")
    (folder / "text.txt").write_text("".join(f"{n} and {n + 1} make {2 * n + 1}. " for n in range(400)))
    settings = regard.recipe(overrides=[
        *TINY, "task=language", f"data.paths={folder / 'text.txt'}", "tokens.vocabulary=300", "train.steps=60",
        "train.batch_tokens=512", "data.max_tokens=64"])
    regard.train(settings, folder / "run", quiet=True)
    return folder / "run"


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_a_translator_answers_as_before(translator: Path, kind: str) -> None:
    texts = [f"le chat {n} dort" for n in range(20)]
    before = regard.load(translator, device="cpu").predict(texts)
    after = regard.load(translator, device="cpu", quantize=kind).predict(texts)
    assert sum(a == b for a, b in zip(before, after, strict=True)) >= 18
    assert len(set(before)) >= 15  # it has learned something that could get lost


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_eval_says_what_narrower_weights_do_to_the_perplexity(
        writer: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(writer, ["val"], None, "cpu", "float32", kind, True)
    found = json.loads(capsys.readouterr().out)
    before, after = found["splits"]["val"]["perplexity"], found["splits"][f"val {kind}"]["perplexity"]
    assert (found["quantize"], found["perplexity"]) == (kind, after)
    assert before != after
    assert abs(after / before - 1) < 0.01
    evaluate(writer, ["val"], 2, "cpu", "float32", kind, False)
    assert f"val: {kind} changes the perplexity by " in capsys.readouterr().out


def test_eval_prints_the_scores_of_a_translator_with_both_weights(
        translator: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(translator, ["val"], 3, "cpu", "float32", "int8", False)
    rows = capsys.readouterr().out.splitlines()
    assert [row.rsplit(maxsplit=5)[0] for row in rows[1:3]] == ["val", "val int8"]


def test_a_text_goes_on_with_narrower_weights(writer: Path) -> None:
    assert all(regard.load(writer, quantize="int8", precision=precision).predict(["3 and 4 make"], max_tokens=5)[0]
               for precision in ("float32", "bfloat16"))


def test_narrower_weights_have_a_name(writer: Path) -> None:
    with pytest.raises(UserError, match="quantize=int3: there are int8 and float16"):
        regard.load(writer, quantize="int3")
