"""Reading a prompt before the first token is written."""

from collections.abc import Iterator

from jaxtyping import Float, Int
from torch import Tensor

from regard.generate.steps import State, Steps

__all__ = ["CHUNK", "prefill", "read"]

CHUNK = 512  # tokens read at once: enough to keep a machine busy


def prefill(model: Steps, tokens: Int[Tensor, "rows n"], state: State, *, chunk: int = CHUNK) -> None:
    """Read the prompts, a chunk at a time, so that a long one costs memory in proportion to its length.

    Beside the cache, no tensor has more than rows × chunk × (the widest part of a block) numbers, or chunk × keys for
    the mask, the keys being those that have been read or, with a window, those that it reaches; a whole prompt at once
    would make a mask of n × n. No logits are made.
    """
    for _ in read(model, tokens, state, chunk=chunk):
        pass


def read(model: Steps, tokens: Int[Tensor, "rows n"], state: State, *,
         chunk: int = CHUNK) -> Iterator[Float[Tensor, "rows m width"]]:
    """The same, with the states of each chunk as they come."""
    for start in range(0, tokens.shape[1], chunk):
        yield model.step(tokens[:, start : start + chunk], state)
