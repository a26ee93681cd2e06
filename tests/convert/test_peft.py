"""Adapters as PEFT keeps them: it opens them on the base model, and the logits are the run's."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.predictor import load
from regard.training.loop import train
from regard.verbs.train import settled

TINY = ["model.width=16", "model.depth=2", "model.heads=2", "model.max_positions=32", "data.max_tokens=32",
        "device=cpu", "tokens.vocabulary=300", "train.steps=2", "train.batch_tokens=64", "train.precision=float32"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, numbers in (("train", range(20)), ("val", range(20, 24))):
        lines = (f"{'red' if n % 2 else 'blue'} {n}\t{'ab'[n % 2]}\n" for n in numbers)
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


def adapted(data: Path, folder: Path, preset: str, *, on: str = "q,v", more: tuple[str, ...] = ()) -> Path:
    """A run of two labels, and one with adapters that starts from its model; gives the place of both."""
    first = settled("classify", [data], None, None, None, [f"model.preset={preset}", *TINY, *more])
    train(first, folder / "base", quiet=True)
    how = [*TINY[5:6], *TINY[7:], f"train.init_from={folder / 'base'}", "train.trainable=lora",
           f"train.lora.targets={on}", "train.learning_rate=0.02", "train.warmup=1", "train.steps=6"]
    train(settled("classify", [data], None, None, None, how), folder / "tuned", quiet=True)
    return folder


# peft asks for a property that transformers has renamed, and which warns.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize(("preset", "on", "more"), [
    ("bert-base", "q,v", ()),
    ("roberta-base", "q,k,v,out,up,down", ()),
    ("distilbert", "q,down", ()),
    ("electra-small", "v,out", ("model.embedding.width=8",)),
])
def test_peft_opens_the_adapters_on_the_base_with_the_same_logits(
    data: Path, tmp_path: Path, preset: str, on: str, more: tuple[str, ...]
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = adapted(data, tmp_path, preset, on=on, more=more)
    predictor = load(folder / "tuned", device="cpu")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "base").eval()
    rows = torch.tensor(predictor.task.data.rows(["red 3", "red 7"]))
    with torch.no_grad():
        before = base(input_ids=rows).logits
        theirs = peft.PeftModel.from_pretrained(base, folder / "tuned" / "adapter").eval()(input_ids=rows).logits
        ours = predictor.model(rows)
        whole = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "tuned").eval()
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(whole(input_ids=rows).logits, ours, rtol=1e-5, atol=1e-5)
    assert (before - ours).abs().max() > 0.02


def test_the_files_name_the_family_s_own_products_and_the_head(data: Path, tmp_path: Path) -> None:
    place = adapted(data, tmp_path, "bert-base") / "tuned" / "adapter"
    config = json.loads((place / "adapter_config.json").read_text())
    tensors = load_file(place / "adapter_model.safetensors")
    assert config["target_modules"] == [f"bert.encoder.layer.{layer}.attention.self.{name}"
                                        for layer in (0, 1) for name in ("query", "value")]
    assert config["modules_to_save"] == ["bert.pooler.dense", "classifier"]
    assert tensors["base_model.model.bert.encoder.layer.1.attention.self.query.lora_A.weight"].shape == (8, 16)
    assert tensors["base_model.model.bert.encoder.layer.1.attention.self.value.lora_B.weight"].shape == (16, 8)
    assert tensors["base_model.model.classifier.weight"].shape == (2, 16)


def test_a_model_of_no_family_has_its_adapters_merged_alone(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(settled("classify", [data], None, None, None, TINY), tmp_path / "base", quiet=True)
    run = settled("classify", [data], None, None, None,
                  [*TINY[5:6], *TINY[7:], f"train.init_from={tmp_path / 'base'}", "train.trainable=lora"])
    train(run, tmp_path / "tuned")
    assert "PEFT supports no model of this shape" in capsys.readouterr().err
    assert not (tmp_path / "tuned" / "adapter").exists()
    assert load(tmp_path / "tuned", device="cpu").predict(["red 3"])[0] in ("a", "b")
