"""Vision transformers (Dosovitskiy et al. 2021) as transformers keeps them; DeiT without distillation is published so.

A DeiT with a distillation token has a `model_type` of its own, which regard does not read.
"""

from collections.abc import Mapping
from typing import Any

from regard.convert import bert
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Image, Tower

__all__ = ["ACTIVATIONS", "KEYS", "VIT", "attention", "from_hf_config", "inputs", "to_hf_config"]

ACTIVATIONS = {**bert.ACTIVATIONS, "quick_gelu": "quick-gelu"}
COLOURS = {"3": False, "1": True}
BASE = Tower(norm="layer", norm_place="pre", bias=True, positions="learned", activation="gelu", dropout=0.0,
             embedding=Embedding(scaled=False), image=Image(size=224, fit="stretch"))
KEYS = Keys(
    base=BASE,
    renamed={"hidden_size": "width", "num_hidden_layers": "depth", "num_attention_heads": "heads",
          "intermediate_size": "ffn_width", "layer_norm_eps": "norm_epsilon", "hidden_dropout_prob": "dropout",
          "attention_probs_dropout_prob": "attention_dropout", "image_size": "image.size", "patch_size": "image.patch"},
    value_names={"hidden_act": ("activation", ACTIVATIONS), "num_channels": ("image.grey", COLOURS)},
    must_agree={},
    fixed={"qkv_bias": True},
    defaults={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "image_size": 224,
            "patch_size": 16, "hidden_act": "gelu", "num_channels": "3"},
    ignored=bert.IGNORED_KEYS | {"encoder_stride", "pooler_output_size", "pooler_act"})


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A square has one side, and colours are a word."""
    size, channels = config.get("image_size"), config.get("num_channels")
    square = size[0] if isinstance(size, list) and len(size) == 2 and size[0] == size[1] else size
    return {**config, "image_size": square, "num_channels": None if channels is None else str(channels)}


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**config, "num_channels": int(config["num_channels"])}


def inputs(tower: Tower, patches: str, token: str, positions: str, *, bias: bool = True) -> list[Rule]:
    """The rules below the first block; theirs has sides of 1 around a vector and a table."""
    image, width = tower.image, tower.width
    assert image is not None
    kernel = (width, 1 if image.grey else 3, image.patch, image.patch)
    return [
        Rule("encoder.inputs.class_token", (token,), shapes=((width,), (1, 1, width))),
        Rule("encoder.inputs.positions.table", (positions,),
             shapes=((image.places, width), (1, image.places, width))),
        Rule("encoder.inputs.patches.matrix.weight", (f"{patches}.weight",), shapes=((width, -1), kernel)),
        *([Rule("encoder.inputs.patches.matrix.bias", (f"{patches}.bias",))] if bias else []),
    ]


def attention(tower: Tower, theirs: str, *, query: str = "attention.query", key: str = "attention.key",
              value: str = "attention.value", out: str = "output.dense") -> list[Rule]:
    return [
        *linear("encoder.blocks.{}.self.qkv", *(f"{theirs}{name}" for name in (query, key, value)),
                rows=(tower.width,) * 3, bias=True),
        *linear("encoder.blocks.{}.self.out", f"{theirs}{out}", bias=True),
    ]


def rules(spec: ModelSpec) -> list[Rule]:
    tower, start = spec.canonical, "" if spec.kind == "image-backbone" else "vit."
    layer, block = start + "encoder.layer.{}.", "encoder.blocks.{}."
    each = [
        *attention(tower, f"{layer}attention."),
        *norm(f"{block}self_norm", f"{layer}layernorm_before", bias=True),
        *linear(f"{block}feed_forward.up", f"{layer}intermediate.dense", bias=True),
        *linear(f"{block}feed_forward.down", f"{layer}output.dense", bias=True),
        *norm(f"{block}feed_forward_norm", f"{layer}layernorm_after", bias=True),
    ]
    below = inputs(tower, f"{start}embeddings.patch_embeddings.projection", f"{start}embeddings.cls_token",
                   f"{start}embeddings.position_embeddings")
    labels = linear("head.output", "classifier", bias=True) if spec.kind == "image-labels" else []
    return [*below, *each_layer(each, tower.depth), *norm("encoder.norm", f"{start}layernorm", bias=True), *labels]


VIT = Family(
    name="vit", preset="vit-base", keys=KEYS, rules=rules, prefix="vit.", outside=("classifier.",),
    constants=r"(vit\.)?embeddings\.mask_token", from_hf_config=from_hf_config, to_hf_config=to_hf_config,
    heads={
        "image-backbone": HeadFormat("ViTModel", unread=r"(vit\.)?pooler\.dense\.(weight|bias)"),
        "image-labels": HeadFormat("ViTForImageClassification", has={"head.hidden": ("none",), "head.pool": ("first",)},
                             unread=r"(vit\.)?pooler\.dense\.(weight|bias)"),
    })
