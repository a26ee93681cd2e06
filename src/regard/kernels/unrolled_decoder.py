"""The loop of a decoder that looks before each step, and its gradient by hand.

Autograd would note some twenty operations for each word and go back through them one by one, with a product for every
matrix and a sum of all gradients so far. Here the loop runs without being noted; going back, a step does what depends
on the one after it, and the gradients of the matrices are one product each when the loop is over.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.kernels.precision import to_product_dtype

__all__ = ["Matrices", "Step", "pays", "unrolled"]


class Step(NamedTuple):
    """The results of one step, or of all. Names as in Bahdanau et al. 2015, A.2.2."""

    s: Float[Tensor, "*n rows width"]
    c: Float[Tensor, "*n rows memory"]
    weights: Float[Tensor, "*n rows 1 1 keys"] | None
    """α, of the state before; None where a kernel kept them to itself."""
    gates: Float[Tensor, "*n rows gates"]
    """r and z."""
    candidate: Float[Tensor, "*n rows width"]
    """s̃"""


class Matrices(NamedTuple):
    """The weights of a step."""

    asked: Float[Tensor, "width width"]
    """W_a, from the left."""
    score: Float[Tensor, " width"]
    """v_a"""
    seen: Float[Tensor, "three_widths memory"]
    """C_r, C_z, C"""
    gates: Float[Tensor, "two_widths width"]
    """U_r, U_z"""
    candidate: Float[Tensor, "width width"]
    """U"""


def pays(dropout: float) -> bool:
    """Whether there is a gradient to be worked out, and no dropout of the weights, which it does not know."""
    return torch.is_grad_enabled() and dropout == 0.0


def unrolled(
    walk: Callable[[], list[Step]], s: Float[Tensor, "rows width"], words: Float[Tensor, "n rows gates"],
    h: Float[Tensor, "rows keys memory"], projected_keys: Float[Tensor, "rows keys width"], matrices: Matrices, *,
    temperature: float,
) -> tuple[Float[Tensor, "n rows width"], Float[Tensor, "n rows memory"]]:
    """The states and contexts that `walk` gives, with their gradients for all that it was made from."""
    tensors = (to_product_dtype(tensor) for tensor in (s, words, h, projected_keys, *matrices))
    return _Unrolled.apply(walk, temperature, *tensors)  # type: ignore[no-any-return,no-untyped-call]


class _Unrolled(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, walk: Callable[[], list[Step]], temperature: float, s: Tensor, words: Tensor, h: Tensor,
                projected_keys: Tensor, *matrices: Tensor) -> tuple[Tensor, Tensor]:
        done = Step(*(torch.stack(part) for part in zip(*walk(), strict=True)))
        ctx.temperature = temperature
        ctx.save_for_backward(s, h, projected_keys, *matrices, *done)
        return done.s, done.c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        s, h, projected_keys, *others = ctx.saved_tensors
        m, done = Matrices(*others[:5]), Step(*others[5:])
        assert done.weights is not None
        weights = done.weights.view(*done.s.shape[:2], -1)
        before = torch.cat([s[None], done.s[:-1]])
        r, z = done.gates.chunk(2, dim=-1)
        asked = before @ m.asked
        # Sums over the steps need more digits than each step has.
        summed = torch.zeros_like(projected_keys, dtype=torch.promote_types(projected_keys.dtype, torch.float32))
        back = _Back(torch.empty_like(asked), torch.empty_like(done.c),
                     asked.new_empty(*asked.shape[:2], len(m.seen)), summed, [])
        flow = torch.zeros_like(s)  # into the state after the step
        for step in reversed(range(len(before))):
            flow = flow + grads[0][step]
            given = back.given[step]
            bent = torch.ops.aten.tanh_backward(flow * z[step], done.candidate[step])
            carried = bent @ m.candidate
            gates = torch.cat([carried * before[step], flow * (done.candidate[step] - before[step])], dim=-1)
            torch.cat([torch.ops.aten.sigmoid_backward(gates, done.gates[step]), bent], dim=-1, out=given)
            torch.addmm(grads[1][step], given, m.seen, out=back.c[step])
            back.look(step, asked[step], projected_keys, h, weights[step], m.score, ctx.temperature)
            flow = torch.addcmul(flow, flow, z[step], value=-1).addcmul_(carried, r[step])
            flow.addmm_(given[:, : len(m.gates)], m.gates).addmm_(back.asked[step], m.asked.T)
        rows = _rows(back.given)
        return (
            None, None, flow, back.given, torch.einsum("nbk,nbw->bkw", weights, back.c), back.projected_keys,
            _rows(before).T @ _rows(back.asked), torch.stack(back.score).sum(0), rows.T @ _rows(done.c),
            rows[:, : len(m.gates)].T @ _rows(before), rows[:, len(m.gates) :].T @ _rows(r * before))


class _Back(NamedTuple):
    """The gradients, filled step by step from the last."""

    asked: Tensor
    c: Tensor
    given: Tensor
    """The gradient of the words' and contexts' part of gates and candidate."""
    projected_keys: Tensor
    """Of all steps together."""
    score: list[Tensor]

    def look(self, step: int, asked: Tensor, projected_keys: Tensor, h: Tensor, weights: Tensor, score: Tensor,
             temperature: float) -> None:
        """From the gradient of a context to that of the question; the tanh is worked out again (`nn.attend`)."""
        wanted = (h @ self.c[step][:, :, None])[:, :, 0]
        scores = torch._softmax_backward_data(wanted, weights, -1, weights.dtype)
        if temperature != 1.0:
            scores = scores / temperature
        met = (asked[:, None] + projected_keys).tanh_()
        self.score.append(scores.flatten() @ _rows(met))
        bent = torch.ops.aten.tanh_backward(scores[:, :, None] * score, met)
        torch.sum(bent, 1, out=self.asked[step])
        self.projected_keys.add_(bent)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2)
