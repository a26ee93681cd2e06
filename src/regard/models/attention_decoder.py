"""Shared by recurrent decoders with attention: one attention, directly to the states of the source."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.recurrent_decoder import RecurrentDecoder, Source
from regard.nn.attend import Attend
from regard.nn.attention import Memory
from regard.nn.score import SCORES
from regard.settings.schema import Tower

__all__ = ["AttentionDecoder"]


class SourceAttention(nn.Module):
    """One attention of states to a source, whose states are compared and mixed as they are.

    Where they have another width than the decoder's, they are projected for the comparison only.
    """

    def __init__(self, tower: Tower, *, memory_width: int) -> None:
        super().__init__()
        self.attend: Attend = SCORES[tower.score](
            (tower.width,), temperature=tower.temperature, dropout=tower.attention_dropout)
        same = memory_width == tower.width
        self.key = nn.Identity() if same else nn.Linear(memory_width, tower.width, bias=False)

    def see(self, memory: Memory) -> Source:
        keys = self.key(memory.states)[:, None]  # (sources, 1, keys, width)
        return Source(memory, keys, self.attend.project_keys(keys))

    def forward(
        self, states: Float[Tensor, "rows n width"], source: Source
    ) -> tuple[Float[Tensor, "rows n memory"], Float[Tensor, "sources 1 queries keys"] | None]:
        """The context of each state, and the attention weights, if they were computed.

        Where there are more rows than sources, neighbours share one.
        """
        memory, keys = source.memory, source.keys
        assert keys is not None
        seen, weights = self.attend(self.split(states, keys), keys, memory.states[:, None], mask=memory.mask,
                                    projected_keys=source.projected_keys)
        return seen.reshape(*states.shape[:2], -1), weights

    def weights(self, states: Float[Tensor, "rows n width"],
                source: Source) -> Float[Tensor, "sources 1 queries keys"]:
        """The attention weights, where a kernel has kept them to itself."""
        assert source.keys is not None
        return self.attend.weights(self.split(states, source.keys), source.keys, mask=source.memory.mask,
                                   projected_keys=source.projected_keys)

    def split(self, states: Float[Tensor, "rows n width"],
              keys: Float[Tensor, "sources 1 keys width"]) -> Float[Tensor, "sources 1 queries width"]:
        return states.reshape(len(keys), 1, -1, states.shape[2])


class AttentionDecoder(RecurrentDecoder):
    """A subclass decides when to attend and how to use the context; its states have the width of the output."""

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.cross = SourceAttention(tower, memory_width=memory_width)
        self.narrow = nn.Identity()

    def see(self, memory: Memory | None) -> Source | None:
        assert memory is not None, "a translator needs a source"
        return self.cross.see(memory)
