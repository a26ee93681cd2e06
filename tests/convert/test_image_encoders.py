"""Encoders of images of transformers compute the same here, and ours there; their files come back as they were."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from towers import close, shaken

pytest.importorskip("transformers")
import transformers

from regard.checkpoint import load_weights, named_tensors, write_json
from regard.convert.backbone import backbone_of
from regard.convert.directory import read_directory
from regard.convert.families import FAMILIES, family_of
from regard.convert.import_export import export_run, import_run, read_run_model, write_run_model
from regard.convert.model_spec import ModelSpec
from regard.nn.convolution import BatchNorm
from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.settings.presets import PRESETS
from regard.settings.schema import Image, Run
from regard.settings.setting import replaced

transformers.utils.logging.enable_propagation()
LABELS = {0: "cat", 1: "Spaß", 2: "a, b"}
VIT: dict[str, Any] = {"hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 21,
                       "image_size": 8, "patch_size": 4}
CNN: dict[str, Any] = {"hidden_sizes": [8, 16], "embedding_size": 2, "depths": [1, 2], "layer_type": "bottleneck"}
SMALL: dict[str, dict[str, Any]] = {
    "vit": VIT, "vit grey": VIT | {"num_channels": 1, "hidden_act": "gelu_new"},
    "dinov2": {**{key: value for key, value in VIT.items() if key != "intermediate_size"}, "mlp_ratio": 2},
    "clip_vision_model": VIT | {"projection_dim": 5},
    "resnet": CNN, "resnet early": CNN | {"downsample_in_bottleneck": True},
    "resnet basic": CNN | {"layer_type": "basic", "embedding_size": 8},
}
CLASSES = {"image-backbone": "AutoModel", "image-labels": "AutoModelForImageClassification"}
KINDS = [(name, kind) for name in SMALL for kind in CLASSES if kind == "image-backbone" or name.startswith(
    ("vit", "resnet"))]
every = pytest.mark.parametrize(("name", "kind"), KINDS)
labelled = pytest.mark.parametrize("name", [name for name, kind in KINDS if kind == "image-labels"])


def stirred(model: Any) -> Any:
    """With weights and running statistics of every size."""
    shaken(model)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            nn.init.uniform_(buffer, 0.5, 1.5)
        elif name.endswith("running_mean"):
            nn.init.normal_(buffer)
    for part in model.modules():
        if isinstance(part, BatchNorm):
            nn.init.uniform_(part.running, 0.5, 1.5)
    return model


def peer(name: str, kind: str, **config: Any) -> Any:
    """transformers' own, with random weights."""
    names = {"id2label": LABELS, "label2id": {label: id for id, label in LABELS.items()}}
    there = transformers.AutoConfig.for_model(name.split()[0], **{**names, **SMALL[name], **config})
    return stirred(getattr(transformers, CLASSES[kind]).from_config(there))


def saved(folder: Path, model: Any, **prepared: Any) -> Path:
    model.save_pretrained(folder)
    if prepared:
        write_json(folder / "preprocessor_config.json", prepared)
    return folder


@torch.no_grad()
def theirs(model: Any, pixels: Tensor) -> Tensor:
    """Logits, or the states after the last norm."""
    found = model(pixels)
    if hasattr(found, "logits"):
        return found.logits  # type: ignore[no-any-return]
    states: Tensor = found.last_hidden_state
    if model.config.model_type == "resnet":
        return states.flatten(2).mT
    return model.post_layernorm(states) if model.config.model_type == "clip_vision_model" else states


def pixels(name: str) -> Tensor:
    return torch.randn(3, SMALL[name].get("num_channels", 3), *([32, 32] if "resnet" in name else [8, 8]))


def read(folder: Path) -> nn.Module:
    published = read_directory(folder)
    model = published.spec.model().eval()
    load_weights(model, published.ours(origin=str(folder)), origin=str(folder))
    return model


def opened(folder: Path) -> nn.Module:
    """The model of a run directory."""
    run = load(folder / "run.json")
    sizes, weights = read_run_model(folder, run)
    model = ModelSpec.of(run, sizes, pad=0).model().eval()
    load_weights(model, weights, origin=str(folder))
    return model


@every
def test_what_transformers_saved_computes_the_same_here(tmp_path: Path, name: str, kind: str) -> None:
    there, images = peer(name, kind), pixels(name)
    model = read(saved(tmp_path, there))
    with torch.no_grad():
        close(model(images), theirs(there, images))


@labelled
def test_a_published_classifier_becomes_a_run(tmp_path: Path, name: str) -> None:
    there, images = peer(name, "image-labels"), pixels(name)
    import_run(saved(tmp_path / "in", there), tmp_path / "run")
    run = load(tmp_path / "run" / "run.json")
    assert (run.task, run.model.image is None) == ("classify", False)
    assert json.loads((tmp_path / "run" / "labels.json").read_text()) == {"labels": list(LABELS.values())}
    with torch.no_grad():
        close(opened(tmp_path / "run")(images), theirs(there, images))


@labelled
def test_files_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    first = saved(tmp_path / "first", peer(name, "image-labels"))
    import_run(first, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (first, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in after)
    configs = [transformers.AutoConfig.from_pretrained(folder).to_dict() for folder in (first, tmp_path / "out")]
    differ = {key for key in {*configs[0], *configs[1]} if configs[0].get(key) != configs[1].get(key)}
    assert differ <= {"_name_or_path", "problem_type", "torch_dtype", "dtype", "transformers_version"}


@labelled
def test_what_was_made_here_opens_there(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    family, images = FAMILIES[name.split()[0]], pixels(name)
    there = peer(name, "image-labels")
    tower = family.tower(there.config.to_dict(), "image-labels", origin="there")
    run = Run(task="classify", model=replace(tower, preset=None, max_positions=9, init="plain"))
    model = stirred(ModelSpec.of(run, {"labels": 3}, pad=0).model())
    write_json(tmp_path / "run.json", to_json(run))
    write_json(tmp_path / "labels.json", {"labels": list(LABELS.values())})
    write_run_model(tmp_path, run, {"labels": 3}, named_tensors(model))
    with caplog.at_level(logging.WARNING, logger="transformers"):
        again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert caplog.messages == []
    assert again.config.model_type == family.name
    with torch.no_grad():
        close(model(images), theirs(again, images))
        close(opened(tmp_path)(images), theirs(again, images))


def test_the_image_tower_of_a_clip_is_read_without_its_texts(tmp_path: Path) -> None:
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
            "vocab_size": 20}
    config = transformers.CLIPConfig(vision_config=VIT, text_config=text, projection_dim=5)
    there, images = stirred(transformers.CLIPModel(config)), torch.randn(2, 3, 8, 8)
    model = read(saved(tmp_path, there))
    with torch.no_grad():
        close(model(images)[:, 0], there.vision_model(images).pooler_output)


def test_a_body_without_labels_is_a_start_and_no_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "in", peer("dinov2", "image-backbone"))
    with pytest.raises(UserError, match="has no labels, so it has no answers of its own; start from it with"):
        import_run(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    backbone = backbone_of(folder)
    assert backbone.task == "encode"
    assert backbone.tower.layer_scale == 1.0
    assert "encoder.blocks.0.self_scale.factors" in backbone.weights


@pytest.mark.parametrize(("name", "config", "message"), [
    ("vit", {"qkv_bias": False}, "qkv_bias=false: regard only supports true"),
    ("vit", {"image_size": [8, 12]}, "image_size"),
    ("vit", {"num_channels": 4}, "num_channels"),
    ("vit", {"hidden_act": "mish"}, "hidden_act='mish': regard has 'gelu'"),
    ("vit", {"patch_size": 3}, "does not divide model.image.size=8"),
    ("vit", {"model_type": "deit"}, "model_type=deit: has a distillation token"),
    ("dinov2", {"use_swiglu_ffn": True}, "use_swiglu_ffn=true: regard only supports false"),
    ("dinov2", {"architectures": ["Dinov2ForImageClassification"]}, "regard has Dinov2Model"),
    ("resnet", {"hidden_sizes": [8, 24]}, "hidden_sizes=8, 24, embedding_size=2: regard has stages of twice"),
    ("resnet", {"embedding_size": 3}, "embedding_size=3: regard has stages of twice"),
    ("resnet", {"downsample_in_first_stage": True}, "downsample_in_first_stage=true: regard only supports false"),
])
def test_a_config_that_asks_for_something_else_is_refused(
        tmp_path: Path, name: str, config: dict[str, Any], message: str) -> None:
    folder = saved(tmp_path, peer(name, "image-backbone"))
    whole = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(whole | config))
    with pytest.raises(UserError) as refused:
        read_directory(folder)
    assert message in str(refused.value)
    assert str(folder / "config.json") in str(refused.value)


NORMAL = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}


@pytest.mark.parametrize(("name", "prepared", "expected"), [
    ("vit", {}, Image(size=8, patch=4, fit="stretch")),
    ("vit", {"size": {"height": 8, "width": 8}, "resample": 3, **NORMAL},
     Image(size=8, patch=4, fit="stretch", resample="bicubic", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))),
    ("vit", {"size": 8, "do_normalize": False}, Image(size=8, patch=4, fit="stretch", mean=(0.0,), std=(1.0,))),
    ("vit", {"size": {"shortest_edge": 10}, "do_center_crop": True, "crop_size": {"height": 8, "width": 8}},
     Image(size=8, patch=4, fit="crop", resize=10)),
    ("vit", {"size": 20, "do_center_crop": True, "crop_size": 16}, Image(size=8, patch=4, fit="crop", resize=10)),
    ("vit", {"do_resize": False}, Image(size=8, patch=4, fit="stretch")),
])
def test_a_preprocessor_is_read(tmp_path: Path, name: str, prepared: dict[str, Any], expected: Image) -> None:
    found = read_directory(saved(tmp_path, peer(name, "image-labels"), **prepared)).tower.image
    assert found == expected


@pytest.mark.parametrize(("prepared", "size", "resize", "fit"), [
    ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 224, 256, "crop"),
    ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, 384, None, "stretch"),
    ({"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32}, 32, 40, "crop"), ({}, 224, 256, "crop"),
])
def test_a_resnet_s_size_is_its_preprocessor_s(
        tmp_path: Path, prepared: dict[str, Any], size: int, resize: int | None, fit: str) -> None:
    image = read_directory(saved(tmp_path, peer("resnet", "image-labels"), **prepared)).tower.image
    assert image is not None
    assert (image.size, image.resize, image.fit) == (size, resize, fit)


@pytest.mark.parametrize(("prepared", "message"), [
    ({"rescale_factor": 1 / 127.5}, "regard only supports 1/255"), ({"resample": 1}, "resample=1: regard has 0, 2, 3"),
    ({"size": {"height": 8, "width": 12}}, "as wide as high"), ({"image_mean": [2.0]}, "at most 1, got 2.0"),
    ({"size": {"height": 10, "width": 10}, "do_center_crop": True, "crop_size": 8}, "crop_size=8: regard crops only"),
    ({"size": {"shortest_edge": 10}}, "regard reads images of one shape"),
])
def test_a_preprocessor_that_does_something_else_is_refused(
        tmp_path: Path, prepared: dict[str, Any], message: str) -> None:
    folder = saved(tmp_path, peer("vit", "image-labels"), **prepared)
    with pytest.raises(UserError) as refused:
        read_directory(folder)
    assert message in str(refused.value)
    assert "preprocessor_config.json" in str(refused.value)


@pytest.mark.parametrize("image", [
    Image(size=8, patch=4, fit="stretch", resample="bicubic", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
    Image(size=8, patch=4, fit="crop", resize=10), Image(size=8, patch=4, fit="crop", resample="nearest"),
    Image(size=8, patch=4, fit="stretch", grey=True)])
def test_image_settings_come_back(tmp_path: Path, image: Image) -> None:
    tower = replace(replaced(PRESETS["vit-tiny"](), {"width": 12, "depth": 1, "heads": 3}), image=image)
    run = Run(task="classify", model=tower)
    write_json(tmp_path / "labels.json", {"labels": ["a", "b"]})
    model = stirred(ModelSpec.of(run, {"labels": 2}, pad=0).model())
    write_run_model(tmp_path, run, {"labels": 2}, named_tensors(model))
    found = read_directory(tmp_path).tower.image
    channels = 1 if image.grey else 3
    same = {"mean": image.mean * channels if len(image.mean) == 1 else image.mean,
            "std": image.std * channels if len(image.std) == 1 else image.std}
    resize = image.resize or (image.size if image.fit == "crop" else None)
    assert found == replace(image, **same, resize=resize)


@pytest.mark.parametrize(("preset", "settings", "family"), [
    ("vit-base", {}, "vit"), ("vit-small", {"image.size": 32, "image.patch": 4}, "vit"), ("resnet-50", {}, "resnet"),
    ("resnet-18", {}, "resnet"), ("resnet-18", {"image.size": 32, "image.patch": 1}, None), ("cct-7", {}, None),
    ("vit-base", {"head.pool": "mean"}, None), ("vit-base", {"image.class_token": False, "head.pool": "mean"}, None),
    ("vit-base", {"positions": "sinusoidal"}, None), ("vit-base", {"layer_scale": 0.1}, None),
    ("vit-base", {"init": "mimetic", "dropout": 0.3}, "vit"),
])
def test_a_preset_is_of_the_family_of_its_name(preset: str, settings: dict[str, Any], family: str | None) -> None:
    run = Run(task="classify", model=replaced(PRESETS[preset](), settings))
    found = family_of(ModelSpec.of(run, {"labels": 3}, pad=0))
    assert (found and found.name) == family


def test_positions_are_interpolated_for_images_of_another_size(tmp_path: Path) -> None:
    """As transformers' own do it, when it is asked to."""
    there = peer("dinov2", "image-backbone")
    backbone = backbone_of(saved(tmp_path, there))
    assert backbone.weights_for(backbone.tower) == backbone.weights
    assert backbone.tower.image is not None
    larger = replace(backbone.tower, image=replace(backbone.tower.image, size=20))
    model = ModelSpec(tower=larger, kind="image-backbone").model().eval()
    load_weights(model, backbone.weights_for(larger), origin="there")
    images = torch.randn(2, 3, 20, 20)
    with torch.no_grad():
        close(model(images), theirs(there, images))
