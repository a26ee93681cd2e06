"""ElmoDecoder, ElmoEncoder: two language models that read a text from its two ends, and their layers as features."""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.encoder import Encoder
from regard.models.inputs import TokenInputs
from regard.models.parts import blocks
from regard.models.recurrent_decoder import RecurrentDecoder
from regard.models.recurrent_layer import Recurrent, run, turned
from regard.nn.dropout import Dropout
from regard.nn.embed import TokenEmbedding
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["ElmoDecoder", "ElmoEncoder"]


def reading(tower: Tower, direction: Literal["forward", "bilm"]) -> Tower:
    """The same tower, reading in this direction."""
    assert tower.recurrent is not None
    return replace(tower, recurrent=replace(tower.recurrent, direction=direction))


class ElmoDecoder(RecurrentDecoder):
    """Peters et al. 2018, 3.1: the forward direction is a complete language model, and is used as one.

    The way back learns beside it. They share the vectors of tokens and the output, and never meet. Their cells were
    wider than their states, and the second layer had the first one's states added to its own.
    """

    reads_back = True

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        super().__init__(reading(tower, "forward"), vocabulary=vocabulary)

    def stack(self, tower: Tower) -> nn.ModuleList:
        return blocks(reading(tower, "bilm"), tower.decoder_depth or tower.depth, causal=False)

    def hindsight(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length out"]:
        x = turned(self.embed(tokens), None)
        for block in self.blocks:
            assert isinstance(block, Recurrent)
            assert block.back is not None
            x = block.dropout(run(block.back, x)[0])
        return self.narrow(turned(x, None))  # type: ignore[no-any-return]


class ElmoEncoder(Encoder):
    """Peters et al. 2018, 3.2 and 3.3: the task reads a learned mixture of all layers of both language models.

    The lowest layer is the token's vector, once for each way. A task has vectors of its own beside the mix.
    """

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        plain = replace(tower, positions="none")
        super().__init__(plain, TokenInputs(plain, vocabulary=vocabulary))
        self.over = TaskLayers(tower, vocabulary)

    def embed(
        self, inputs: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length input"]:
        x = super().embed(inputs, positions, segments)
        return torch.cat([x, x, self.over.dropout(self.over.own(inputs))], dim=-1)

    def forward(
        self, x: Float[Tensor, "batch length input"], *, mask: Mask = Mask(),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        layers = [x[..., : 2 * self.width]]
        for block in self.blocks:
            layers.append(block(layers[-1], mask=mask))
        return self.over(x[..., 2 * self.width :], layers, mask=mask)  # type: ignore[no-any-return]


class TaskLayers(nn.Module):
    """The task's own layers: token vectors, the mix of the layers, and one more layer that reads [x; mix]."""

    def __init__(self, tower: Tower, vocabulary: int) -> None:
        super().__init__()
        self.own = TokenEmbedding(vocabulary, tower.width, scaled=tower.embedding.scaled)
        self.dropout = Dropout(tower.dropout)
        self.mix = Mix(1 + tower.depth)
        assert tower.recurrent is not None
        self.reader = Recurrent(tower.recurrent.cell, tower.width, inputs=3 * tower.width, direction="bidirectional",
                                dropout=tower.dropout)

    def forward(
        self, x: Float[Tensor, "batch length own"], layers: list[Float[Tensor, "batch length both"]], *, mask: Mask
    ) -> Float[Tensor, "batch length width"]:
        return self.reader(torch.cat([x, self.mix(layers)], dim=-1), mask=mask)  # type: ignore[no-any-return]


class Mix(nn.Module):
    """γ Σ_k s_k h_k with s = softmax(scores) (eq. 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.empty(layers))
        self.scale = nn.Parameter(torch.empty(1))

    def forward(self, layers: list[Float[Tensor, "batch length both"]]) -> Float[Tensor, "batch length both"]:
        shares = self.scores.softmax(0)
        mixed = torch.stack([share * layer for share, layer in zip(shares, layers, strict=True)]).sum(0)
        return self.scale * mixed
