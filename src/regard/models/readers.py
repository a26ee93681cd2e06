"""Which encoder reads, by the settings."""

from regard.models.elmo import ElmoEncoder
from regard.models.encoder import Encoder
from regard.settings.schema import Tower

__all__ = ["encoder", "reads_what_it_writes"]


def encoder(tower: Tower, *, vocabulary: int) -> Encoder:
    return (ElmoEncoder if tower.ways == "apart" else Encoder)(tower, vocabulary=vocabulary)


def reads_what_it_writes(tower: Tower) -> bool:
    """Whether a language model of this tower has read texts as an encoder of it does, which may then go on from it."""
    return tower.ways == "apart"
