"""Traits of classify, and the settings that its runs begin with."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from regard.settings.schema import Run, Tower
from regard.tasks.traits import images
from regard.tasks.traits.base import IMAGE_SHIFTS, OF_IMAGES, OF_TEXT, TEXT_BATCH, TEXT_SHIFTS, Known, Traits
from regard.tasks.traits.encoders import of_labels, small_encoder, smaller

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    if images.reads_images(known):
        return images.small_vision("classify", known)
    plain = small_encoder("classify")
    plain = replace(plain, model=replace(plain.model, head=replace(plain.model.head, pool="mean")))
    if known.built_in:
        small = smaller(plain, steps=400)
        return replace(small, tokens=replace(small.tokens, lowercase=True))  # the phrase book has no capitals
    # A classifier's loss rises long before its errors do: where it is least, too little has been learnt.
    return of_labels(plain, average=3)


def search(run: Run) -> Collection[str]:
    return ("batch",) if run.data.multi_label else ("best", "batch")


def unread(run: Run) -> Mapping[str, str]:
    return OF_IMAGES if run.model.image is None else OF_TEXT


def shifts(run: Run) -> Collection[str]:
    return TEXT_SHIFTS if run.model.image is None else IMAGE_SHIFTS


def tuning_batch(model: Tower) -> int:
    return TEXT_BATCH if model.image is None else images.tuning_batch(model)


TRAITS = Traits(
    name="classify", code="regard.tasks.classify:Classify", defaults=defaults, built_in="phrasebook",
    built_in_images="scenes", encoder_only=True, pools=True, head="sequence-labels", search=search, reads_images=True,
    unread=unread, shifts=shifts, tuning_batch=tuning_batch)
