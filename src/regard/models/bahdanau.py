"""Attention before each step: where the decoder looks, its last state decides (Bahdanau et al. 2015)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.cells import Vectors
from regard.models.rnn import RecurrentDecoder, Source
from regard.models.tower import input_width
from regard.nn.attend import SCORES, Attend
from regard.nn.attention import Memory
from regard.settings.errors import UserError
from regard.settings.schema import Tower

__all__ = ["BahdanauDecoder", "Looks"]


class Looks(nn.Module):
    """One attention of states to a source, whose states are compared and mixed as they are."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.attend: Attend = SCORES[tower.score](
            (tower.width,), temperature=tower.temperature, dropout=tower.attention_dropout)

    def see(self, memory: Memory) -> Source:
        return Source(memory, self.attend.know(memory.states[:, None]))

    def forward(self, states: Float[Tensor, "rows n width"], source: Source) -> Float[Tensor, "rows n width"]:
        """What each state sees. Where there are more rows than sources, neighbours share one."""
        memory = source.memory
        h = memory.states[:, None]  # (sources, 1, keys, width)
        q = states.reshape(len(h), 1, -1, states.shape[2])
        seen: Tensor = self.attend(q, h, h, mask=memory.mask, known=source.known).context
        return seen.reshape(states.shape)


class BahdanauDecoder(RecurrentDecoder):
    """s_i = f(s_{i-1}, y_{i-1}, c_i), c_i = Σ_j α_ij h_j, α_ij from a(s_{i-1}, h_j) (3.1, eq. 4 to 6).

    The gated unit and the deep output with maxout are those of A.2.2, but that the output sees s_i, as eq. 4 says, and
    not s_{i-1}. The products of all words, and the output, wait until the loop is over: they do not need to be in it.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        if tower.cell != "gru":
            raise UserError(f"model.cell={tower.cell}: attention before each step is that of a gru; take it, or "
                            "model.context=output")
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        width, out = tower.width, input_width(tower)
        self.cross = Looks(tower)
        self.word = nn.Linear(width, 3 * width)  # W_r, W_z, W
        self.seen = nn.Linear(memory_width, 3 * width, bias=False)  # C_r, C_z, C
        self.gates = nn.Linear(width, 2 * width, bias=False)  # U_r, U_z
        self.candidate = nn.Linear(width, width, bias=False)  # U
        self.deep = nn.Linear(width + width + memory_width, 2 * out)  # U_o, V_o, C_o: of each two the larger stays
        self.narrow = nn.Identity()

    def stack(self, tower: Tower) -> nn.ModuleList:
        return nn.ModuleList()

    def kept(self, tower: Tower) -> tuple[int, ...]:
        return (tower.width,)  # s

    def see(self, memory: Memory | None) -> Source | None:
        assert memory is not None, "a translator needs a source"
        return self.cross.see(memory)

    def read(
        self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source | None = None
    ) -> tuple[Float[Tensor, "rows n out"], Vectors]:
        assert source is not None
        (s,) = vectors
        states, seen = [], []
        for word in self.word(x).unbind(1):
            c = self.cross(s[:, None], source)[:, 0]
            s = self.next(s, word, c)
            states.append(s)
            seen.append(c)
        deep = self.deep(torch.cat([torch.stack(states, 1), x, torch.stack(seen, 1)], dim=-1))
        return self.dropout(deep.unflatten(-1, (-1, 2)).amax(-1)), (s,)

    def next(self, s: Float[Tensor, "rows width"], word: Float[Tensor, "rows gates"],
             c: Float[Tensor, "rows memory"]) -> Float[Tensor, "rows width"]:
        """A.2.2, the gated unit; `word` is what the word gives to each of its three parts."""
        given = word + self.seen(c)
        r, z = torch.sigmoid(given[:, : 2 * self.width] + self.gates(s)).chunk(2, dim=-1)
        candidate = torch.tanh(given[:, 2 * self.width :] + self.candidate(r * s))
        return s + z * (candidate - s)
