"""The families that regard knows."""

from difflib import get_close_matches

from regard.convert.bert import BERT
from regard.convert.clip import CLIP, CLIP_VISION
from regard.convert.dinov2 import DINOV2
from regard.convert.distilbert import DISTILBERT
from regard.convert.electra import ELECTRA
from regard.convert.family import Family
from regard.convert.gpt2 import GPT2
from regard.convert.llama import LLAMA
from regard.convert.longformer import LONGFORMER
from regard.convert.model_spec import ModelSpec
from regard.convert.qwen3 import QWEN3
from regard.convert.resnet import RESNET
from regard.convert.roberta import ROBERTA
from regard.convert.vit import VIT
from regard.settings.errors import UserError
from regard.settings.setting import of, shown, written

__all__ = ["FAMILIES", "family_named", "family_of", "why_none"]

FAMILIES = {family.name: family for family in (
    GPT2, LLAMA, QWEN3, BERT, ROBERTA, DISTILBERT, ELECTRA, LONGFORMER, VIT, DINOV2, CLIP_VISION, CLIP, RESNET)}


def family_named(model_type: object, *, origin: str) -> Family:
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    if model_type == "deit":
        raise UserError(f"{origin}: model_type=deit: has a distillation token, which regard does not read; those "
                        "without it are published as vit")
    near = get_close_matches(model_type, FAMILIES, n=1) if isinstance(model_type, str) else []
    hint = f"did you mean {near[0]}?" if near else f"regard knows {', '.join(FAMILIES)}"
    raise UserError(f"{origin}: model_type={shown(model_type)}: no family that regard knows; {hint}")


def family_of(spec: ModelSpec) -> Family | None:
    """The family that a model of this shape is one of; of several, the one whose preset it started from."""
    fits = [family for family in _with(spec.kind) if not family.unsaid(spec)]
    return max(fits, key=lambda family: (spec.tower.preset or "").startswith(family.name), default=None)


def why_none(spec: ModelSpec) -> str:
    """The reason why the model fits no family: the settings that the nearest family lacks."""
    if not (there := _with(spec.kind)):
        return f"regard knows no family of models with such a head ({spec.kind})"
    family = min(there, key=lambda family: len(family.unsaid(spec)))
    settings = [f"model.{name}={written(of(spec.tower, name))}" for name in family.unsaid(spec)]
    only_pool = family.unsaid(spec) == ["head.pool"]
    hint = "; trained with --set model.head.pool=first it is one of them" if only_pool else ""
    return f"{family.name}, the nearest family, does not have {', '.join(settings)}{hint}"


def _with(kind: str) -> list[Family]:
    return [family for family in FAMILIES.values() if kind in family.heads and family.writes]
