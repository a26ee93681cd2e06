"""Traits of caption, and the settings that its runs begin with."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from regard.settings.presets import captioner
from regard.settings.schema import Augment, Data, Run, Tokens, Train
from regard.tasks.traits import images, translate
from regard.tasks.traits.base import IMAGE_SHIFTS, Known, Traits

__all__ = ["TRAITS"]

BUILT_IN = 30_000  # scenes
LONGEST = 48  # tokens of a caption


def defaults(known: Known) -> Run:
    """A transformer that looks at the features of a small residual network, for two cores of a CPU."""
    model = replace(captioner(), preset=None, heads=1, dropout=0.1)
    # One length for all: in batches of short captions, batch norms would see other images than in those of long ones.
    train = Train(steps=4_000, batch_tokens=64 * 80, length_buckets=1, learning_rate=2e-3, schedule="cosine",
                  warmup=100, label_smoothing=0.0)
    plain = Run(task="caption", data=Data(max_tokens=LONGEST), model=model, train=train)
    if known.built_in:
        return replace(plain, data=replace(plain.data, built_in_size=BUILT_IN),
                       tokens=Tokens(kind="words", vocabulary=64))
    return replace(plain, model=replace(model, heads=4), tokens=Tokens(lowercase=True),
                   train=replace(train, label_smoothing=0.1, augment=Augment(crop=4)))


def unread(run: Run) -> Mapping[str, str]:
    mixed = "mixes labels, and captions cannot be mixed"
    return {"train.augment.mixup": mixed, "train.augment.cutmix": mixed,
            **dict.fromkeys(("data.documents", "masking.", "tokens.joint"), "has no effect on captions")}


def shifts(run: Run) -> Collection[str]:
    return IMAGE_SHIFTS


TRAITS = Traits(
    name="caption", code="regard.tasks.caption:Caption", defaults=defaults, built_in="scenes",
    search=translate.search, why_idle=translate.why_idle, reads_images=True, unread=unread, shifts=shifts,
    tuning_batch=images.tuning_batch)
