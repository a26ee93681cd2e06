"""Low-rank adapters: a small trainable addition to a frozen matrix (Hu et al. 2022).

x Wᵀ + b becomes x (W + α/r · B A)ᵀ + b, where A has r rows and B has r columns. W stays frozen. B is initialized with
zeros, so the model starts unchanged.
"""

from collections.abc import Collection, Iterator, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["INSIDE", "PARTS", "AdaptedLinear", "adapt", "adapters", "merged", "rows_of"]

PARTS = {"q": ("qkv", "q"), "k": ("qkv", "kv"), "v": ("qkv", "kv"), "out": ("out",), "up": ("up",), "down": ("down",)}
"""The matrices that can have an adapter, with their layers of a block."""

INSIDE = ".adapters."


class Adapter(nn.Module):
    """A and B of one part of a layer's outputs."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(rank, inputs))
        self.b = nn.Parameter(torch.empty(outputs, rank))


class AdaptedLinear(nn.Linear):
    """A linear layer, some parts of its outputs with an adapter. Its own weights keep their names.

    The products with A and B go beside the one with W: W + α/r · B A in one would cost W's whole gradient.
    """

    def __init__(self, linear: nn.Linear, sizes: Mapping[str, int], *, rank: int, scale: float) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = scale
        with torch.device(linear.weight.device):
            self.adapters = nn.ModuleDict({part: Adapter(linear.in_features, outputs, rank)
                                           for part, outputs in sizes.items()})

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        y, low = super().forward(x), F.linear(x, torch.cat([adapter.a for adapter in self._all()]))
        # One product and one sum, however many parts there are; on a CPU that takes a fifth less than one for each.
        added = torch.addmm(y.flatten(0, -2), low.flatten(0, -2), self._wide().T)
        return added.view(y.shape)

    def _all(self) -> Iterator[Adapter]:
        return iter(self.adapters.values())  # type: ignore[arg-type]

    def _wide(self) -> Float[Tensor, "outputs ranks"]:
        """α/r · B of all parts side by side, each in the rows of its outputs."""
        columns = []
        for part, adapter in zip(self.adapters, self._all(), strict=True):
            rows = rows_of(part, adapter.b.shape[0], self.out_features)
            columns.append(F.pad(adapter.b, (0, 0, rows.start, self.out_features - rows.stop)))
        return torch.cat(columns, dim=1) * self.scale


def adapt(model: nn.Module, on: Collection[str], *, rank: int, scale: float) -> None:
    """Give the layers of every block an adapter for each part in `on`, in place."""
    blocks = [block for tower in model.modules() if isinstance(tower, nn.ModuleList) for block in tower]
    owners = [owner for block in blocks for owner in block.modules()]
    for owner in owners:
        for name, layer in list(owner.named_children()):
            parts = [part for part in PARTS if part in on and name in PARTS[part]]
            if isinstance(layer, nn.Linear) and parts:
                sizes = {part: _size(part, name, layer, owner) for part in parts}
                setattr(owner, name, AdaptedLinear(layer, sizes, rank=rank, scale=scale))


def merged(tensors: Mapping[str, Tensor], *, scale: float) -> dict[str, Tensor]:
    """The same model without adapters: each is added to the matrix that it belongs to."""
    plain = {name: tensor for name, tensor in tensors.items() if INSIDE not in name}
    for (layer, part), (a, b) in adapters(tensors).items():
        name = f"{layer}.weight"
        whole = plain[name].double()
        rows = rows_of(part, b.shape[0], whole.shape[0])
        whole[rows.start : rows.stop] += scale * (b.double() @ a.double())
        plain[name] = whole.to(plain[name].dtype)
    return plain


def adapters(tensors: Mapping[str, Tensor]) -> dict[tuple[str, str], tuple[Tensor, Tensor]]:
    """A and B of every adapter, by its layer and part."""
    names = [name.removesuffix(".a").split(INSIDE) for name in tensors if INSIDE in name and name.endswith(".a")]
    return {(layer, part): (tensors[f"{layer}{INSIDE}{part}.a"], tensors[f"{layer}{INSIDE}{part}.b"])
            for layer, part in names}


def rows_of(part: str, size: int, outputs: int) -> range:
    """Where a part lies among the outputs of its layer: values come last, keys before them, all else begins it.

    >>> rows_of("q", 6, 10), rows_of("k", 2, 10), rows_of("v", 2, 10), rows_of("k", 2, 4)
    (range(0, 6), range(6, 8), range(8, 10), range(0, 2))
    """
    start = outputs - {"k": 2, "v": 1}[part] * size if part in ("k", "v") else 0
    return range(start, start + size)


def _size(part: str, name: str, layer: nn.Linear, owner: nn.Module) -> int:
    """How many outputs of a layer are this part's."""
    if name not in ("qkv", "kv"):
        return layer.out_features
    if owner.key_width != owner.value_width:
        raise ValueError(f"{name}: keys and values of different widths have no adapter")
    return int(owner.query_width if part == "q" else owner.key_width)  # type: ignore[arg-type]
