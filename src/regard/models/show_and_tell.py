"""One vector for a whole source, read as if it were the first word (Vinyals et al. 2015)."""

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.recurrent_decoder import RecurrentDecoder, Source
from regard.models.recurrent_layer import Vectors
from regard.settings.schema import Tower

__all__ = ["ShowAndTellDecoder"]


class ShowAndTellDecoder(RecurrentDecoder):
    """x_{-1} is the source's vector, x_t the words' (3.1, eq. 10 and 11): a text from an image or any other vector.

    The vector is the mean of all places. Theirs was the last layer of a network for labels, whose pooling is a mean.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int) -> None:
        super().__init__(tower, vocabulary=vocabulary, memory_width=memory_width)
        self.start = None
        self.shown = nn.Linear(memory_width, tower.width)

    def first(self, rows: int, source: Source | None) -> Vectors:
        assert source is not None, "there is nothing to tell without a source"
        x: Float[Tensor, "sources 1 width"] = self.shown(self.summary(source))[:, None]
        _, vectors = self.through(x, super().first(len(x), None))
        return tuple(vector.repeat_interleave(rows // len(x), 0) for vector in vectors)
