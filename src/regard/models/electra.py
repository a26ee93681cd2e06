"""Detector: which tokens of a text were replaced by a model that fills blanks (ELECTRA, Clark et al. 2020)."""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.build import text_encoder
from regard.models.masked_lm import MaskedLM
from regard.models.parts import input_width
from regard.nn.head import Labels
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["Detector"]


class Detector(nn.Module):
    """The detector, and the small generator that it learns from; both read the same token vectors (3.2).

    A detector that has come without its generator detects, and does not learn.
    """

    def __init__(self, tower: Tower, *, vocabulary: int, generator: float | None) -> None:
        super().__init__()
        self.encoder = text_encoder(tower, vocabulary=vocabulary)
        self.head = Labels(tower.width, 1, hidden="gelu")
        self.generator: MaskedLM | None = None
        if generator is not None:
            self.generator = MaskedLM(smaller(tower, generator), vocabulary=vocabulary)
            self.generator.encoder.inputs.tokens = self.encoder.inputs.tokens
            self.generator.words.output.weight = self.encoder.get_parameter("inputs.tokens.table.weight")

    def forward(
        self, tokens: Int[Tensor, "rows length"], *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length"]:
        """The logit of each token having been replaced."""
        states = self.encoder(self.encoder.embed(tokens, segments=segments), mask=mask)
        return self.head(states).sum(-1)  # type: ignore[no-any-return]  # of one number; FSDP wants no view of it

    def fill(
        self, tokens: Int[Tensor, "rows length"], *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length narrow"]:
        """The generator's states, from which its `words` say what stood at each place."""
        assert self.generator is not None
        return self.generator(tokens, mask=mask, segments=segments)  # type: ignore[no-any-return]


def smaller(tower: Tower, share: float) -> Tower:
    """The generator's tower: as deep as the detector's, narrower by `share`, with equally wide token vectors."""
    embedding = replace(tower.embedding, width=input_width(tower))
    if tower.recurrent is not None:  # no heads to leave out; half of the width is for each way
        return replace(tower, width=2 * max(1, round(tower.width * share / 2)), embedding=embedding)
    heads = max(1, round(tower.heads * share))
    widths = tower.widths_of_heads[:heads]
    hidden = round((tower.ffn_width or 4 * tower.width) * share)
    head_width, head_widths = (None, widths) if tower.head_widths else (widths[0], ())
    return replace(tower, width=sum(widths), heads=heads, kv_heads=None, head_width=head_width,
                   head_widths=head_widths, ffn_width=max(1, hidden), embedding=embedding)
