"""One vector for a whole source: what a decoder without attention starts from (Sutskever et al. 2014)."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.encoder import Encoder
from regard.models.recurrent_decoder import RecurrentDecoder, Source
from regard.models.recurrent_layer import Recurrent, Vectors
from regard.nn.attention import Memory
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["FixedDecoder", "FixedEncoder"]


class FixedEncoder(Encoder):
    """All that is kept of a source, however long it is: each layer's vectors when it has read it (3)."""

    def memory(self, x: Float[Tensor, "batch length width"], *, mask: Mask = Mask()) -> Memory:
        kept = list[Tensor]()
        for block in self.blocks:
            assert isinstance(block, Recurrent)
            x, vectors = block.through(x, mask=mask)
            kept += vectors
        return Memory(torch.stack(kept, dim=1))


class FixedDecoder(RecurrentDecoder):
    """A language model whose layers go on from where those of the encoder have ended."""

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.start = None
        assert self.direction != "bilm", "two models that never meet leave no vector to start from"
        assert len(self.blocks) == tower.depth, "each layer starts from one of the encoder's"

    def first(self, rows: int, source: Source | None) -> Vectors:
        assert source is not None, "a translator needs a source"
        kept = source.memory.states
        return kept.repeat_interleave(rows // len(kept), 0).unbind(1)
