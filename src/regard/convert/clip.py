"""CLIP's image tower (Radford et al. 2021) as transformers keeps it, with or without the tower for texts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.convert import vit
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Image

__all__ = ["CLIP", "CLIP_VISION"]

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
KEYS = Keys(
    base=replace(vit.KEYS.base, embedding=Embedding(scaled=False, norm=True),
                 image=Image(size=224, mean=MEAN, std=STD, resample="bicubic")),
    renamed={"hidden_size": "width", "num_hidden_layers": "depth", "num_attention_heads": "heads",
          "intermediate_size": "ffn_width", "layer_norm_eps": "norm_epsilon", "attention_dropout": "attention_dropout",
          "image_size": "image.size", "patch_size": "image.patch"},
    value_names=vit.KEYS.value_names,
    must_agree={},
    fixed={},
    defaults={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "layer_norm_eps": 1e-5, "attention_dropout": 0.0, "image_size": 224, "patch_size": 32,
            "hidden_act": "quick_gelu", "num_channels": "3"},
    ignored=vit.KEYS.ignored | {"dropout", "initializer_factor", "projection_dim"})


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config of both towers that is about images."""
    inner = config.get("vision_config")
    return vit.from_hf_config(inner if isinstance(inner, dict) else {})


def rules(spec: ModelSpec) -> list[Rule]:
    tower, layer, block = spec.canonical, "encoder.layers.{}.", "encoder.blocks.{}."
    each = [
        *vit.attention(tower, f"{layer}self_attn.", query="q_proj", key="k_proj", value="v_proj", out="out_proj"),
        *norm(f"{block}self_norm", f"{layer}layer_norm1", bias=True),
        *linear(f"{block}feed_forward.up", f"{layer}mlp.fc1", bias=True),
        *linear(f"{block}feed_forward.down", f"{layer}mlp.fc2", bias=True),
        *norm(f"{block}feed_forward_norm", f"{layer}layer_norm2", bias=True),
    ]
    token, table, *below = vit.inputs(tower, "embeddings.patch_embedding", "embeddings.class_embedding",
                                      "embeddings.position_embedding.weight", bias=False)
    return [replace(token, shapes=None), replace(table, shapes=None), *below,
            *norm("encoder.inputs.norm", "pre_layrnorm", bias=True), *each_layer(each, tower.depth),
            *norm("encoder.norm", "post_layernorm", bias=True)]


CLIP_VISION = Family(
    name="clip_vision_model", keys=KEYS, rules=rules, prefix="vision_model.", outside=(),
    constants=r"embeddings\.position_ids|visual_projection\.weight", from_hf_config=vit.from_hf_config,
    to_hf_config=vit.to_hf_config, heads={"image-backbone": HeadFormat("CLIPVisionModel")})
CLIP = replace(
    CLIP_VISION, name="clip", from_hf_config=nested, writes=False, heads={"image-backbone": HeadFormat("CLIPModel")},
    constants=r"embeddings\.position_ids|text_model\..*|(visual|text)_projection\.weight|logit_scale")
