"""MaskedLM: an encoder that says which token stood at each place."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.build import text_encoder
from regard.models.parts import input_width
from regard.nn.head import Labels, TokenLogits
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["MaskedLM"]


class MaskedLM(nn.Module):
    """BERT as it is pretrained (Devlin et al. 2019, 3.1); with `sentences` it also says whether two belong together."""

    def __init__(self, tower: Tower, *, vocabulary: int, sentences: bool = False) -> None:
        super().__init__()
        self.encoder = text_encoder(tower, vocabulary=vocabulary)
        self.words = TokenLogits(tower.width, input_width(tower), vocabulary, epsilon=tower.norm_epsilon)
        if tower.tied != "none":
            self.words.output.weight = self.encoder.get_parameter("inputs.tokens.table.weight")
        self.head = Labels(tower.width, 2, hidden="tanh", dropout=tower.dropout) if sentences else None

    def forward(
        self, tokens: Int[Tensor, "rows length"], *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length width"]:
        return self.encoder(self.encoder.embed(tokens, segments=segments), mask=mask)  # type: ignore[no-any-return]

    def logits(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        return self.words(states)  # type: ignore[no-any-return]
