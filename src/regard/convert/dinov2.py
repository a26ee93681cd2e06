"""DINOv2 (Oquab et al. 2024) as transformers keeps it: a vision transformer with layer scale, and no labels.

Its classifier reads the class token and the mean of the patches side by side, which regard has no head for.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.convert import vit
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Image, Tower

__all__ = ["DINOV2"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KEYS = Keys(
    base=replace(vit.KEYS.base, layer_scale=1.0, image=Image(size=224, mean=MEAN, std=STD, resample="bicubic")),
    renamed={**vit.KEYS.renamed, "layerscale_value": "layer_scale"},
    value_names=vit.KEYS.value_names,
    must_agree={},
    fixed={**vit.KEYS.fixed, "use_swiglu_ffn": False},
    defaults={**vit.KEYS.defaults, "layer_norm_eps": 1e-6, "patch_size": 14, "layerscale_value": 1.0},
    ignored=vit.KEYS.ignored | {"apply_layernorm", "drop_path_rate", "out_features", "out_indices",
                              "reshape_hidden_states", "stage_names", "use_mask_token"})


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The hidden width is a number, not a ratio."""
    width, ratio = config.get("hidden_size", 768), config.get("mlp_ratio", 4)
    hidden = width * ratio if isinstance(width, int) and isinstance(ratio, int) else ratio
    return vit.from_hf_config({**{key: value for key, value in config.items() if key != "mlp_ratio"},
                      "intermediate_size": hidden})


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    ratio = config["intermediate_size"] // config["hidden_size"]
    return vit.to_hf_config({**{key: value for key, value in config.items() if key != "intermediate_size"},
                        "mlp_ratio": ratio})


def lacks(tower: Tower) -> list[str]:
    return ["ffn_width"] if (tower.ffn_width or 4 * tower.width) % tower.width else []


def rules(spec: ModelSpec) -> list[Rule]:
    tower, layer, block = spec.canonical, "encoder.layer.{}.", "encoder.blocks.{}."
    each = [
        *vit.attention(tower, f"{layer}attention."),
        *norm(f"{block}self_norm", f"{layer}norm1", bias=True),
        Rule(f"{block}self_scale.factors", (f"{layer}layer_scale1.lambda1",)),
        *linear(f"{block}feed_forward.up", f"{layer}mlp.fc1", bias=True),
        *linear(f"{block}feed_forward.down", f"{layer}mlp.fc2", bias=True),
        *norm(f"{block}feed_forward_norm", f"{layer}norm2", bias=True),
        Rule(f"{block}feed_forward_scale.factors", (f"{layer}layer_scale2.lambda1",)),
    ]
    below = vit.inputs(tower, "embeddings.patch_embeddings.projection", "embeddings.cls_token",
                       "embeddings.position_embeddings")
    return [*below, *each_layer(each, tower.depth), *norm("encoder.norm", "layernorm", bias=True)]


DINOV2 = Family(
    name="dinov2", keys=KEYS, rules=rules, prefix="dinov2.", outside=(), constants=r"embeddings\.mask_token",
    from_hf_config=from_hf_config, to_hf_config=to_hf_config, lacks=lacks,
    heads={"image-backbone": HeadFormat("Dinov2Model")})
