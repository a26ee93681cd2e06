"""Adapters in the files of PEFT, the library that others keep them in: a config, and A and B of each product.

PEFT knows the family's own products, not our slices of one: `query` and `value`, and no `qkv`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.checkpoint import write_json, write_tensors
from regard.convert.families import family_of
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule
from regard.data.tokenizer import Tokenizer
from regard.nn.lora import adapters
from regard.settings.opening import own_folder
from regard.settings.schema import Run
from regard.tasks.traits import traits_of

__all__ = ["FOLDER", "write_adapter"]

FOLDER = "adapter"  # of a run; in the model's own folder, transformers would add them to a model that has them merged
TASK_TYPES = {"sequence-labels": "SEQ_CLS", "token-labels": "TOKEN_CLS", "causal-lm": "CAUSAL_LM"}
PLACES = {"q": 0, "k": 1, "v": 2}  # among the products that our `qkv` is made of
PREFIX = "base_model.model."  # of all names: PEFT wraps the model twice


def write_adapter(folder: Path, run: Run, sizes: Mapping[str, int], weights: Mapping[str, Tensor]) -> bool:
    """Write the weights that a run has added to its source model, if PEFT supports them: adapters and the head."""
    rules = _rules(folder, run, sizes)
    found = {(rules.get(f"{layer}.weight"), part): pair for (layer, part), pair in adapters(weights).items()}
    if not rules or any(rule is None or rule.turned for rule, _ in found):
        return False
    tensors: dict[str, Tensor] = {}
    for (rule, part), (a, b) in found.items():
        assert rule is not None
        name = rule.theirs[PLACES[part] if len(rule.theirs) > 1 else 0].removesuffix(".weight")
        tensors |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
    head = {name: part for ours, rule in rules.items() if ours.startswith("head.")
            for name, part in rule.parted(weights[ours]).items()}
    place = own_folder(folder / FOLDER)
    write_tensors(place / "adapter_model.safetensors", {f"{PREFIX}{n}": t for n, t in (tensors | head).items()})
    write_json(place / "adapter_config.json", _config(run, list(tensors), list(head)))
    return True


def _rules(folder: Path, run: Run, sizes: Mapping[str, int]) -> Mapping[str, Rule]:
    """From our names to the family's; empty if PEFT does not support such a model, or no family has its shape."""
    place = folder / "tokenizer.json"
    if traits_of(run.task).head not in TASK_TYPES or not place.is_file():
        return {}
    spec = ModelSpec.of(run, sizes, pad=Tokenizer.load(place).pad)
    family = family_of(spec)
    return {} if family is None else family.table(spec).rules


def _config(run: Run, adapted: list[str], whole: list[str]) -> dict[str, Any]:
    how, head = run.train, traits_of(run.task).head
    assert head is not None
    return {
        "peft_type": "LORA", "task_type": TASK_TYPES[head], "base_model_name_or_path": how.init_from,
        "r": how.lora.rank, "lora_alpha": how.lora.alpha, "lora_dropout": 0.0, "bias": "none",
        "fan_in_fan_out": False, "inference_mode": True,
        # By their full names: just the last part, such as `dense`, may match others, too.
        "target_modules": sorted({name.partition(".lora_")[0] for name in adapted}),
        "modules_to_save": sorted({_module(name, beside=adapted[0]) for name in whole}) or None}


def _module(name: str, *, beside: str) -> str:
    """The module that PEFT saves whole: a part of the backbone, or the head, which PEFT calls `classifier`.

    >>> [_module(name, beside="bert.a.weight") for name in ("bert.pooler.dense.bias", "classifier.dense.bias")]
    ['bert.pooler.dense', 'classifier']
    """
    first, body = name.partition(".")[0], beside.partition(".")[0]
    return name.rpartition(".")[0] if first == body else first
