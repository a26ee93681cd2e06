"""Attention after each step: the new state itself looks (Luong et al. 2015)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.attention_decoder import AttentionDecoder
from regard.models.parts import blocks, input_width
from regard.models.recurrent_decoder import Source
from regard.models.recurrent_layer import Vectors
from regard.settings.schema import Tower

__all__ = ["LuongDecoder"]


class LuongDecoder(AttentionDecoder):
    """h̃_t = tanh(W_c [c_t; h_t]), c_t from the weights of h_t (3, eq. 5); fed into the next step if asked (3.3).

    The fed vector is the output's input, with its dropout; the first step gets a vector initialized like the states.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        self.input_feeding = tower.recurrent is not None and tower.recurrent.input_feeding
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.combine = nn.Linear(memory_width + tower.width, input_width(tower), bias=False)

    def stack(self, tower: Tower) -> nn.ModuleList:
        fed = input_width(tower) if self.input_feeding else 0
        return blocks(tower, tower.decoder_depth or tower.depth, causal=True, inputs=tower.width + fed)

    def kept(self, tower: Tower) -> tuple[int, ...]:
        fed = (input_width(tower),) if self.input_feeding else ()
        return (*super().kept(tower), *fed)

    def read(
        self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source | None = None
    ) -> tuple[Float[Tensor, "rows n out"], Vectors]:
        assert source is not None
        if not self.input_feeding:
            h, vectors = self.through(x, vectors)
            return self.attended(h, source), vectors
        *vectors, fed = vectors  # type: ignore[assignment]
        states = []
        for word in x.split(1, dim=1):
            h, vectors = self.through(torch.cat([word, fed[:, None]], dim=-1), tuple(vectors))
            states.append(self.attended(h, source))
            fed = states[-1][:, 0]
        return torch.cat(states, dim=1), (*vectors, fed)

    def attended(self, h: Float[Tensor, "rows n width"], source: Source) -> Float[Tensor, "rows n out"]:
        return self.dropout(torch.tanh(self.combine(torch.cat([self.cross(h, source)[0], h], dim=-1))))  # type: ignore[no-any-return]
