"""EncoderDecoder: a source is read whole, a target is written token by token."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.encoder import Encoder
from regard.nn.attention import Memory
from regard.nn.mask import Mask

__all__ = ["EncoderDecoder"]


class EncoderDecoder(nn.Module):
    """The transformer of Vaswani et al. 2017, figure 1; or, of recurrent blocks, what came before it."""

    def __init__(self, encoder: Encoder, decoder: AutoregressiveDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, source: Tensor, mask: Mask = Mask()) -> Memory:
        return self.encoder.memory(self.encoder.embed(source), mask=mask)

    def forward(
        self, source: Tensor, target: Int[Tensor, "batch target"], *, mask: Mask = Mask()
    ) -> Float[Tensor, "batch target width"]:
        """The state after each target token, from which the next one is read. `mask` is the source's."""
        return self.decoder(self.decoder.embed(target), self.encode(source, mask))  # type: ignore[no-any-return]

    def with_terms(
        self, source: Tensor, target: Int[Tensor, "batch target"], wanted: Int[Tensor, "batch target"], *,
        ignore: int, mask: Mask = Mask(),
    ) -> tuple[Float[Tensor, "batch target width"], dict[str, Float[Tensor, ""]]]:
        """The states as in `forward`, and further terms of the loss (`AutoregressiveDecoder.with_terms`)."""
        return self.decoder.with_terms(self.decoder.embed(target), self.encode(source, mask), wanted, ignore=ignore)

    def logits(self, states: Float[Tensor, "batch target width"]) -> Float[Tensor, "batch target vocabulary"]:
        return self.decoder.logits(states)

    def begin(self, rows: int, memory: Memory | None = None, *, capacity: int | None = None) -> Any:
        return self.decoder.begin(rows, memory, capacity=capacity)

    def step(self, tokens: Int[Tensor, "rows n"], state: Any) -> Float[Tensor, "rows n width"]:
        return self.decoder.step(tokens, state)
