"""Traits of tag, and the settings that its runs begin with."""

from dataclasses import replace

from regard.settings.schema import Head, Run
from regard.tasks.traits.base import Known, Traits, only
from regard.tasks.traits.encoders import of_labels, small_encoder, smaller

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    plain = small_encoder("tag")
    plain = replace(plain, model=replace(plain.model, head=Head()))
    return smaller(plain, steps=250) if known.built_in else of_labels(plain)


TRAITS = Traits(
    name="tag", code="regard.tasks.tag:Tag", defaults=defaults, built_in="phrasebook", encoder_only=True,
    reads_each_token=True, head="token-labels", search=only("best", "batch"))
