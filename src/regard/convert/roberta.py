"""RoBERTa (Liu et al. 2019) as transformers keeps it: BERT's body, its positions counted from the padding's id on."""

from collections.abc import Mapping
from typing import Any

from regard.convert import bert
from regard.convert.family import Family, HeadFormat
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, linear, norm

__all__ = ["PAD", "ROBERTA", "from_hf_config", "heads", "rules", "to_hf_config"]

PAD = 1  # its id, where a config does not say it


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Positions from 0 on: the first of its table stands at the padding's id + 1."""
    return _moved(config, -1)


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return _moved(config, 1)


def _moved(config: Mapping[str, Any], sign: int) -> dict[str, Any]:
    places, pad = config.get("max_position_embeddings", 512), config.get("pad_token_id", PAD)
    if not (isinstance(places, int) and isinstance(pad, int)):
        return dict(config)
    return {**config, "max_position_embeddings": places + sign * (pad + 1)}


def rules(spec: ModelSpec, prefix: str = "roberta.") -> list[Rule]:
    start = bert.own(spec, prefix)
    words = [
        *linear("words.hidden", "lm_head.dense", bias=True),
        *norm("words.norm", "lm_head.layer_norm", bias=True),
        Rule("words.output.bias", ("lm_head.bias",)),
    ]
    heads = {
        "backbone": [] if spec.tower.head.hidden == "none" else linear(
            "head.hidden", f"{start}pooler.dense", bias=True),
        "masked-lm": words,
        "sequence-labels": [*linear("head.hidden", "classifier.dense", bias=True),
                     *linear("head.output", "classifier.out_proj", bias=True)],
        "token-labels": linear("head.output", "classifier", bias=True),
    }
    return [*bert.body(spec.canonical, start, unread=spec.pad + 1), *heads[spec.kind]]


def heads(name: str, prefix: str) -> dict[str, HeadFormat]:
    pooler = rf"{prefix}\.pooler\.dense\.(weight|bias)"
    output = {"lm_head.decoder.weight": f"{prefix}.embeddings.word_embeddings.weight",
              "lm_head.decoder.bias": "lm_head.bias"}
    return {
        "backbone": HeadFormat(f"{name}Model", has={"head.hidden": ("tanh", "none")}),
        "masked-lm": HeadFormat(f"{name}ForMaskedLM", copies=output, unread=pooler),
        "sequence-labels": HeadFormat(f"{name}ForSequenceClassification", unread=pooler,
                         has={"head.hidden": ("tanh",), "head.pool": ("first",)}),
        "token-labels": HeadFormat(f"{name}ForTokenClassification", unread=pooler),
    }


ROBERTA = Family(
    name="roberta", preset="roberta-base", keys=bert.KEYS, rules=rules, prefix="roberta.",
    outside=("lm_head.", "classifier."), constants=bert.CONSTANTS, from_hf_config=from_hf_config,
    to_hf_config=to_hf_config, lacks=bert.lacks, pad=PAD, heads=heads("Roberta", "roberta"))
