"""Kernels on meta tensors: what fused kernels hold and do, for tensors that have a shape but no content.

There torch would decompose them into operations that no device runs, and recurrent ones into single tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FusedAttention", "read_outlined"]


class FusedAttention(torch.autograd.Function):
    """The memory of an attention kernel: its inputs, and this many bytes in addition."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keeps: int) -> Tensor:
        ctx.save_for_backward(q, k, v, q.new_empty(keeps, dtype=torch.uint8))
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, _ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None


class Reading(torch.autograd.Function):
    """The memory and the operations of a recurrent layer.

    The inputs' product is one for all tokens, and so are those of the weights' gradients; that of the states has to
    wait at each token for the one before. Kept are the states, and what is inside of the cell at each token.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, from_input: Tensor, from_state: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        rows, length, _ = x.shape
        width = from_state.shape[1]
        inside = (x.flatten(0, 1) @ from_input.T).view(rows, length, -1)
        states = x.new_empty(rows, length, width)
        for token in range(length):
            states[:, token] @ from_state.T
        vectors = [vector for vector in others if vector.ndim > 1]
        ctx.save_for_backward(x, from_input, from_state, *others, states, inside)
        return states, *(x.new_empty(vector.shape) for vector in vectors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, from_input, from_state, *others, states, inside = ctx.saved_tensors
        of_inside = torch.empty_like(inside)
        for token in range(x.shape[1]):
            of_inside[:, token] @ from_state
        flat = of_inside.flatten(0, 1)
        return ((flat @ from_input).view(x.shape), flat.T @ x.flatten(0, 1), flat.T @ states.flatten(0, 1),
                *map(torch.empty_like, others))


@contextmanager
def read_outlined(cell: nn.RNNBase, cast: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, a layer of a recurrent cell that reads one way reads in outline. `cast` is as autocast would."""

    def read(x: Tensor, vectors: Tensor | tuple[Tensor, ...] | None = None) -> tuple[Tensor, Any]:
        known = () if vectors is None else vectors if isinstance(vectors, tuple) else (vectors,)
        weights = [cast(weight) for weight in cell.parameters()]
        states, *after = Reading.apply(cast(x), *weights, *map(cast, known))  # type: ignore[no-untyped-call]
        return states, tuple(after) if isinstance(vectors, tuple) else after[0] if after else None

    cell.forward = read
    try:
        yield
    finally:
        del cell.forward
