"""Keras' ResNet, in the files of TensorFlow.js: a tiny one with random weights, and the same computed as Keras does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.checkpoint import load_weights
from regard.convert.backbone import backbone_of
from regard.convert.directory import read_directory
from regard.convert.import_export import import_run, read_run_model
from regard.data.images.pixels import normalized
from regard.settings.errors import UserError
from regard.settings.load import load

EPSILON, LABELS = 1e-3, 5
BLOCKS = {"2a": (2, 2, 8), "2b": (8, 2, 8), "3a": (8, 4, 16)}  # channels: in, inside, out


def convolutions() -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """Name, norm, shape of the kernel and stride of each."""
    yield "conv1", "bn_conv1", (7, 7, 3, 2), 2
    for block, (inputs, inner, outputs) in BLOCKS.items():
        stride = 2 if block == "3a" else 1
        shapes = {"branch2a": (1, 1, inputs, inner), "branch2b": (3, 3, inner, inner),
                  "branch2c": (1, 1, inner, outputs)}
        if block.endswith("a"):
            shapes["branch1"] = (1, 1, inputs, outputs)
        for branch, shape in shapes.items():
            step = stride if branch in ("branch2a", "branch1") else 1
            yield f"res{block}_{branch}", f"bn{block}_{branch}", shape, step


def made(seed: int = 0) -> dict[str, np.ndarray]:
    dice, found = np.random.default_rng(seed), dict[str, np.ndarray]()
    for name, norm, shape, _ in convolutions():
        found[f"{norm}/gamma"], found[f"{norm}/beta"] = dice.normal(1, 0.3, shape[-1]), dice.normal(0, 0.3, shape[-1])
        found[f"{norm}/moving_mean"] = dice.normal(0, 0.3, shape[-1])
        found[f"{norm}/moving_variance"] = dice.uniform(0.001, 0.5, shape[-1])
        found[f"{name}/kernel"], found[f"{name}/bias"] = dice.normal(0, 0.3, shape), dice.normal(0, 0.3, shape[-1])
    found["fc1000/kernel"], found["fc1000/bias"] = dice.normal(0, 0.3, (16, LABELS)), dice.normal(0, 0.3, LABELS)
    return {name: numbers.astype("<f4") for name, numbers in found.items()}


def write(folder: Path, weights: dict[str, np.ndarray]) -> Path:
    """In three shards, cut anywhere."""
    folder.mkdir(exist_ok=True)
    content = b"".join(numbers.tobytes() for numbers in weights.values())
    names = [f"group1-shard{number}of3.bin" for number in (1, 2, 3)]
    for name, part in zip(names, (content[:101], content[101:1000], content[1000:]), strict=True):
        (folder / name).write_bytes(part)
    layers: list[dict[str, Any]] = [{"name": "pool1_pad"}]
    layers += [{"name": name, "strides": [stride] * 2} for name, _, _, stride in convolutions()]
    layers += [{"name": norm, "epsilon": EPSILON} for _, norm, _, _ in convolutions()]
    topology = {"config": {"layers": [{"class_name": "Layer", "config": layer} for layer in layers]}}
    shapes = [{"name": name, "shape": list(numbers.shape), "dtype": "float32"} for name, numbers in weights.items()]
    about = {"format": "layers-model", "modelTopology": {"model_config": topology},
             "weightsManifest": [{"paths": names, "weights": shapes}]}
    (folder / "model.json").write_text(json.dumps(about))
    return folder


def as_keras(weights: dict[str, np.ndarray], pixels: Tensor) -> Tensor:
    """Logits of pictures of bytes, whose colours Keras takes in the order blue, green, red."""
    of = {name: torch.from_numpy(numbers) for name, numbers in weights.items()}

    def convolved(x: Tensor, name: str, norm: str, stride: int) -> Tensor:
        kernel = of[f"{name}/kernel"].permute(3, 2, 0, 1)
        x = F.conv2d(x, kernel, of[f"{name}/bias"], stride=stride, padding=kernel.shape[-1] // 2)
        return F.batch_norm(x, of[f"{norm}/moving_mean"], of[f"{norm}/moving_variance"], of[f"{norm}/gamma"],
                            of[f"{norm}/beta"], eps=EPSILON)

    x = pixels.flip(1).float() - torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    x = F.max_pool2d(F.pad(convolved(x, "conv1", "bn_conv1", 2).relu(), (1, 1, 1, 1)), 3, stride=2)
    for block in BLOCKS:
        stride = 2 if block == "3a" else 1
        h = convolved(x, f"res{block}_branch2a", f"bn{block}_branch2a", stride).relu()
        h = convolved(h, f"res{block}_branch2b", f"bn{block}_branch2b", 1).relu()
        h = convolved(h, f"res{block}_branch2c", f"bn{block}_branch2c", 1)
        x = convolved(x, f"res{block}_branch1", f"bn{block}_branch1", stride) if block.endswith("a") else x
        x = (x + h).relu()
    return x.mean((2, 3)) @ of["fc1000/kernel"] + of["fc1000/bias"]


def same(found: Tensor, wanted: Tensor) -> None:
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


def test_keras_resnet_gives_the_same_logits_here(tmp_path: Path) -> None:
    weights, pixels = made(), torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    published = read_directory(write(tmp_path, weights))
    model = published.spec.model().eval()
    load_weights(model, published.ours(origin="there"), origin="there")
    assert published.tower.image is not None
    with torch.no_grad():
        same(model(normalized(pixels, published.tower.image)), as_keras(weights, pixels))


def test_it_becomes_a_run_that_others_open(tmp_path: Path) -> None:
    weights, pixels = made(), torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
    names = ["crane", "tench", "crane", "cat", "dog"]
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "labels.json").write_text(json.dumps(dict(enumerate(names))))
    import_run(write(tmp_path / "ResNet", weights), tmp_path / "run")
    run = load(tmp_path / "run" / "run.json")
    told = json.loads((tmp_path / "run" / "labels.json").read_text())["labels"]
    assert told == ["crane (0)", "tench", "crane (2)", "cat", "dog"]
    assert (run.task, run.model.image and run.model.image.early_stride) == ("classify", True)
    assert read_run_model(tmp_path / "run", run)[0] == {"labels": LABELS}
    transformers = pytest.importorskip("transformers")
    there = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run").eval()
    assert run.model.image is not None
    with torch.no_grad():
        same(there(normalized(pixels, run.model.image)).logits, as_keras(weights, pixels))


def test_a_model_may_start_from_it(tmp_path: Path) -> None:
    backbone = backbone_of(write(tmp_path, made()))
    assert (backbone.task, backbone.tokens, backbone.tower.width) == ("classify", None, 16)
    assert "encoder.inputs.stages.1.0.convolutions.2.norm.running" in backbone.weights


def without(name: str) -> dict[str, np.ndarray]:
    return {each: numbers for each, numbers in made().items() if each != name}


@pytest.mark.parametrize(("name", "message"), [
    ("fc1000/kernel", "has no weights called fc1000/kernel"), ("fc1000/bias", "has no weights called fc1000/kernel"),
    ("conv1/kernel", "has no weights called conv1/kernel"),
    ("bn3a_branch2b/gamma", "has no weights called bn3a_branch2b/gamma"),
])
def test_a_model_without_its_weights_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_directory(write(tmp_path, without(name)))


def changed(folder: Path, change: Any) -> None:
    about = json.loads((folder / "model.json").read_text())
    change(about)
    (folder / "model.json").write_text(json.dumps(about))


@pytest.mark.parametrize(("change", "message"), [
    (lambda about: about.pop("weightsManifest"), "has no weightsManifest"),
    (lambda about: about.pop("modelTopology"), "has no layers"),
    (lambda about: about["weightsManifest"][0]["paths"].pop(), "shards have 1,000 bytes, but model.json describes"),
    (lambda about: about["weightsManifest"][0]["paths"].__setitem__(0, "../x"), "is no file of this folder"),
    (lambda about: about["weightsManifest"][0]["paths"].__setitem__(0, "other"), "model.json names it"),
    (lambda about: about["weightsManifest"][0]["weights"][0].update(dtype="uint8"), "of float32 weights"),
    (lambda about: about["weightsManifest"][0]["weights"][0].update(shape=[-1]), "of float32 weights"),
    (lambda about: about["weightsManifest"][0]["weights"][0].update(quantization={}), "of float32 weights"),
    (lambda about: about["modelTopology"]["model_config"]["config"]["layers"].pop(0), "pools without padding"),
])
def test_files_that_are_wrong_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    changed(write(tmp_path, made()), change)
    with pytest.raises(UserError, match=message):
        read_directory(tmp_path)
