"""Traits of classify, and the settings that its runs begin with."""

from collections.abc import Collection
from dataclasses import replace

from regard.settings.schema import Run
from regard.tasks.traits.base import Known, Traits
from regard.tasks.traits.encoders import of_labels, small_encoder, smaller

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    plain = small_encoder("classify")
    plain = replace(plain, model=replace(plain.model, head=replace(plain.model.head, pool="mean")))
    if known.built_in:
        small = smaller(plain, steps=400)
        return replace(small, tokens=replace(small.tokens, lowercase=True))  # the phrase book has no capitals
    # A classifier's loss rises long before its errors do: where it is least, too little has been learnt.
    return of_labels(plain, average=3)


def search(run: Run) -> Collection[str]:
    return ("batch",) if run.data.multi_label else ("best", "batch")


TRAITS = Traits(
    name="classify", code="regard.tasks.classify:Classify", defaults=defaults, built_in="phrasebook",
    encoder_only=True, pools=True, head="sequence-labels", search=search)
