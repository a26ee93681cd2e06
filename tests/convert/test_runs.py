"""Runs trained here open elsewhere as they are; models from elsewhere are runs that every verb takes."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from test_llama2c import SAID, STORIES, needs_stories
from towers import close, logits

import regard
from regard.checkpoint import Checkpoint
from regard.cli import main

TEXT = "".join(f"the {noun} sees the {other}.\n" for noun in ("dog", "cat", "man") for other in ("hat", "tree", "sea"))
SHAPE = ["model.width=16", "model.depth=1", "model.heads=2", "model.kv_heads=none", "model.ffn_width=none"]
QUICK = ["data.max_tokens=16", "train.steps=1", "train.batch_tokens=64", "tokens.vocabulary=300", "device=cpu"]


def run(*arguments: str) -> tuple[int, str, str]:
    """`regard ARGUMENTS`, in this process: its exit code, and what it printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", ["regard", *arguments]), redirect_stdout(out), redirect_stderr(err),
          pytest.raises(SystemExit) as ended):
        main()
    for stream in (out, err):
        stream.seek(0)
    return int(ended.value.code or 0), out.read(), err.read()


@pytest.mark.parametrize(("preset", "architecture"), [
    ("gpt2", "GPT2LMHeadModel"), ("modern-small", "Qwen3ForCausalLM"), ("gpt1", None)])
def test_a_run_trained_here_is_a_directory_that_transformers_opens(
    tmp_path: Path, preset: str, architecture: str | None
) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "text.txt").write_text(TEXT)
    settings = regard.recipe(overrides=[f"data.paths={tmp_path / 'text.txt'}", "task=language",
                                        f"model.preset={preset}", *SHAPE, *QUICK])
    regard.train(settings, tmp_path / "run", quiet=True)
    predictor = regard.load(tmp_path / "run", device="cpu")
    checkpoint = Checkpoint.all(tmp_path / "run")[0].weights()
    assert "blocks.0.self.qkv.weight" in checkpoint, "checkpoints have our names"
    ids = torch.randint(0, 300, (2, 16))
    assert torch.equal(predictor.model.tokens.table.weight, checkpoint["tokens.table.weight"])
    if architecture is None:
        assert json.loads((tmp_path / "run" / "config.json").read_text())["model_type"] == "regard"
        return
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    assert type(theirs).__name__ == architecture
    assert [tokenizer("the dog sees")["input_ids"]] == predictor.task.data.tokens.encode(["the dog sees"])
    with torch.no_grad():
        close(theirs(ids).logits, logits(predictor.model, ids))


@needs_stories
def test_published_weights_become_a_run_that_tells_the_known_story(tmp_path: Path) -> None:
    place = tmp_path / "stories"
    _, out, _ = run("convert", str(STORIES / "stories260K.bin"), "--out", str(place), "--json")
    assert json.loads(out) == {"out": str(place), "family": "llama", "parameters": 260_032,
                                            "vocabulary": 512, "is_run": True}
    model = regard.load(place, device="cpu")
    (story,) = model.predict(["Once upon a time"], temperature=0, max_tokens=196)
    assert "Once upon a time" + story == SAID
    assert model.look("Once upon a time", ", there").weights


@needs_stories
def test_published_weights_are_evaluated_on_a_text_of_their_own(tmp_path: Path) -> None:
    text = tmp_path / "story.txt"
    text.write_text(SAID)
    run("convert", str(STORIES / "stories260K.bin"), "--out", str(tmp_path / "run"), "--data", str(text))
    (tmp_path / "run").rename(tmp_path / "moved")
    for _ in range(2):  # the first time it reads the text, the second time what it has made of it
        model = regard.load(tmp_path / "moved", device="cpu")
        scores = model.evaluate("train")  # all of the text but its end: the model's own words are likely
        assert isinstance(scores["loss"], float)
        assert scores["loss"] < 1


@needs_stories
def test_a_run_becomes_a_directory_and_a_run_again(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("first", "directory", "second")]
    for source, place in zip([STORIES / "stories260K.bin", *places], places, strict=False):
        assert run("convert", str(source), "--out", str(place))[:2] == (0, f"{place}\n")
    assert not (places[1] / "run.json").exists()
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (places[0] / name).read_bytes() == (places[1] / name).read_bytes() == (places[2] / name).read_bytes()


@pytest.mark.parametrize(("arguments", "said"), [
    (["none", "--out", "out"], "none: no such file or folder"), (["."], "Missing option '--out'"),
    ([".", "--out", "out", "--tokenizer", "none"], "none: no such file or folder"),
    ([".", "--out", "out"], ".: not a Hugging Face directory (it has no config.json)"),
    ([".", "--out", "out", "--precision", "int3"], "Invalid value for '--precision'"),
])
def test_a_wrong_call_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("convert", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert list(tmp_path.iterdir()) == []


ENCODERS = ["model.width=15", "model.depth=2", "model.heads=3", "model.ffn_width=21", "model.max_positions=40",
            "data.max_tokens=32", "data.built_in_size=60", "train.steps=1", "train.batch_tokens=256", "device=cpu",
            "tokens.vocabulary=300"]


@pytest.mark.parametrize(("task", "preset", "kind", "architecture"), [
    ("classify", "bert-base", "AutoModelForSequenceClassification", "BertForSequenceClassification"),
    ("classify", "distilbert", "AutoModelForSequenceClassification", "DistilBertForSequenceClassification"),
    ("tag", "roberta-base", "AutoModelForTokenClassification", "RobertaForTokenClassification"),
    ("mask", "roberta-base", "AutoModelForMaskedLM", "RobertaForMaskedLM"),
    ("detect", "electra-base", "AutoModelForPreTraining", "ElectraForPreTraining"),
])
def test_an_encoder_trained_here_is_a_directory_that_transformers_opens(
    tmp_path: Path, task: str, preset: str, kind: str, architecture: str
) -> None:
    transformers = pytest.importorskip("transformers")
    settings = regard.recipe(overrides=[f"task={task}", f"model.preset={preset}", *ENCODERS])
    regard.train(settings, tmp_path / "run", quiet=True)
    predictor = regard.load(tmp_path / "run", device="cpu")
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "run").eval()
    assert type(theirs).__name__ == architecture
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")("the dog sees the cat", return_tensors="pt")
    with torch.no_grad():
        ours = predictor.model(read["input_ids"])
        close(theirs(**read).logits, predictor.model.logits(ours) if task == "mask" else ours)
    if task in ("classify", "tag"):
        assert list(theirs.config.id2label.values()) == predictor.task.data.labels
    text = "the [MASK] sees the cat" if task == "mask" else "the dog sees the cat"
    code, answer, _ = run("predict", text, "--run", str(tmp_path / "run"))
    assert code == 0
    run("convert", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    run("convert", str(tmp_path / "out"), "--out", str(tmp_path / "again"))
    code, again, _ = run("predict", text, "--run", str(tmp_path / "again"))
    assert code == 0
    # What was published for blanks names its candidates; this run was not trained to.
    assert again.split("\t")[0].strip() == answer.split("\t")[0].strip()
