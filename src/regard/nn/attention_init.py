"""Other beginnings of self-attention than random ones: like trained attention, or like a convolution."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.attention import Attention
from regard.nn.grid import GridRelativeBias

__all__ = ["convolve", "look_at_neighbours", "mimic"]

MIMIC_SCORES = 0.7, 0.7  # noise, and identity (Trockman and Kolter 2023)
MIMIC_VALUES = 0.4, -0.4
# The offsets of a 3 × 3 convolution, in the order of its kernel.
NEIGHBOURS = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1))
NEAREST = tuple(sorted(NEIGHBOURS, key=lambda offset: (abs(offset[0]) + abs(offset[1]), offset)))
STRENGTH = 1.0  # of the places at first (d'Ascoli et al. 2021)
QUIET = 0.1  # queries and keys, which begin with this share of their weights
EXACT = 200.0  # a softmax gives e^(−EXACT / 2) = 0 to all neighbours but one


@torch.no_grad()
def mimic(attention: Attention, *, generator: torch.Generator) -> None:
    """W_Qᵀ W_K = 0.7 Z + 0.7 · 1 for each head, W_O W_V = 0.4 Z − 0.4 · 1 (Trockman and Kolter 2023).

    Trained vision transformers look like this; language models have other signs. Z is Gaussian. A narrow head gets the
    best approximation of its rank.
    """
    width = attention.qkv.in_features
    q, k, v = attention.qkv.weight.split([attention.query_width, attention.key_width, attention.value_width])
    for query, key in zip(q.split(attention.widths), k.split(attention.widths), strict=True):
        _factor(*MIMIC_SCORES, into=(query.T, key), width=width, generator=generator)
    _factor(*MIMIC_VALUES, into=(attention.out.weight, v), width=width, generator=generator)


def _factor(noise: float, identity: float, *, into: tuple[Tensor, Tensor], width: int,
            generator: torch.Generator) -> None:
    """Two matrices whose product is the best one of their rank."""
    z = torch.empty(width, width).normal_(0.0, width**-0.5, generator=generator)
    u, sizes, v = torch.linalg.svd(noise * z + identity * torch.eye(width))
    rank = len(into[1])
    root = sizes[:rank].sqrt()
    into[0].copy_(u[:, :rank] * root)
    into[1].copy_(root[:, None] * v[:rank])


@torch.no_grad()
def look_at_neighbours(attention: Attention, *, layer: int, strength: float = STRENGTH) -> None:
    """Each head begins with a look at one neighbour of a patch, as a convolution does (Cordonnier et al. 2020).

    The bias of its scores is −strength · ‖offset − Δ‖². The heads of all layers take turns with
    the nine Δ. Nothing is fixed: the biases learn, and so do queries and keys, which begin small.
    """
    shifts = [NEAREST[(layer * attention.heads + head) % len(NEAREST)] for head in range(attention.heads)]
    _bias_of(attention).table.copy_(_biases(_bias_of(attention), shifts, strength))
    attention.qkv.weight[: attention.query_width + attention.key_width] *= QUIET


@torch.no_grad()
def convolve(attention: Attention, kernel: Float[Tensor, "outputs inputs 3 3"]) -> None:
    """Set nine heads so that attention is a 3 × 3 convolution (Cordonnier et al. 2020, theorem 1).

    Head h looks at neighbour h and nothing else; its values are the inputs, and the output mixes them by the kernel.
    Where there is no such neighbour it looks at the class token, which stands for the padding; without one at the
    nearest patch, which is the padding "replicate".
    """
    inputs = attention.qkv.in_features
    if attention.value_widths != (inputs,) * len(NEIGHBOURS):
        raise ValueError(f"value_widths: must be nine times {inputs}, the width of the inputs, to be a convolution")
    _bias_of(attention).table.copy_(_biases(_bias_of(attention), NEIGHBOURS, EXACT))
    for parameter in attention.qkv.parameters():
        parameter.zero_()
    attention.qkv.weight[-attention.value_width :] = torch.eye(inputs).repeat(len(NEIGHBOURS), 1)
    attention.out.weight.copy_(kernel.permute(0, 2, 3, 1).flatten(1))
    if attention.out.bias is not None:
        attention.out.bias.zero_()


def _bias_of(attention: Attention) -> GridRelativeBias:
    assert isinstance(attention.positions, GridRelativeBias), "the heads of other positions cannot point at a neighbour"
    return attention.positions


def _biases(
    bias: GridRelativeBias, shifts: Sequence[tuple[int, int]], strength: float
) -> Float[Tensor, "offsets heads"]:
    """The table with which each head looks at one neighbour."""
    height, width = bias.grid.height, bias.grid.width
    offsets = torch.cartesian_prod(torch.arange(1 - height, height), torch.arange(1 - width, width))
    table = -strength * (offsets[:, None] - torch.tensor(shifts)).square().sum(-1)
    if not bias.grid.before:
        return table
    # The class token sees all patches. They prefer it to a wrong neighbour, but not to the right one.
    free, second = table.new_zeros(1, len(shifts)), table.new_full((1, len(shifts)), -strength / 2)
    return torch.cat([table, free, second, free])
