"""Qwen3 (Yang et al. 2025) as transformers keeps it: Llama's block, with norms on every head's queries and keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.convert import llama
from regard.convert.family import Family, HeadFormat
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, norm

__all__ = ["QWEN3"]

KEYS = replace(
    llama.KEYS, base=replace(llama.KEYS.base, bias=False, qk_norm=True),
    renamed={key: ours for key, ours in llama.KEYS.renamed.items() if key != "attention_bias"}, must_agree={},
    fixed={"attention_bias": False, "rope_type": "default", "use_sliding_window": False},
    defaults={"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "head_dim": 128, "intermediate_size": 22016, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0, "attention_dropout": 0.0, "hidden_act": "silu", "tie_word_embeddings": False},
    ignored=frozenset({"sliding_window", "max_window_layers"}))  # of the window that is not used


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Like Llama's, without the list of layer types if all are the same."""
    flat = llama.from_hf_config(config)
    layers = flat.get("layer_types")
    if isinstance(layers, list) and all(layer == "full_attention" for layer in layers):
        del flat["layer_types"]
    return flat


def rules(spec: ModelSpec) -> list[Rule]:
    norms = [*norm("blocks.{}.self.query_norm", "model.layers.{}.self_attn.q_norm", bias=False),
             *norm("blocks.{}.self.key_norm", "model.layers.{}.self_attn.k_norm", bias=False)]
    return [*llama.rules(spec), *each_layer(norms, spec.canonical.depth)]


QWEN3 = Family(
    name="qwen3", keys=KEYS, rules=rules, prefix="model.",
    heads={"causal-lm": HeadFormat("Qwen3ForCausalLM", copies=llama.COPIES)},
    constants=llama.LLAMA.constants, from_hf_config=from_hf_config, to_hf_config=llama.to_hf_config)
