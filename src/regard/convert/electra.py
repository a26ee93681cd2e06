"""ELECTRA (Clark et al. 2020) as transformers keeps it: BERT's body, its tokens perhaps narrower, and a generator.

The detector of replaced tokens and the generator that it learns from are two models there, in two folders: the
generator's is `generator/` beside the detector's files, and so begin the names of its tensors here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.convert import bert
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import canonical
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, linear, norm
from regard.models.electra import smaller
from regard.settings.schema import Tower

__all__ = ["ELECTRA", "GENERATOR"]

GENERATOR = "generator/"
TOKENS = 128  # numbers of a token, where a config does not say it
KEYS = replace(
    bert.KEYS, renamed={**bert.KEYS.renamed, "embedding_size": "embedding.width"},
    defaults={**bert.KEYS.defaults, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024,
            "embedding_size": None},
    ignored=bert.IGNORED_KEYS | {"generator_size", "summary_activation", "summary_last_dropout", "summary_type",
                          "summary_use_proj"})  # of a head for multiple choice


def from_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens as wide as the blocks are not widened."""
    size = config.get("embedding_size", TOKENS)
    return {**config, "embedding_size": None if size == config.get("hidden_size", 256) else size}


def to_hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**config, "embedding_size": config["embedding_size"] or config["hidden_size"]}


def lacks(tower: Tower) -> list[str]:
    return [*bert.lacks(tower), *(["embedding.width"] if tower.embedding.width == tower.width else [])]


def body(tower: Tower, theirs: str, ours: str = "encoder.") -> list[Rule]:
    widen = linear(f"{ours}inputs.widen", f"{theirs}embeddings_project", bias=True) if tower.embedding.width else []
    return [*bert.body(tower, theirs, ours=ours), *widen]


def words(theirs: str = "", ours: str = "") -> list[Rule]:
    return [*linear(f"{ours}words.hidden", f"{theirs}generator_predictions.dense", bias=True),
            *norm(f"{ours}words.norm", f"{theirs}generator_predictions.LayerNorm", bias=True),
            Rule(f"{ours}words.output.bias", (f"{theirs}generator_lm_head.bias",))]


def generator(spec: ModelSpec) -> list[Rule]:
    """It has the token vectors of the detector."""
    if spec.generator is None:
        return []
    own = body(canonical(smaller(spec.tower, spec.generator)), f"{GENERATOR}electra.", "generator.encoder.")
    shared = "generator.encoder.inputs.tokens.table.weight"
    return [*(rule for rule in own if rule.ours != shared), *words(GENERATOR, "generator.")]


def rules(spec: ModelSpec) -> list[Rule]:
    found = "discriminator_predictions"
    heads = {
        "backbone": [],
        "masked-lm": words(),
        "sequence-labels": [*linear("head.hidden", "classifier.dense", bias=True),
                     *linear("head.output", "classifier.out_proj", bias=True)],
        "token-labels": linear("head.output", "classifier", bias=True),
        "discriminator": [*linear("head.hidden", f"{found}.dense", bias=True),
                   *linear("head.output", f"{found}.dense_prediction", bias=True), *generator(spec)],
    }
    return [*body(spec.canonical, bert.own(spec, "electra.")), *heads[spec.kind]]


TABLE = "electra.embeddings.word_embeddings.weight"
ELECTRA = Family(
    name="electra", preset="electra-base", keys=KEYS, rules=rules, prefix="electra.",
    outside=("generator_", "discriminator_predictions.", "classifier.", GENERATOR), constants=bert.CONSTANTS,
    from_hf_config=from_hf_config, to_hf_config=to_hf_config, lacks=lacks,
    heads={
        "backbone": HeadFormat("ElectraModel", has={"head.hidden": ("none",)}),
        "masked-lm": HeadFormat("ElectraForMaskedLM", copies={"generator_lm_head.weight": TABLE}),
        "sequence-labels": HeadFormat(
            "ElectraForSequenceClassification", has={"head.hidden": ("gelu",), "head.pool": ("first",)}),
        "token-labels": HeadFormat("ElectraForTokenClassification"),
        "discriminator": HeadFormat("ElectraForPreTraining", has={"activation": ("gelu",)},
                       copies={f"{GENERATOR}generator_lm_head.weight": TABLE},
                       written={f"{GENERATOR}{TABLE}": TABLE}),
    })
