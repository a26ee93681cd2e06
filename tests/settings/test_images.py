"""Settings of images that do not go together are refused, with the way out."""

import pytest

from regard.settings.errors import UserError
from regard.settings.load import load

IMAGE = ("task=classify", "model.image.size=32", "model.image.patch=4")


@pytest.mark.parametrize(("given", "message"), [
    (["model.window=8"], "model.window=8: has no effect on images; remove it"),
    (["model.embedding.segments=2"], "model.embedding.segments=2: has no effect on images"),
    (["model.width=42", "model.heads=2"], "model.width: sinusoidal positions of rows and columns need a multiple of "
                                          "4, got 42; take 44"),
    (["model.width=36", "model.heads=6", "model.positions=rotary"], "need heads whose width is a multiple of 4, got 6"),
    (["model.image.class_token=false"], "model.head.pool=first: reads the class token"),
])
def test_a_setting_that_images_cannot_have_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(UserError, match=r"^model\.") as error:
        load(overrides=[*IMAGE, *given])
    assert message in str(error.value)


@pytest.mark.parametrize("given", [
    ["model.image.class_token=false", "model.head.pool=mean"], ["model.head.pool=learned"],
    ["model.width=48", "model.heads=4", "model.positions=rotary"], ["model.positions=alibi"],
])
def test_what_goes_together_is_taken(given: list[str]) -> None:
    assert load(overrides=[*IMAGE, *given]).model.image is not None


def test_only_labels_can_be_learned_by_a_pooling() -> None:
    assert load(overrides=["task=classify", "model.head.pool=learned"]).model.head.pool == "learned"
    with pytest.raises(UserError, match=r"model\.head\.pool=learned: mask has no labels to learn it by"):
        load(overrides=["task=mask", "model.head.pool=learned"])
