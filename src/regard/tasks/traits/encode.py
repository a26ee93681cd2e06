"""Traits of encode: published encoders come as runs of it, and it is not trained."""

from regard.settings.schema import Run
from regard.tasks.traits.base import Known, Traits
from regard.tasks.traits.encoders import small_encoder

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    return small_encoder("encode")


TRAITS = Traits(
    name="encode", code="regard.tasks.encode:Encode", defaults=defaults, is_trained=False, encoder_only=True,
    pools=True, head="backbone")
