"""The description of a model that decides which tensors it has: its tower, its head and its vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from regard.convert.keys import canonical
from regard.models.build import image_encoder, text_encoder
from regard.models.classifier import Classifier, Tagger
from regard.models.decoder import Decoder
from regard.models.electra import Detector
from regard.models.encoder_only import EncoderOnly
from regard.models.masked_lm import MaskedLM
from regard.settings.schema import Run, Tower
from regard.tasks.traits import TASKS, traits_of

__all__ = ["ModelSpec"]


OF_IMAGES = {"image-labels": "sequence-labels", "image-backbone": "backbone"}
"""The same heads over an encoder of images, and over one of texts."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A tower, the kind of head on it, and the sizes that are known only with the data."""

    tower: Tower
    vocabulary: int = 0
    """Tokens; 0 for a model that reads images."""
    kind: str = "causal-lm"
    """Its head; `sentences` is `masked-lm` that also says whether two sentences belong together."""
    labels: int = 0
    pad: int = 0
    """The id of padding: some families count their positions from it."""
    generator: float | None = None
    """Of a discriminator: how narrow the model is that fills the blanks; absent: there is none."""

    @classmethod
    def of(cls, run: Run, sizes: Mapping[str, int], *, pad: int) -> "ModelSpec":
        head = traits_of(run.task).head or "none"
        kind = "sentences" if head == "masked-lm" and run.masking.next_sentence else head
        if run.model.image is not None:
            kind = {text: images for images, text in OF_IMAGES.items()}.get(head, "none")
        return cls(tower=run.model, vocabulary=sizes.get("vocabulary", 0), kind=kind, labels=sizes.get("labels", 0),
                   pad=pad, generator=run.masking.generator if kind == "discriminator" else None)

    @property
    def task(self) -> str:
        """The task of a run of such a model."""
        head = "masked-lm" if self.kind == "sentences" else OF_IMAGES.get(self.kind, self.kind)
        return next(name for name, traits in TASKS.items() if traits.head == head)

    @property
    def canonical(self) -> Tower:
        """The canonical tower: equal for all settings that build the same tensors."""
        return canonical(self.tower if self.kind == "causal-lm" else replace(self.tower, decoder_depth=None))

    def model(self) -> nn.Module:
        """Such a model, not yet initialised."""
        tower, vocabulary = self.tower, self.vocabulary
        match self.kind:
            case "backbone" | "image-backbone":
                return EncoderOnly(tower, vocabulary=vocabulary)
            case "masked-lm" | "sentences":
                return MaskedLM(tower, vocabulary=vocabulary, sentences=self.kind == "sentences")
            case "sequence-labels":
                return Classifier(text_encoder(tower, vocabulary=vocabulary), tower, labels=self.labels)
            case "image-labels":
                return Classifier(image_encoder(tower), tower, labels=self.labels)
            case "token-labels":
                return Tagger(text_encoder(tower, vocabulary=vocabulary), tower, labels=self.labels)
            case "discriminator":
                return Detector(tower, vocabulary=vocabulary, generator=self.generator)
            case _:
                return Decoder(tower, vocabulary=vocabulary)
