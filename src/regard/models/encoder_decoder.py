"""EncoderDecoder: a source is read whole, a target is written token by token."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.build import decoder, encoder
from regard.models.sutskever import bottleneck
from regard.nn.attention import Memory
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["EncoderDecoder"]


class EncoderDecoder(nn.Module):
    """The transformer of Vaswani et al. 2017, figure 1; or, of recurrent blocks, what came before it."""

    def __init__(self, tower: Tower, *, sources: int, targets: int) -> None:
        super().__init__()
        self.fixed = tower.recurrent is not None and tower.recurrent.context == "fixed"
        self.encoder = encoder(tower, vocabulary=sources)
        self.decoder = decoder(tower, vocabulary=targets, memory_width=tower.width)
        if tower.tied == "all" and sources == targets:
            self.encoder.tokens = self.decoder.tokens

    def encode(self, source: Int[Tensor, "batch source"], mask: Mask = Mask()) -> Memory:
        x = self.encoder.embed(source)
        if self.fixed:
            return bottleneck(self.encoder, x, mask)
        # A window or the like is about the source's own positions: the target's are others.
        return Memory(self.encoder(x, mask=mask), Mask(keys=mask.keys))

    def forward(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"], *, mask: Mask = Mask()
    ) -> Float[Tensor, "batch target width"]:
        """The state after each target token, from which the next one is read. `mask` is the source's."""
        return self.decoder(self.decoder.embed(target), self.encode(source, mask))  # type: ignore[no-any-return]

    def logits(self, states: Float[Tensor, "batch target width"]) -> Float[Tensor, "batch target vocabulary"]:
        return self.decoder.logits(states)

    def begin(self, rows: int, memory: Memory | None = None, *, capacity: int | None = None) -> Any:
        return self.decoder.begin(rows, memory, capacity=capacity)

    def step(self, tokens: Int[Tensor, "rows n"], state: Any) -> Float[Tensor, "rows n width"]:
        return self.decoder.step(tokens, state)
