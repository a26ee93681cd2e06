"""Models by their settings: which encoder, which decoder, and both together."""

from dataclasses import replace

from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.bahdanau import BahdanauDecoder
from regard.models.decoder import Decoder
from regard.models.elmo import ElmoDecoder, ElmoEncoder
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.inputs import PatchInputs, TokenInputs
from regard.models.luong import LuongDecoder
from regard.models.mixed import FeatureInputs, MixedDecoder
from regard.models.recurrent_decoder import RecurrentDecoder
from regard.models.resnet import ResNet
from regard.models.show_and_tell import ShowAndTellDecoder
from regard.models.show_attend_tell import ShowAttendTellDecoder
from regard.models.sutskever import FixedDecoder, FixedEncoder
from regard.settings.schema import Tower

__all__ = ["captioner", "image_encoder", "mixed_decoder", "reads_what_it_writes", "text_decoder", "text_encoder",
           "translator"]


def text_encoder(tower: Tower, *, vocabulary: int) -> Encoder:
    """An encoder of tokens."""
    recurrent = tower.recurrent
    if recurrent is not None and recurrent.direction == "bilm":
        return ElmoEncoder(tower, vocabulary=vocabulary)
    return Encoder(tower, TokenInputs(tower, vocabulary=vocabulary))


def image_encoder(tower: Tower) -> Encoder:
    """An encoder of normalized pixels, (batch, channels, height, width).

    Recurrent blocks read lines: those of a tower are its decoder's.
    """
    tower = replace(tower, recurrent=None)
    if tower.image is not None and tower.image.stem == "resnet":
        return Encoder(tower, ResNet(tower), depth=0)
    return Encoder(tower, PatchInputs(tower))


def translator(tower: Tower, *, sources: int, targets: int) -> EncoderDecoder:
    """An encoder of tokens and the decoder that looks at it. One vocabulary of both may have one table."""
    decoder = text_decoder(tower, vocabulary=targets, memory_width=tower.width)
    if tower.recurrent is not None and tower.recurrent.context == "fixed":
        encoder: Encoder = FixedEncoder(tower, TokenInputs(tower, vocabulary=sources))
    else:
        encoder = text_encoder(tower, vocabulary=sources)
    if tower.tied == "all" and sources == targets:
        encoder.inputs.tokens = decoder.tokens
    return EncoderDecoder(encoder, decoder)


def captioner(tower: Tower, *, targets: int) -> EncoderDecoder:
    """An encoder of images and the decoder that tells what it sees."""
    encoder = image_encoder(tower)
    return EncoderDecoder(encoder, text_decoder(tower, vocabulary=targets, memory_width=encoder.width))


def reads_what_it_writes(tower: Tower) -> bool:
    """True if an encoder with these settings can start from a language model's weights (ELMo)."""
    return tower.recurrent is not None and tower.recurrent.direction == "bilm"


def text_decoder(tower: Tower, *, vocabulary: int, memory_width: int | None = None) -> AutoregressiveDecoder:
    """One that goes on with a text or, where there is a memory, that translates it."""
    if tower.recurrent is None:
        return Decoder(tower, vocabulary=vocabulary, memory_width=memory_width)
    if memory_width is None and reads_what_it_writes(tower):
        return ElmoDecoder(tower, vocabulary=vocabulary)
    if memory_width is None:
        return RecurrentDecoder(tower, vocabulary=vocabulary)
    before = ShowAttendTellDecoder if tower.recurrent.cell == "lstm" else BahdanauDecoder
    vector = FixedDecoder if tower.image is None else ShowAndTellDecoder
    kind = {"fixed": vector, "input": before, "output": LuongDecoder}[tower.recurrent.context]
    return kind(tower, vocabulary=vocabulary, memory_width=memory_width)


def mixed_decoder(tower: Tower, *, vocabulary: int) -> MixedDecoder:
    """A decoder that also reads images. Patches have the vector of their row and column, and a position as tokens."""
    narrow = tower.width - (tower.position_width or 0)
    reads = replace(tower, width=narrow, position_width=None, positions="learned", dropout=0.0)
    is_resnet = tower.image is not None and tower.image.stem == "resnet"
    images = FeatureInputs(reads) if is_resnet else PatchInputs(reads)
    return MixedDecoder(images, Decoder(tower, vocabulary=vocabulary))
