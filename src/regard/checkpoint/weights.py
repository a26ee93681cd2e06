"""The tensors of a model by name: read them, and load them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.files import write_json, write_tensors
from regard.settings.errors import UserError

__all__ = ["load_weights", "named_tensors", "refuse_misfits", "refuse_not_finite", "write_model"]


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once, without a copy, under the first of its names: safetensors has no shared tensors."""
    again = ({name for name, _ in model.named_parameters(remove_duplicate=False)}
             - {name for name, _ in model.named_parameters()})
    again |= {name for name, _ in model.named_buffers(remove_duplicate=False)} - {n for n, _ in model.named_buffers()}
    return {name: tensor.detach() for name, tensor in model.state_dict().items() if name not in again}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Load every tensor into the model."""
    refuse_misfits(named_tensors(model), tensors, origin=origin)
    model.load_state_dict(dict(tensors), strict=False)


def refuse_misfits(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Refuse tensors that are missing, left over or of another shape, and name them."""
    wrong = [f"{name}: {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
             for name in wanted.keys() & tensors.keys() if tensors[name].shape != wanted[name].shape]
    wrong += [f"{name}: {str(tensors[name].dtype).removeprefix('torch.')}, which is not a type of weights"
              for name in wanted.keys() & tensors.keys()
              if tensors[name].is_floating_point() != wanted[name].is_floating_point()]
    wrong += [f"{name}: missing" for name in wanted.keys() - tensors.keys()]
    wrong += [f"{name}: unknown" for name in tensors.keys() - wanted.keys()]
    if wrong:
        more = f" (and {len(wrong) - 8} more)" if len(wrong) > 8 else ""
        raise UserError(f"{origin} does not fit the model: {'; '.join(sorted(wrong)[:8])}{more}")


def refuse_not_finite(tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Refuse values that are not finite: they make every answer wrong, without an error."""
    for name, tensor in tensors.items():
        # Summing is faster than checking each number; if the sum is not finite, it may only have overflowed.
        if tensor.is_floating_point() and not (tensor.sum(dtype=torch.float32).isfinite() or tensor.isfinite().all()):
            raise UserError(f"{origin}: damaged: {name} has values that are not finite; train or convert it again")


def write_model(run: Path, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write the finished model, in the layout of other tools."""
    write_tensors(run / "model.safetensors", weights)
    write_json(run / "config.json", config)
