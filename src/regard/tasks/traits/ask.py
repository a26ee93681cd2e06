"""Traits of ask, and the settings that its runs begin with."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from regard.settings.schema import Augment, Data, Image, Run, Tokens, Tower, Train
from regard.tasks.traits import images, translate
from regard.tasks.traits.base import IMAGE_SHIFTS, Known, Traits

__all__ = ["TRAITS"]

BUILT_IN = 20_000  # scenes
LONGEST, BUILT_IN_LONGEST = 64, 24  # tokens of the questions about an image and their answers


def defaults(known: Known) -> Run:
    """A decoder of patches and text, small enough for two cores of a CPU."""
    image = Image(size=64, patch=4, class_token=False, stem="resnet", stages=(1, 1, 1), mean=(0.8,), std=(0.25,))
    model = Tower(image=image, width=128, depth=3, heads=4, activation="gelu", positions="learned", dropout=0.0)
    longest = BUILT_IN_LONGEST if known.built_in else LONGEST
    train = Train(steps=3_000, batch_tokens=64 * (image.places + longest), learning_rate=2e-3, warmup=100,
                  schedule="stable-decay", decay=0.4, weight_decay=0.05, label_smoothing=0.0)
    plain = Run(task="ask", data=Data(max_tokens=longest), model=model, train=train)
    if not known.built_in:
        return replace(plain, model=replace(plain.model, image=replace(image, mean=(0.5,), std=(0.5,)), dropout=0.1),
                       tokens=Tokens(lowercase=True), train=replace(train, augment=Augment(crop=4)))
    return replace(plain, data=replace(plain.data, built_in_size=BUILT_IN), tokens=Tokens(kind="words"))


def unread(run: Run) -> Mapping[str, str]:
    mixed = "mixes labels, and answers cannot be mixed"
    return {"train.augment.mixup": mixed, "train.augment.cutmix": mixed,
            **dict.fromkeys(("data.documents", "data.multi_label", "masking.", "tokens.joint"),
                            "has no effect on questions")}


def shifts(run: Run) -> Collection[str]:
    return IMAGE_SHIFTS


TRAITS = Traits(
    name="ask", code="regard.tasks.ask:Ask", defaults=defaults, built_in="scenes", search=translate.search,
    why_idle=translate.why_idle, reads_images=True, unread=unread, shifts=shifts, tuning_batch=images.tuning_batch)
