"""Attention before each step: where the decoder looks, its last state decides (Bahdanau et al. 2015)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels.unrolled_decoder import Matrices, Step, pays, unrolled
from regard.models.attention_decoder import AttentionDecoder
from regard.models.parts import input_width
from regard.models.recurrent_decoder import Source
from regard.models.recurrent_layer import Vectors
from regard.settings.schema import Tower

__all__ = ["BahdanauDecoder"]


class BahdanauDecoder(AttentionDecoder):
    """s_i = f(s_{i-1}, y_{i-1}, c_i), c_i = Σ_j α_ij h_j, α_ij from a(s_{i-1}, h_j) (3.1, eq. 4 to 6).

    The gated unit and the deep output with maxout are those of A.2.2, with two differences: the output sees s_i, as in
    eq. 4, not s_{i-1}; and s_0 depends on the last states of both directions, not only the backward one. The products
    of all words, and the output, are computed outside the loop.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        assert self.cell == "gru", "an lstm attends before each step in another class"
        width, out = tower.width, input_width(tower)
        self.additive = tower.score == "additive"
        self.word = nn.Linear(width, 3 * width)  # W_r, W_z, W
        self.seen = nn.Linear(memory_width, 3 * width, bias=False)  # C_r, C_z, C
        self.gates = nn.Linear(width, 2 * width, bias=False)  # U_r, U_z
        self.candidate = nn.Linear(width, width, bias=False)  # U
        self.deep = nn.Linear(width + width + memory_width, 2 * out)  # U_o, V_o, C_o: of each two the larger stays

    def stack(self, tower: Tower) -> nn.ModuleList:
        return nn.ModuleList()

    def kept(self, tower: Tower) -> tuple[int, ...]:
        return (tower.width,)  # s

    def read(
        self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source | None = None
    ) -> tuple[Float[Tensor, "rows n out"], Vectors]:
        assert source is not None
        (s,), words = vectors, self.word(x.transpose(0, 1))  # (n, rows, gates)
        if self.by_hand(len(x), source):
            states, seen = self.unrolled(s, words, source)
        else:
            states, seen = (torch.stack(part) for part in list(zip(*self.walk(s, words, source), strict=True))[:2])
        deep = self.deep(torch.cat([states.transpose(0, 1), x, seen.transpose(0, 1)], dim=-1))
        return self.dropout(deep.unflatten(-1, (-1, 2)).amax(-1)), (states[-1],)

    def walk(self, s: Float[Tensor, "rows width"], words: Float[Tensor, "n rows gates"], source: Source) -> list[Step]:
        """Word by word; `words` are what the words give to each part of the unit."""
        steps = list[Step]()
        for word in words:
            c, weights = self.cross(s[:, None], source)
            steps.append(self.next(s, word, c[:, 0], weights))
            s = steps[-1].s
        return steps

    def next(self, s: Float[Tensor, "rows width"], word: Float[Tensor, "rows gates"], c: Float[Tensor, "rows memory"],
             weights: Tensor | None) -> Step:
        """A.2.2, the gated unit."""
        given = word + self.seen(c)
        gates = torch.sigmoid(given[:, : 2 * self.width] + self.gates(s))
        r, z = gates.chunk(2, dim=-1)
        candidate = torch.tanh(given[:, 2 * self.width :] + self.candidate(r * s))
        return Step(s + z * (candidate - s), c, weights, gates, candidate)

    def by_hand(self, rows: int, source: Source) -> bool:
        """Whether the model learns, from as many sources as rows, by the paper's own score."""
        return self.additive and rows == len(source.memory.states) and pays(self.cross.attend.dropped)

    def unrolled(
        self, s: Float[Tensor, "rows width"], words: Float[Tensor, "n rows gates"], source: Source
    ) -> tuple[Float[Tensor, "n rows width"], Float[Tensor, "n rows memory"]]:
        """The same states and contexts, without autograd in the loop."""
        attend, h, projected_keys = self.cross.attend, source.memory.states, source.projected_keys
        assert projected_keys is not None
        matrices = Matrices(attend.query_weight[0], attend.out_weight[0, :, 0], self.seen.weight, self.gates.weight,  # type: ignore[index]
                            self.candidate.weight)
        return unrolled(lambda: self.walk(s, words, source), s, words, h, projected_keys[:, 0], matrices,
                        temperature=attend.temperature)
