"""EncoderOnly: an encoder with nothing on it."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.build import image_encoder, text_encoder
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["EncoderOnly"]


class EncoderOnly(nn.Module):
    """Tokens or pixels to states, as a published body comes.

    Its `head` is a hidden layer without the output that belongs to it, such as BERT's "pooler": nothing reads it here,
    but a classifier that starts from this model does.
    """

    def __init__(self, tower: Tower, *, vocabulary: int) -> None:
        super().__init__()
        self.encoder = image_encoder(tower) if tower.image is not None else text_encoder(tower, vocabulary=vocabulary)
        hidden = None if tower.head.hidden == "none" else nn.Linear(tower.width, tower.width)
        self.head = None if hidden is None else nn.ModuleDict({"hidden": hidden})

    def forward(
        self, inputs: Tensor, *, mask: Mask = Mask(),
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length width"]:
        return self.encoder(self.encoder.embed(inputs, segments=segments), mask=mask)  # type: ignore[no-any-return]
