"""TokenInputs: token ids become the vectors that the first block of an encoder reads."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.tower import input_positions, input_width, tokens
from regard.nn.dropout import Dropout
from regard.nn.embed import Segments
from regard.nn.mask import whole
from regard.nn.norm import Norm
from regard.settings.schema import Tower

__all__ = ["TokenInputs"]


class TokenInputs(nn.Module):
    """The sum of a token's vector and its position's (Vaswani et al. 2017, 3.4 and 3.5).

    BERT's adds a vector for each segment, and a norm of the sum (Devlin et al. 2019, figure 2).
    """

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        super().__init__()
        width = input_width(tower)
        self.tokens = tokens(tower, vocabulary)
        self.positions = input_positions(tower)
        self.segments = Segments(tower.embedding.segments, width) if tower.embedding.segments else None
        self.norm = nn.Identity() if not tower.embedding.norm else Norm(
            width, kind=tower.norm, epsilon=tower.norm_epsilon, bias=tower.bias)
        self.dropout = Dropout(tower.dropout)
        self.widen = nn.Identity() if tower.embedding.width is None else nn.Linear(width, tower.width)

    def forward(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        here = whole(tokens.shape[1], tokens.device) if positions is None else positions
        x = self.positions.embed(self.tokens(tokens), here)
        if self.segments is not None:
            x = self.segments(x, segments)
        return self.widen(self.dropout(self.norm(x)))  # type: ignore[no-any-return]
