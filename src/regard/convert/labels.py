"""The labels of a model, as config.json names them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.settings.errors import UserError
from regard.settings.setting import shown

__all__ = ["read", "to_hf_config"]

ONE, SEVERAL = "single_label_classification", "multi_label_classification"
OUTPUT = r"classifier(\.out_proj|\.1)?\.bias"  # it has a number for each label


def read(config: Mapping[str, Any], tensors: Mapping[str, Tensor], kind: str, *,
         origin: str) -> tuple[tuple[str, ...], bool]:
    """Their names, and whether a text may have several. Where a config says none they are LABEL_0, LABEL_1 …"""
    if kind not in ("sequence-labels", "token-labels", "image-labels"):
        return (), False
    if (problem := config.get("problem_type")) not in (None, ONE, SEVERAL):
        raise UserError(f"{origin}: problem_type={shown(problem)}: regard has {ONE} and {SEVERAL}")
    count = next((tensor.numel() for name, tensor in tensors.items() if re.fullmatch(OUTPUT, name)), 0)
    if count < 2:
        raise UserError(f"{origin}: the model has {count} labels; at least two are needed")
    said = config.get("id2label") or {str(id): f"LABEL_{id}" for id in range(count)}
    names = [said.get(str(id)) for id in range(count)] if isinstance(said, dict) and len(said) == count else []
    if not all(isinstance(name, str) for name in names) or len({*map(str, names)}) != count:
        raise UserError(f"{origin}: id2label: must name each of the {count} labels, all different")
    if problem == SEVERAL and (wrong := next((name for name in map(str, names) if "," in name), None)):
        raise UserError(f"{origin}: id2label: {shown(wrong)} has a comma, which stands between the labels of a text; "
                        "call it otherwise there")
    return tuple(map(str, names)), problem == SEVERAL


def to_hf_config(names: Sequence[str], *, several: bool) -> dict[str, Any]:
    if not names:
        return {}
    return {"id2label": {str(id): name for id, name in enumerate(names)},
            "label2id": {name: id for id, name in enumerate(names)}, "problem_type": SEVERAL if several else ONE}
