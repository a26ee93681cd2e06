"""Classifier, Tagger: an encoder and the labels of a whole sequence, or of each place in it."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.encoder import Encoder
from regard.nn.head import Labels, Pool
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["Classifier", "Tagger", "label_token_index"]


def label_token_index(tower: Tower) -> int:
    """The index, among a word's tokens, of the one that is labelled: 0, or -1 for a model that only reads forwards."""
    return -1 if tower.recurrent is not None and tower.recurrent.direction == "forward" else 0


class Classifier(nn.Module):
    """A sequence to one vector to its labels (Devlin et al. 2019, figure 4 b; Dosovitskiy et al. 2021, figure 1).

    A class token is the first state, y = LN(z⁰_L); it is not in the mean, nor in a learned pooling.
    """

    def __init__(self, encoder: Encoder, tower: Tower, *, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.pool = Pool(tower.head.pool, encoder.width)
        self.head = Labels(encoder.width, labels, hidden=tower.head.hidden, dropout=tower.dropout)

    def forward(
        self, inputs: Tensor, *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows labels"]:
        return self.head(self.vectors(inputs, mask=mask, segments=segments))  # type: ignore[no-any-return]

    def vectors(
        self, inputs: Tensor, *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows width"]:
        """One for each input, from which its labels are read."""
        states = self.encoder(self.encoder.embed(inputs, segments=segments), mask=mask)
        real = torch.ones_like(states[..., 0], dtype=torch.bool) if mask.keys is None else mask.keys
        return self.pool(*self.counted(states, real))  # type: ignore[no-any-return]

    def counted(
        self, states: Float[Tensor, "rows length width"], real: Bool[Tensor, "rows length"]
    ) -> tuple[Float[Tensor, "rows counted width"], Bool[Tensor, "rows counted"]]:
        """The states that are pooled: without those that are not of the input, but for the first as it is."""
        before = 0 if self.pool.how == "first" else self.encoder.before
        return states[:, before:], real[:, before:]


class Tagger(nn.Module):
    """A label for each token (Devlin et al. 2019, figure 4 d)."""

    def __init__(self, encoder: Encoder, tower: Tower, *, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = Labels(tower.width, labels, hidden=tower.head.hidden, dropout=tower.dropout)

    def forward(
        self, inputs: Tensor, *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length labels"]:
        return self.head(self.encoder(self.encoder.embed(inputs, segments=segments), mask=mask))  # type: ignore[no-any-return]
