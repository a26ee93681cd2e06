"""Residual networks (He et al. 2016) as transformers keeps them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.convert import bert, vit
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, linear, norm
from regard.nn.convolution import NARROWED
from regard.settings import schema
from regard.settings.errors import UserError
from regard.settings.schema import Image, Tower
from regard.settings.setting import shown, written

__all__ = ["RESNET", "convolution"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KEYS = Keys(
    base=Tower(width=2048, heads=1, positions="none", norm_epsilon=1e-5, head=schema.Head(pool="mean"), image=Image(
        size=224, resize=256, resample="bicubic", mean=MEAN, std=STD, stem="resnet", patch=4, class_token=False)),
    renamed={"hidden_sizes": "width", "depths": "image.stages"},
    value_names={"layer_type": ("image.bottleneck", {"basic": False, "bottleneck": True}),
           "downsample_in_bottleneck": ("image.early_stride", {False: False, True: True}),
           "num_channels": ("image.grey", {"3": False, "1": True})},
    must_agree={},
    fixed={"hidden_act": "relu", "downsample_in_first_stage": False},
    defaults={"hidden_sizes": 2048, "depths": [3, 4, 6, 3], "layer_type": "bottleneck",
              "downsample_in_bottleneck": False, "num_channels": "3"},
    ignored=bert.IGNORED_KEYS | {"out_features", "out_indices", "stage_names"})


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Widths double from stage to stage, so the last says all."""
    widths, first = config.get("hidden_sizes", [256, 512, 1024, 2048]), config.get("embedding_size", 64)
    narrowed = NARROWED if config.get("layer_type", "bottleneck") == "bottleneck" else 1
    if not (isinstance(widths, list) and widths and all(type(width) is int and width > 0 for width in widths)):
        raise UserError(f"hidden_sizes={shown(widths)}: must be the width of each stage")
    doubled = [widths[-1] >> later for later in reversed(range(len(widths)))]
    if widths != doubled or first != widths[0] // narrowed:
        raise UserError(f"hidden_sizes={written(tuple(widths))}, embedding_size={shown(first)}: regard has stages of "
                        "twice the width of the one before, and a first convolution as wide as the first stage inside")
    read = vit.from_hf_config({**config, "hidden_sizes": widths[-1]})
    return {name: value for name, value in read.items() if name not in ("embedding_size", "image_size")}


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    widths = [config["hidden_sizes"] >> later for later in reversed(range(len(config["depths"])))]
    first = widths[0] // (NARROWED if config["layer_type"] == "bottleneck" else 1)
    return vit.to_hf_config({
        **config, "hidden_sizes": widths, "embedding_size": first, "depths": list(config["depths"])})


def lacks(tower: Tower) -> list[str]:
    return ["image.patch"] if tower.image is not None and tower.image.patch != 4 else []


def convolution(ours: str, theirs: str, channels: int) -> list[Rule]:
    """Of a convolution and its batch norm."""
    return [
        Rule(f"{ours}.kernel.weight", (f"{theirs}.convolution.weight",)),
        *norm(f"{ours}.norm", f"{theirs}.normalization", bias=True),
        Rule(f"{ours}.norm.running",
             (f"{theirs}.normalization.running_mean", f"{theirs}.normalization.running_var"), rows=(1, 1),
             shapes=((1, channels), (channels,))),
    ]


def adds(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How many batches each norm has seen, which nothing reads."""
    return {name.replace("running_mean", "num_batches_tracked"): torch.zeros((), dtype=torch.int64)
            for name in weights if name.endswith("running_mean")}


def rules(spec: ModelSpec) -> list[Rule]:
    tower, start = spec.canonical, "" if spec.kind == "image-backbone" else "resnet."
    image = tower.image
    assert image is not None
    found, x = list[Rule](), 0
    for number, depth in enumerate(image.stages):
        width = tower.width >> len(image.stages) - 1 - number
        inner = width // NARROWED if image.bottleneck else width
        if not number:
            x = inner
            found += convolution("encoder.inputs.first", f"{start}embedder.embedder", x)
        for place in range(depth):
            block = f"encoder.inputs.stages.{number}.{place}"
            layer = f"{start}encoder.stages.{number}.layers.{place}"
            widths = [inner, inner, width] if image.bottleneck else [width, width]
            for step, channels in enumerate(widths):
                found += convolution(f"{block}.convolutions.{step}", f"{layer}.layer.{step}", channels)
            if x != width or (number and not place):
                found += convolution(f"{block}.shortcut", f"{layer}.shortcut", width)
            x = width
    return [*found, *(linear("head.output", "classifier.1", bias=True) if spec.kind == "image-labels" else [])]


RESNET = Family(
    name="resnet", preset="resnet-50", keys=KEYS, rules=rules, prefix="resnet.", outside=("classifier.",),
    constants=r".*\.num_batches_tracked", from_hf_config=from_hf_config, to_hf_config=to_hf_config, lacks=lacks,
    adds=adds,
    heads={
        "image-backbone": HeadFormat("ResNetModel"),
        "image-labels": HeadFormat("ResNetForImageClassification",
                             has={"head.hidden": ("none",), "head.pool": ("mean",), "norm_epsilon": (1e-5,)}),
    })
