"""Shared by recurrent decoders with attention: one attention, directly to the states of the source."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.recurrent_decoder import RecurrentDecoder, Source
from regard.nn.attend import Attend
from regard.nn.attention import Memory
from regard.nn.score import SCORES
from regard.settings.schema import Tower

__all__ = ["AttentionDecoder"]


class Looks(nn.Module):
    """One attention of states to a source, whose states are compared and mixed as they are."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.attend: Attend = SCORES[tower.score](
            (tower.width,), temperature=tower.temperature, dropout=tower.attention_dropout)

    def see(self, memory: Memory) -> Source:
        return Source(memory, self.attend.project_keys(memory.states[:, None]))

    def forward(
        self, states: Float[Tensor, "rows n width"], source: Source
    ) -> tuple[Float[Tensor, "rows n width"], Float[Tensor, "sources 1 queries keys"] | None]:
        """The context of each state, and the attention weights, if they were computed.

        Where there are more rows than sources, neighbours share one.
        """
        memory = source.memory
        h = memory.states[:, None]  # (sources, 1, keys, width)
        q = states.reshape(len(h), 1, -1, states.shape[2])
        seen, weights = self.attend(q, h, h, mask=memory.mask, projected_keys=source.projected_keys)
        return seen.reshape(states.shape), weights

    def weights(self, states: Float[Tensor, "rows n width"],
                source: Source) -> Float[Tensor, "sources 1 queries keys"]:
        """The attention weights, where a kernel has kept them to itself."""
        h = source.memory.states[:, None]
        q = states.reshape(len(h), 1, -1, states.shape[2])
        return self.attend.weights(q, h, mask=source.memory.mask, projected_keys=source.projected_keys)


class AttentionDecoder(RecurrentDecoder):
    """A subclass decides when to attend and how to use the context; its states have the width of the output."""

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.cross = Looks(tower)
        self.narrow = nn.Identity()

    def see(self, memory: Memory | None) -> Source | None:
        assert memory is not None, "a translator needs a source"
        return self.cross.see(memory)
