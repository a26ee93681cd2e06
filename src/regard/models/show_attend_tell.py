"""Attention before each step of an LSTM, to a mean of all places or to one of them (Xu et al. 2015)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.attention_decoder import AttentionDecoder
from regard.models.parts import input_width
from regard.models.recurrent_decoder import Source
from regard.models.recurrent_layer import Vectors
from regard.nn.attention import Memory
from regard.nn.head import pooled
from regard.nn.loss import log_likelihoods
from regard.nn.reinforce import MovingBaseline, draw, entropy, log_probability, returns, score_function
from regard.settings.schema import Tower

__all__ = ["Glimpses", "ShowAttendTellDecoder"]


class Glimpses(NamedTuple):
    """A pass of a decoder over whole texts, with its attention."""

    states: Float[Tensor, "rows n out"]
    vectors: Vectors
    """After the last token."""
    weights: Float[Tensor, "rows n places"]
    """α"""
    places: Int[Tensor, "rows n"]
    """Of hard attention, s: the place that each token's context was taken from."""
    drawn: Bool[Tensor, " rows"]
    """The rows with such places; the others have seen the mean of all."""


class ShowAttendTellDecoder(AttentionDecoder):
    """h_t from E y_{t-1}, h_{t-1} and the context ẑ_t (3.1.2, eq. 1 to 6); the words' output is deep (eq. 7).

    Soft attention takes the mean Σ α_ti a_i (eq. 13), hard attention the a_i of one place that it draws by α (eq. 8 and
    9); without training the likeliest. The gate β_t = σ(f_β(h_{t-1})) scales the context (4.2.1).
    Dropout is on the words and before the output. Products that do not depend on the state before are outside the
    loop.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        recurrent = tower.recurrent
        assert recurrent is not None
        width, out = tower.width, input_width(tower)
        self.hard, self.expected = recurrent.attention == "hard", recurrent.expected
        self.word = nn.Linear(width, 4 * width)  # T of eq. 1, in three parts: of E y, of ẑ and of h
        self.seen = nn.Linear(memory_width, 4 * width, bias=False)
        self.carried = nn.Linear(width, 4 * width, bias=False)
        self.gate = nn.Linear(width, 1) if recurrent.gate else None  # f_β
        self.deep_word = nn.Identity() if out == width else nn.Linear(width, out, bias=False)
        self.deep_state = nn.Linear(width, out)  # L_h
        self.deep_seen = nn.Linear(memory_width, out, bias=False)  # L_z
        self.baseline = MovingBaseline() if self.hard else None

    def settle(self) -> None:
        """The gates by which it forgets begin open, as in other LSTMs here."""
        nn.init.ones_(self.word.bias.view(4, -1)[1])

    def stack(self, tower: Tower) -> nn.ModuleList:
        return nn.ModuleList()

    def kept(self, tower: Tower) -> tuple[int, ...]:
        return (tower.width, tower.width)  # h and c

    def summary(self, source: Source) -> Float[Tensor, "sources memory"]:
        """The mean of all places, from which h_0 and c_0 are made."""
        states, keys = source.memory.states, source.memory.mask.keys
        return states.mean(1) if keys is None else pooled(states, keys, how="mean")

    def read(
        self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source | None = None
    ) -> tuple[Float[Tensor, "rows n out"], Vectors]:
        assert source is not None
        seen = self.looking(x, vectors, source)
        return seen.states, seen.vectors

    def glimpses(self, x: Float[Tensor, "rows n width"], memory: Memory) -> Glimpses:
        """All of a pass over whole texts, for the terms of the loss."""
        source = self.cross.see(memory)
        return self.looking(x, self.first(len(x), source), source)

    def with_terms(
        self, x: Float[Tensor, "rows n width"], memory: Memory, targets: Int[Tensor, "rows n"], *, ignore: int
    ) -> tuple[Float[Tensor, "rows n out"], dict[str, Float[Tensor, ""]]]:
        """And three sums over the rows: one of soft attention, eq. 14, and two of hard attention, 4.1."""
        seen, real = self.glimpses(x, memory), targets != ignore
        # Every place should get as much as the others, of all words together. A row without words only fills a batch.
        looked = (seen.weights * real[..., None]).sum(1)
        terms = {"coverage": ((1 - looked).square().sum(1) * real.any(1)).sum()}
        if self.baseline is not None:
            chosen = real & seen.drawn[:, None]
            with torch.no_grad():
                rewards = log_likelihoods(seen.states, self.output.weight, targets.where(real, 0)) * chosen
                expected = returns(self.baseline.value() * chosen)
            chances = log_probability(seen.weights, seen.places)
            terms["reinforce"] = score_function(chances * chosen, returns(rewards) - expected)
            terms["entropy"] = -(entropy(seen.weights) * chosen).sum()
            if self.training:
                self.baseline.take(rewards, chosen)
        return seen.states, terms

    def looking(self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source) -> Glimpses:
        drawn = self.draws(x)
        h, c = vectors
        steps = list[tuple[Tensor, ...]]()
        for word in self.word(x.transpose(0, 1)):
            seen, weights, places = self.look(h, source, drawn)
            h, c = self.next(h, c, word, seen)
            steps.append((h, seen, weights, places))
        states, seen, weights, places = (torch.stack(part, dim=1) for part in zip(*steps, strict=True))
        deep = self.deep_word(x) + self.deep_state(states) + self.deep_seen(seen)
        return Glimpses(self.dropout(deep), (h, c), weights, places, drawn)

    def look(
        self, h: Float[Tensor, "rows width"], source: Source, drawn: Bool[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows memory"], Float[Tensor, "rows places"], Int[Tensor, " rows"]]:
        """The context of each row, its weights and, of hard attention, the place."""
        (context, weights), a = self.cross(h[:, None], source), source.memory.states
        weights = self.cross.weights(h[:, None], source) if weights is None else weights
        seen, weights = context[:, 0], weights.reshape(len(h), -1)
        if self.hard:
            places = draw(weights.detach()) if self.training else weights.argmax(-1)
            rows = torch.arange(len(h), device=h.device) * len(a) // len(h)  # neighbours share a source
            seen = torch.where(drawn[:, None], a[rows, places], seen)
        else:
            places = weights.new_zeros(len(h), dtype=torch.long)
        if self.gate is not None:
            seen = torch.sigmoid(self.gate(h)) * seen
        return seen, weights, places

    def next(
        self, h: Float[Tensor, "rows width"], c: Float[Tensor, "rows width"], word: Float[Tensor, "rows gates"],
        seen: Float[Tensor, "rows memory"],
    ) -> Vectors:
        """Eq. 1 to 3."""
        i, f, g, o = (word + self.seen(seen) + self.carried(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def draws(self, x: Float[Tensor, "rows n width"]) -> Bool[Tensor, " rows"]:
        """The rows whose places are drawn: while it learns, a share of them sees the expected context (4.1)."""
        if self.training and self.hard:
            return torch.rand(len(x), device=x.device) >= self.expected
        return torch.full((len(x),), self.hard, device=x.device)
