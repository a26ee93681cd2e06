"""Keras' ResNet as TensorFlow.js keeps it: `model.json` and shards. Read as a ResNet of transformers; never written.

    model.json      the layers, and of each weight its name, shape and type, in the order of the shards
    group1-shard…   the weights one after the other, float32

`res4b_branch2a/kernel` is the first convolution of the second block of the third stage: (height, width, in, out). Three
things differ from transformers', and none is lost: a convolution has a bias, which its norm's mean takes in; the norms
add 1e-3 to the variance instead of 1e-5, so the variance takes in the rest; and pixels are blue, green, red from 0 to
255 less their mean.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checkpoint import read_json
from regard.settings.errors import UserError
from regard.settings.opening import to_read
from regard.settings.schema import Image
from regard.settings.setting import shown

__all__ = ["IMAGE", "MODEL", "read_labels_of", "read_resnet"]

MODEL = "model.json"
MEAN = 123.68, 116.779, 103.939  # of red, green and blue, from 0 to 255
IMAGE = Image(size=224, resize=256, mean=tuple(mean / 255 for mean in MEAN), std=(1 / 255,) * 3)
EPSILON = 1e-5  # of transformers' norms
FIRST_STAGE = 2  # Keras counts the first convolution as a stage
BRANCHES = {"branch2a": "layer.0", "branch2b": "layer.1", "branch2c": "layer.2", "branch1": "shortcut"}
LABELS = ("labels.json", "../assets/labels.json")


def read_resnet(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the tensors that transformers would have of this model."""
    origin, model = folder / MODEL, read_json(folder / MODEL)
    layers, weights = _layers(model, origin), _weights(model, folder)
    stages = _stages(weights, origin)
    classes, bias = weights.get("fc1000/kernel"), weights.get("fc1000/bias")
    if classes is None or bias is None:
        raise UserError(f"{origin}: has no weights called fc1000/kernel and fc1000/bias; regard reads Keras' ResNet "
                        "with its labels")
    if "pool1_pad" not in layers:
        raise UserError(f"{origin}: pools without padding (it has no layer pool1_pad), as in old versions of Keras; "
                        "regard's ResNet pads")
    tensors = {"classifier.1.weight": classes.T, "classifier.1.bias": bias}
    tensors |= _convolution(weights, layers, "conv1", "bn_conv1", "resnet.embedder.embedder", origin)
    first = tensors["resnet.embedder.embedder.convolution.weight"]
    tensors["resnet.embedder.embedder.convolution.weight"] = first.flip(1)  # blue, green, red
    for number, letters in enumerate(stages):
        for place, letter in enumerate(letters):
            name = f"{number + FIRST_STAGE}{letter}_"
            for branch, theirs in BRANCHES.items():
                if f"res{name}{branch}/kernel" in weights:
                    place_there = f"resnet.encoder.stages.{number}.layers.{place}.{theirs}"
                    tensors |= _convolution(weights, layers, f"res{name}{branch}", f"bn{name}{branch}", place_there,
                                            origin)
    widths = [len(tensors[f"resnet.encoder.stages.{number}.layers.0.layer.2.convolution.weight"])
              for number in range(len(stages))]
    strides = [layers.get(f"res{FIRST_STAGE + 1}a_{branch}", {}).get("strides") for branch in ("branch2a", "branch2b")]
    config = {"model_type": "resnet", "architectures": ["ResNetForImageClassification"], "hidden_sizes": widths,
              "embedding_size": len(first), "depths": [len(letters) for letters in stages],
              "layer_type": "bottleneck", "downsample_in_bottleneck": strides[0] == [2, 2], "num_channels": 3}
    return config, {name: tensor.contiguous() for name, tensor in tensors.items()}


def read_labels_of(folder: Path, count: int) -> dict[str, str]:
    """Their names, where a file beside the model has them: two of one name get their numbers."""
    place = next((folder / file for file in LABELS if (folder / file).is_file()), None)
    if place is None:
        return {}
    names = read_json(place)
    found = [names.get(str(number)) for number in range(count)]
    if len(names) != count or not all(isinstance(name, str) for name in found):
        raise UserError(f"{place}: must name the {count} labels of the model by their numbers")
    return {str(number): f"{name} ({number})" if found.count(name) > 1 else str(name)
            for number, name in enumerate(found)}


def _layers(model: Mapping[str, Any], origin: Path) -> dict[str, dict[str, Any]]:
    """The settings of each layer, by its name."""
    topology = model.get("modelTopology")
    for key in ("model_config", "config"):  # Keras' own files leave the first out
        topology = topology.get(key, topology) if isinstance(topology, dict) else None
    layers = topology.get("layers") if isinstance(topology, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) and isinstance(layer.get("config"), dict)
                                               for layer in layers):
        raise UserError(f"{origin}: has no layers; it is no model of Keras in the format of TensorFlow.js")
    return {str(layer["config"].get("name")): layer["config"] for layer in layers}


def _weights(model: Mapping[str, Any], folder: Path) -> dict[str, Tensor]:
    """Each weight by its name, in the shape that the file says."""
    found = dict[str, Tensor]()
    groups = model.get("weightsManifest")
    if not isinstance(groups, list):
        raise UserError(f"{folder / MODEL}: has no weightsManifest")
    for group in groups:
        shapes = dict(_shapes(group, folder / MODEL))
        content = b"".join(_shards(group, folder))
        wanted = 4 * sum(map(math.prod, shapes.values()))
        if len(content) != wanted:
            raise UserError(f"{folder}: its shards have {len(content):,} bytes, but {MODEL} describes {wanted:,}")
        numbers = torch.from_numpy(np.frombuffer(content, "<f4").astype(np.float32))
        parts = numbers.split([math.prod(shape) for shape in shapes.values()])
        found |= {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return found


def _shapes(group: Any, origin: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for weight in group.get("weights", ()) if isinstance(group, dict) else ():
        match weight:
            case {"name": str(name), "shape": [*shape], "dtype": "float32", **more} if "quantization" not in more:
                if all(type(side) is int and 0 < side < 1 << 24 for side in shape):
                    yield name, tuple(shape)
                    continue
        raise UserError(f"{origin}: {shown(json.dumps(weight))}: must be the name and shape of float32 weights")


def _shards(group: Mapping[str, Any], folder: Path) -> Iterator[bytes]:
    for name in group.get("paths", ()):
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{folder / MODEL}: names {shown(name)}, which is no file of this folder")
        try:
            with open(folder / name, "rb", opener=to_read) as file:
                yield file.read()
        except OSError as error:
            raise UserError(f"{folder / name}: {error.strerror}; {MODEL} names it") from None


def _stages(weights: Mapping[str, Tensor], origin: Path) -> list[list[str]]:
    """The letters of the blocks of each stage."""
    blocks = {match.groups() for name in weights if (match := re.fullmatch(r"res(\d)([a-z])_branch2c/kernel", name))}
    stages = [sorted(letter for stage, letter in blocks if int(stage) == number)
              for number in range(FIRST_STAGE, FIRST_STAGE + len({stage for stage, _ in blocks}))]
    if not blocks or not all(stages):
        raise UserError(f"{origin}: has no weights called res2a_branch2c/kernel and so on; regard reads Keras' ResNet")
    return stages


def _convolution(weights: Mapping[str, Tensor], layers: Mapping[str, Mapping[str, Any]], name: str, norm: str,
                 theirs: str, origin: Path) -> dict[str, Tensor]:
    """A convolution without a bias, and a norm with transformers' ε, that compute the same."""
    names = [f"{name}/kernel", *(f"{norm}/{part}" for part in ("gamma", "beta", "moving_mean", "moving_variance"))]
    if missing := [each for each in names if each not in weights]:
        raise UserError(f"{origin}: has no weights called {missing[0]}")
    kernel, gamma, beta, mean, variance = (weights[each] for each in names)
    bias, epsilon = weights.get(f"{name}/bias", torch.zeros(())), layers.get(norm, {}).get("epsilon", 1e-3)
    return {
        f"{theirs}.convolution.weight": kernel.permute(3, 2, 0, 1),
        f"{theirs}.normalization.weight": gamma, f"{theirs}.normalization.bias": beta,
        f"{theirs}.normalization.running_mean": mean - bias,
        f"{theirs}.normalization.running_var": variance + (epsilon - EPSILON),
    }
