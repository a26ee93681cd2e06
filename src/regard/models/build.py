"""Which encoder and which decoder a model has, by the settings."""

from regard.models.bahdanau import BahdanauDecoder
from regard.models.decoder import Decoder
from regard.models.elmo import ElmoDecoder, ElmoEncoder
from regard.models.encoder import Encoder
from regard.models.luong import LuongDecoder
from regard.models.rnn import RecurrentDecoder
from regard.models.sutskever import FixedDecoder
from regard.models.writes import Writes
from regard.settings.schema import Tower

__all__ = ["decoder", "encoder", "reads_what_it_writes"]


def encoder(tower: Tower, *, vocabulary: int) -> Encoder:
    return (ElmoEncoder if reads_what_it_writes(tower) else Encoder)(tower, vocabulary=vocabulary)


def reads_what_it_writes(tower: Tower) -> bool:
    """Whether a language model of this tower has read texts as an encoder of it does, which may then go on from it."""
    return tower.recurrent is not None and tower.recurrent.direction == "bilm"


def decoder(tower: Tower, *, vocabulary: int, memory_width: int | None = None) -> Writes:
    """One that goes on with a text or, where there is a memory, that translates it."""
    if tower.recurrent is None:
        return Decoder(tower, vocabulary=vocabulary, memory_width=memory_width)
    if memory_width is None and reads_what_it_writes(tower):
        return ElmoDecoder(tower, vocabulary=vocabulary)
    if memory_width is None:
        return RecurrentDecoder(tower, vocabulary=vocabulary)
    kind = {"fixed": FixedDecoder, "input": BahdanauDecoder, "output": LuongDecoder}[tower.recurrent.context]
    return kind(tower, vocabulary=vocabulary, memory_width=memory_width)
