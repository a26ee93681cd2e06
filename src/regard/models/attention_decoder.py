"""What decoders that look at their source have in common: one attention, to its states as they are."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.rnn import RecurrentDecoder, Source
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
        """What each state sees, and how much of each key, where that came out on the way.

        Where there are more rows than sources, neighbours share one.
        """
        memory = source.memory
        h = memory.states[:, None]  # (sources, 1, keys, width)
        q = states.reshape(len(h), 1, -1, states.shape[2])
        seen, weights = self.attend(q, h, h, mask=memory.mask, projected_keys=source.projected_keys)
        return seen.reshape(states.shape), weights


class AttentionDecoder(RecurrentDecoder):
    """When it looks, and what it makes of what it sees, a subclass says; its states come as wide as the output's."""

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.cross = Looks(tower)
        self.narrow = nn.Identity()

    def see(self, memory: Memory | None) -> Source | None:
        assert memory is not None, "a translator needs a source"
        return self.cross.see(memory)
