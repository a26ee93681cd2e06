"""MixedDecoder: images and text in one sequence."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.decoder import Decoder
from regard.models.decoder_state import DecoderState
from regard.models.inputs import Inputs, as_weights
from regard.models.parts import grid_positions
from regard.models.resnet import ResNet
from regard.nn.linear import Linear
from regard.nn.mask import Mask, whole
from regard.settings.schema import Tower

__all__ = ["FeatureInputs", "MixedDecoder", "MixedPrompt"]


@dataclass(frozen=True)
class MixedPrompt:
    """Vectors of tokens and patches, and the number of the image that each place belongs to, from 1 on (0: text)."""

    states: Float[Tensor, "rows length features"]
    spans: Int[Tensor, "rows length"]


class FeatureInputs(Inputs):
    """The last grid of a residual network as places of a sequence: a matrix, and the vector of its row and column."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.features, self.width = ResNet(tower), tower.width
        self.layout = self.features.layout
        self.matrix = Linear(self.features.width, tower.width)
        self.positions = grid_positions(tower, self.features.layout)

    def forward(
        self, pixels: Float[Tensor, "batch channels size size"],
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch places width"]:
        x = self.matrix(self.features(pixels))
        here = whole(x.shape[1], x.device) if positions is None else positions
        return self.positions.embed(x, here)


class MixedDecoder(nn.Module):
    """A decoder whose sequence holds the patches of images among its tokens, anywhere and any number of them.

    A patch is one matrix away from its pixels (Bavishi et al. 2023, "Fuyu"), with the vector of its row and column. The
    patches of an image see each other both ways, as in a prefix language model (Raffel et al. 2020, 3.2.1); a text sees
    what comes before it.
    """

    def __init__(self, images: Inputs, decoder: Decoder) -> None:
        super().__init__()
        self.images, self.decoder = images, decoder

    @property
    def places(self) -> int:
        """How many places of the sequence an image takes."""
        return self.images.before + self.images.grid[0] * self.images.grid[1]

    def mix(
        self, tokens: Int[Tensor, "rows length"], spans: Int[Tensor, "rows length"],
        pixels: Float[Tensor, "images channels size size"],
    ) -> MixedPrompt:
        """The images take the places that the spans give them, row after row; the tokens there are not read."""
        x = self.decoder.tokens(tokens)
        patches = self.images(as_weights(pixels, self)).to(x)
        return MixedPrompt(x.masked_scatter((spans > 0)[..., None], patches), spans)

    def mask(self, spans: Int[Tensor, "rows length"]) -> Mask:
        """A place sees those before it, and the other places of its own image."""
        return Mask(causal=True, spans=spans)

    def forward(
        self, tokens: Int[Tensor, "rows length"], spans: Int[Tensor, "rows length"],
        pixels: Float[Tensor, "images channels size size"],
    ) -> Float[Tensor, "rows length width"]:
        """The state after each place. Padding comes last, where no other place sees it."""
        mixed = self.mix(tokens, spans, pixels)
        return self.decoder(self.decoder.place(mixed.states), mask=self.mask(mixed.spans))  # type: ignore[no-any-return]

    def logits(self, states: Float[Tensor, "rows length width"]) -> Float[Tensor, "rows length vocabulary"]:
        return self.decoder.logits(states)

    def begin(self, rows: int, memory: MixedPrompt | None = None, *, capacity: int | None = None) -> DecoderState:
        """Ready for the first token after the prompts, which are of one length and read at once."""
        length = 0 if memory is None else memory.states.shape[1]
        state = self.decoder.begin(rows, capacity=None if capacity is None else capacity + length)
        if memory is not None:
            self.decoder.read(memory.states, state, mask=self.mask(memory.spans))
            state.before = length
        return state

    def step(self, tokens: Int[Tensor, "rows n"], state: DecoderState) -> Float[Tensor, "rows n width"]:
        """The states of the next n tokens of each row, which are text."""
        return self.decoder.step(tokens, state)

