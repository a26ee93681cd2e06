"""The families that regard knows."""

from difflib import get_close_matches

from regard.convert.family import Family
from regard.convert.gpt2 import GPT2
from regard.convert.llama import LLAMA
from regard.convert.qwen3 import QWEN3
from regard.settings.errors import UserError
from regard.settings.knobs import shown, written
from regard.settings.schema import Tower

__all__ = ["FAMILIES", "family_named", "family_of", "why_none"]

FAMILIES = {family.name: family for family in (GPT2, LLAMA, QWEN3)}


def family_named(model_type: object, *, origin: str) -> Family:
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    near = get_close_matches(model_type, FAMILIES, n=1) if isinstance(model_type, str) else []
    hint = f"did you mean {near[0]}?" if near else f"regard knows {', '.join(FAMILIES)}"
    raise UserError(f"{origin}: model_type={shown(model_type)}: no family that regard knows; {hint}")


def family_of(tower: Tower) -> Family | None:
    """The family that a decoder of these settings is one of."""
    return next((family for family in FAMILIES.values() if not family.keys.unsaid(tower)), None)


def why_none(tower: Tower) -> str:
    """What the nearest family has no word for."""
    family = min(FAMILIES.values(), key=lambda family: len(family.keys.unsaid(tower)))
    settings = [f"model.{name}={written(getattr(tower, name))}" for name in family.keys.unsaid(tower)]
    return f"{family.name}, the nearest family, does not have {', '.join(settings)}"
