"""Longformer (Beltagy et al. 2020) as transformers keeps it: RoBERTa's, with a window, and global tokens beside it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.convert import bert, roberta
from regard.convert.family import Family
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear
from regard.settings.schema import Tower

__all__ = ["LONGFORMER"]

WINDOW = 512  # where a config does not say it
KEYS = replace(
    bert.KEYS, base=replace(bert.KEYS.base, global_projections=True),
    renamed={**bert.KEYS.renamed, "attention_window": "window"},
    fixed={"position_embedding_type": "absolute", "tie_word_embeddings": True},
    defaults={**bert.KEYS.defaults, "attention_window": WINDOW // 2},
    ignored=bert.IGNORED_KEYS | {"attention_mode", "ignore_attention_mask", "onnx_export", "sep_token_id"})


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Its window is that of both sides together, layer by layer; here all have one."""
    moved, window = roberta.from_hf_config(config), config.get("attention_window", WINDOW)
    if isinstance(window, list) and window and all(each == window[0] for each in window):
        window = window[0]
    if isinstance(window, int) and not isinstance(window, bool):
        window = window / 2 if window % 2 else window // 2  # half a token is refused
    return {**moved, "attention_window": window}


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    windows = [2 * config["attention_window"]] * config["num_hidden_layers"]
    return {**roberta.to_hf_config(config), "attention_window": windows}


def rules(spec: ModelSpec) -> list[Rule]:
    tower = spec.canonical
    attention = bert.own(spec, "longformer.") + "encoder.layer.{}.attention.self."
    globals = linear("encoder.blocks.{}.self.global_qkv", f"{attention}query_global", f"{attention}key_global",
                     f"{attention}value_global", rows=(tower.width,) * 3, bias=True)
    return [*roberta.rules(spec, "longformer."), *each_layer(globals, tower.depth)]


def lacks(tower: Tower) -> list[str]:
    return [*bert.lacks(tower), *(["window"] if tower.window is None else [])]


LONGFORMER = Family(
    name="longformer", preset="longformer-base", keys=KEYS, rules=rules, prefix="longformer.",
    outside=("lm_head.", "classifier."), constants=bert.CONSTANTS, from_hf_config=from_hf_config,
    to_hf_config=to_hf_config, lacks=lacks, pad=roberta.PAD, heads=roberta.heads("Longformer", "longformer"))
