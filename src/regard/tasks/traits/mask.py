"""Traits of mask, and the settings that its runs begin with."""

from dataclasses import replace

from regard.settings.schema import Run
from regard.tasks.traits.base import Known, Traits, only
from regard.tasks.traits.encoders import of_passages, small_encoder

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    plain = small_encoder("mask")
    plain = replace(plain, search=replace(plain.search, best=5))  # for each blank
    return of_passages(plain) if known.built_in else plain


TRAITS = Traits(
    name="mask", code="regard.tasks.mask:Fill", defaults=defaults, built_in="phrasebook", encoder_only=True,
    head_settings=("pool", "normalize"), head="masked-lm", search=only("best", "batch"))
