"""Traits of detect, and the settings that its runs begin with."""

from dataclasses import replace

from regard.settings.schema import Run
from regard.tasks.traits.base import Known, Traits
from regard.tasks.traits.encoders import of_passages, small_encoder

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    plain = small_encoder("detect")
    # All that is asked for is hidden (Clark et al. 2020, 3.1).
    plain = replace(plain, masking=replace(plain.masking, mask_share=1.0, random_share=0.0))
    return of_passages(plain) if known.built_in else plain


TRAITS = Traits(
    name="detect", code="regard.tasks.detect:Detect", defaults=defaults, built_in="phrasebook", encoder_only=True,
    reads_each_token=True, head_settings=("pool", "normalize"), head="discriminator")
