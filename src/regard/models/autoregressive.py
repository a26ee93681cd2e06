"""The interface of all decoders, whatever their blocks are."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import Memory
from regard.nn.embed import TokenEmbedding
from regard.nn.mask import Mask

__all__ = ["AutoregressiveDecoder"]


class AutoregressiveDecoder(nn.Module):
    """From a text to the states that predict its next tokens. Generation knows it as `Steps`."""

    ordered: bool
    """Whether it would know the order of tokens without their positions."""
    reads_back = False
    """Whether it also learns from the end of a text to its start, and has `hindsight`."""
    tokens: TokenEmbedding
    output: nn.Linear

    def embed(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask = Mask(causal=True),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length out"]:
        """The state after each token, given the memory."""
        raise NotImplementedError

    def with_terms(
        self, x: Float[Tensor, "batch length width"], memory: Memory, targets: Int[Tensor, "batch length"], *,
        ignore: int,
    ) -> tuple[Float[Tensor, "batch length out"], dict[str, Float[Tensor, ""]]]:
        """The states, and sums that belong to the loss beside the likelihood of the targets. Most models have none."""
        return self(x, memory), {}

    def hindsight(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length out"]:
        """The states of a backward model: each depends on its token and all later ones, and predicts the one before."""
        raise NotImplementedError

    def logits(self, states: Float[Tensor, "batch length out"]) -> Float[Tensor, "batch length vocabulary"]:
        raise NotImplementedError

    def begin(self, rows: int, memory: Memory | None = None, *, capacity: int | None = None) -> Any:
        """Ready for the first token of each row. With a capacity, no shape will change from step to step."""
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, "rows n"], state: Any) -> Float[Tensor, "rows n out"]:
        """The states of the next n tokens of each row. The state moves on by n."""
        raise NotImplementedError
