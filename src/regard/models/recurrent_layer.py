"""Recurrent: a block that reads a text token by token, in place of one that attends."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.kernels.precision import in_own_dtype
from regard.nn.dropout import Dropout
from regard.nn.mask import Mask

__all__ = ["VECTORS", "Recurrent", "Vectors", "run", "summary", "turned"]

CELLS: dict[str, type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[str, Callable[..., Any]] = {
    "elman": torch.rnn_tanh_cell, "gru": torch.gru_cell, "lstm": torch.lstm_cell}
"""The same for one token, where the kernels for whole texts take longer to set themselves up than to read it."""
WEIGHTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
VECTORS = {"elman": 1, "gru": 1, "lstm": 2}
"""The number of vectors that each cell keeps from one token to the next: an LSTM has a cell and a state."""

Vectors = tuple[Float[Tensor, "rows _"], ...]


class Recurrent(nn.Module):
    """One layer: h_t = tanh(U x_t + V h_{t-1}) (Elman 1990), or the gated cells that followed.

    By torch's fused kernels, whose GRU applies its reset after the product and not before it (Cho et al. 2014, eq. 8).
    In a bidirectional layer each direction has half of the width. In a layer of a bilm each has all of it, and the
    first half of the input is for the forward direction.
    """

    def __init__(self, kind: str, width: int, *, inputs: int | None = None, direction: str = "forward",
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.inputs, self.vectors, self.one = width, inputs or width, VECTORS[kind], STEPS[kind]
        each = width // 2 if direction == "bidirectional" else width
        self.forth = None if direction == "backward" else CELLS[kind](self.inputs, each, batch_first=True)
        self.back = None if direction == "forward" else CELLS[kind](self.inputs, each, batch_first=True)
        self.dropout = Dropout(dropout)

    def settle(self) -> None:
        """The gates by which an LSTM forgets begin open, so that what it has read is not halved with every token.

        Jozefowicz et al. 2015, 2.2.
        """
        for way in (self.forth, self.back):
            if isinstance(way, nn.LSTM):
                nn.init.ones_(way.get_parameter("bias_ih_l0").view(4, -1)[1])

    def forward(
        self, x: Float[Tensor, "batch length inputs"], *, mask: Mask = Mask(),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """`mask` marks the real tokens, which must be the first of each row; positions are ignored."""
        states = []
        if self.forth is not None:
            states.append(run(self.forth, x[..., : self.inputs])[0])
        if self.back is not None:
            states.append(turned(run(self.back, turned(x[..., -self.inputs :], mask.keys))[0], mask.keys))
        return self.dropout(states[0] if len(states) == 1 else torch.cat(states, dim=-1))  # type: ignore[no-any-return]

    def through(
        self, x: Float[Tensor, "batch length inputs"], *, mask: Mask = Mask()
    ) -> tuple[Float[Tensor, "batch length width"], Vectors]:
        """The states as in `forward`, and the vectors after each row's last real token."""
        states, vectors = [], []
        for way in ("forth", "back"):
            if (cell := getattr(self, way)) is None:
                continue
            read = turned(x, mask.keys) if way == "back" else x
            own = run(cell, read)[0]
            vectors.append(_after(cell, read, own, mask.keys))
            states.append(turned(own, mask.keys) if way == "back" else own)
        joined = tuple(torch.cat(both, dim=-1) for both in zip(*vectors, strict=True))
        return self.dropout(torch.cat(states, dim=-1)), joined

    def read(
        self, x: Float[Tensor, "rows n inputs"], vectors: Vectors
    ) -> tuple[Float[Tensor, "rows n width"], Vectors]:
        """The states of the next n tokens, and the vectors after them. Only forward: later tokens are not known."""
        assert self.forth is not None
        exact = self.forth.get_parameter(WEIGHTS[0]).dtype
        if x.shape[1] == 1:
            before = tuple(vector.to(exact) for vector in vectors)
            weights = [self.forth.get_parameter(name) for name in WEIGHTS]
            with in_own_dtype(x):
                after = self.one(x[:, 0].to(exact), before if len(before) > 1 else before[0], *weights)
            after = after if isinstance(after, tuple) else (after,)
            return self.dropout(after[0][:, None]), after
        states, after = run(self.forth, x, vectors)
        return self.dropout(states), after


def run(cell: nn.RNNBase, x: Float[Tensor, "rows n inputs"],
        vectors: Vectors = ()) -> tuple[Float[Tensor, "rows n width"], Vectors]:
    """The states by a fused kernel and, where there were vectors before, those after it.

    In the precision of the weights: autocast would use float16 on a GPU, regardless of its setting, and small gradients
    would become zero.
    """
    exact = cell.get_parameter("weight_ih_l0").dtype
    before = tuple(vector[None].to(exact).contiguous() for vector in vectors)
    with in_own_dtype(x):
        states, after = cell(x.to(exact), before if len(before) > 1 else before[0] if before else None)
    if not before:
        return states, ()
    return states, tuple(vector[0] for vector in (after if isinstance(after, tuple) else (after,)))


def _after(cell: nn.Module, x: Float[Tensor, "batch length inputs"], states: Float[Tensor, "batch length width"],
           real: Bool[Tensor, "batch length"] | None) -> Vectors:
    """A cell's vectors after the last real token, which a fused kernel tells for rows without padding only.

    All states being known, so are an LSTM's gates at all tokens: its cell is a sum along them.
    """
    state = summary(states, real, direction="forward")
    if not isinstance(cell, nn.LSTM):
        return (state,)
    before = nn.functional.pad(states[:, :-1], (0, 0, 1, 0))
    weight, carried, bias, other = (cell.get_parameter(name) for name in WEIGHTS)
    gates = nn.functional.linear(x, weight, bias) + nn.functional.linear(before, carried, other)
    enters, keeps, new, _ = gates.chunk(4, -1)
    enters, keeps = torch.sigmoid(enters) * torch.tanh(new), torch.sigmoid(keeps)
    if real is not None:  # padding changes nothing
        enters, keeps = enters * real[..., None], torch.where(real[..., None], keeps, 1.0)
    kept = torch.zeros_like(state)
    for entering, keeping in zip(enters.unbind(1), keeps.unbind(1), strict=True):
        kept = keeping * kept + entering
    return state, kept


def turned(x: Float[Tensor, "batch length width"],
           real: Bool[Tensor, "#batch length"] | None) -> Float[Tensor, "batch length width"]:
    """The real tokens of each row from the last to the first; the padding stays behind them. Twice, it is x again."""
    if real is None:
        return x.flip(1)
    lengths, places = real.sum(1, keepdim=True), torch.arange(x.shape[1], device=x.device)
    order = torch.where(places < lengths, lengths - 1 - places, places)
    return x.gather(1, order[..., None].expand_as(x))


def summary(states: Float[Tensor, "batch length width"], real: Bool[Tensor, "batch length"] | None, *,
            direction: str) -> Float[Tensor, "batch width"]:
    """The state that has read all of a text: the last in each direction that it was read."""
    if direction == "backward":
        return states[:, 0]
    if real is None:
        last = states[:, -1]
    else:
        place = (real.sum(1) - 1).clamp(min=0)
        last = states.gather(1, place[:, None, None].expand(len(states), 1, states.shape[2]))[:, 0]
    if direction == "forward":
        return last
    half = states.shape[2] // 2
    return torch.cat([last[:, :half], states[:, 0, half:]], dim=-1)
