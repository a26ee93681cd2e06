"""The protocol between generation and models: transformers and recurrent networks both implement it."""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["State", "Steps"]


@runtime_checkable
class State(Protocol):
    """The state of a model between two steps."""

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Row i continues the old row rows[i]; the number of rows may change."""

    def fan_out(self, size: int) -> None:
        """Each row becomes `size` neighbours, which from then on are reordered only among themselves."""

    def choose(self, sources: Int[Tensor, " kept"]) -> None:
        """Keep these sources of the memory only."""

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Forget every position from `length` on, which may be another in each row."""

    def tensors(self) -> list[Tensor]:
        """All that the next step reads or changes, in an order that depends on nothing but their shapes."""


@runtime_checkable
class Steps(Protocol):
    """A model that writes token by token."""

    def begin(self, rows: int, memory: Any = None, *, capacity: int | None = None) -> Any:
        """A `State` for `rows` rows. With a capacity, no shape changes from step to step."""

    def step(self, tokens: Int[Tensor, "rows n"], state: Any) -> Float[Tensor, "rows n width"]:
        """Read the next n tokens of each row; n > 1 prefills a prompt, or scores a text."""

    def logits(self, states: Float[Tensor, "rows n width"]) -> Float[Tensor, "rows n vocabulary"]:
        """How likely each token of the vocabulary comes next, before the softmax."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """As every module has."""

    def buffers(self) -> Iterator[Tensor]:
        """As every module has."""
