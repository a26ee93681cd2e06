"""The settings that runs on images begin with."""

from dataclasses import replace
from statistics import median

from regard.data.images.quick_look import are_images
from regard.settings.schema import Augment, Data, Head, Image, Run, Tower, Train
from regard.tasks.traits.base import Known

__all__ = ["reads_images", "small_vision", "tuning_batch"]

SMALLEST, LARGEST = 16, 64  # heights and widths that a CPU learns from in minutes
GRID = 8  # patches in a row
BATCH = 64  # images
BUILT_IN = 10_000  # images, enough to learn from in minutes


def reads_images(known: Known) -> bool:
    return "model.image" in known.sections or are_images(known.paths)


def small_vision(task: str, known: Known) -> Run:
    """A small vision transformer (Dosovitskiy et al. 2021), for a few thousand images and two cores of a CPU."""
    image = _fitting(known)
    model = Tower(image=image, width=128, depth=4, heads=4, activation="gelu", positions="rotary", dropout=0.0,
                  head=Head(pool="first"))
    # A photograph may be seen in a mirror; a grey image may be a digit, which may not, and its ground is often plain,
    # so the border of a shifted one would be a mark.
    augment = Augment() if image.grey else Augment(flip=True, crop=image.size // (2 * GRID))
    train = Train(
        steps=1_500, batch_tokens=BATCH * image.places, learning_rate=1e-3, schedule="cosine", warmup=100,
        weight_decay=0.05, beta2=0.999, epsilon=1e-8, augment=augment)
    plain = Run(task=task, model=model, train=train)
    return replace(plain, data=Data(built_in_size=BUILT_IN)) if known.built_in else plain


def _fitting(known: Known) -> Image:
    """The size of the images themselves, if they are small, and grey if they all are."""
    from regard.data.images.sizes import some_sizes  # numpy and pillow, which other runs do not need

    seen = some_sizes(known.paths)
    typical = median(min(each.width, each.height) for each in seen) if seen else LARGEST / 2
    patch = round(min(LARGEST, max(SMALLEST, typical)) / GRID)
    size = patch * max(1, round(min(LARGEST, max(SMALLEST, typical)) / patch))
    is_grey = bool(seen) and all(each.is_grey for each in seen)
    return Image(size=size, grey=is_grey, patch=patch)


def tuning_batch(model: Tower) -> int:
    """Places of a batch for a run that starts from a trained model."""
    assert model.image is not None
    return BATCH // 2 * model.image.places
