"""Llama (Touvron et al. 2023) as transformers keeps it: `LlamaForCausalLM`."""

from collections.abc import Mapping
from typing import Any

from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Tower

__all__ = ["COPIES", "KEYS", "LLAMA", "from_hf_config", "rules", "to_hf_config"]

KEYS = Keys(
    base=Tower(norm="rms", norm_place="pre", positions="rotary", embedding=Embedding(scaled=False), dropout=0.0),
    renamed={"hidden_size": "width", "num_hidden_layers": "depth", "num_attention_heads": "heads",
          "num_key_value_heads": "kv_heads", "head_dim": "head_width", "intermediate_size": "ffn_width",
          "max_position_embeddings": "max_positions", "rms_norm_eps": "norm_epsilon", "rope_theta": "position_base",
          "attention_bias": "bias", "attention_dropout": "attention_dropout"},
    value_names={"hidden_act": ("activation", {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "relu": "reglu"}),
           "tie_word_embeddings": ("tied", {True: "output", False: "none"})},
    must_agree={"mlp_bias": "attention_bias"},
    fixed={"pretraining_tp": 1, "rope_type": "default"},
    defaults={"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None,
            "head_dim": None, "intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
            "hidden_act": "silu", "tie_word_embeddings": False})


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the rotary settings at the top level; transformers nests them, by version under two names."""
    flat = dict(config)
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(flat.get(name), dict):
            flat |= {"rope_type" if key == "type" else key: value for key, value in flat.pop(name).items()}
    return flat


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """As both the older and the newer transformers read it."""
    rotary = {key: config[key] for key in ("rope_type", "rope_theta")}
    return {key: value for key, value in config.items() if key != "rope_type"} | {"rope_parameters": rotary}


def rules(spec: ModelSpec) -> list[Rule]:
    tower = spec.canonical
    head, bias = tower.head_width or tower.width // tower.heads, tower.bias
    queries, keys = tower.heads * head, (tower.kv_heads or tower.heads) * head
    hidden = tower.ffn_width or 4 * tower.width
    attention, feed_forward = "model.layers.{}.self_attn", "model.layers.{}.mlp"
    block = [
        *norm("blocks.{}.self_norm", "model.layers.{}.input_layernorm", bias=False),
        *linear("blocks.{}.self.qkv", f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj",
                rows=(queries, keys, keys), bias=bias),
        *linear("blocks.{}.self.out", f"{attention}.o_proj", bias=bias),
        *norm("blocks.{}.feed_forward_norm", "model.layers.{}.post_attention_layernorm", bias=False),
        *linear("blocks.{}.feed_forward.up", f"{feed_forward}.gate_proj", f"{feed_forward}.up_proj",
                rows=(hidden, hidden), bias=bias),
        *linear("blocks.{}.feed_forward.down", f"{feed_forward}.down_proj", bias=bias),
    ]
    ends = [Rule("tokens.table.weight", ("model.embed_tokens.weight",)), *norm("norm", "model.norm", bias=False)]
    output = [Rule("output.weight", ("lm_head.weight",))] if tower.tied == "none" else []
    return [*ends, *each_layer(block, tower.depth), *output]


COPIES = {"lm_head.weight": "model.embed_tokens.weight"}
LLAMA = Family(
    name="llama", keys=KEYS, rules=rules, prefix="model.",
    heads={"causal-lm": HeadFormat("LlamaForCausalLM", copies=COPIES)},
    constants=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",  # once kept among the weights
    from_hf_config=from_hf_config, to_hf_config=to_hf_config)
