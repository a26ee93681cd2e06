"""Settings of images that do not go together are refused, with the way out."""

import pytest

from regard.settings.errors import UserError
from regard.settings.load import load, sections_of
from regard.settings.presets import PRESETS_BY_KIND
from regard.tasks.traits import refuse_images, refuse_sections

CNN = ("model.image.stem=resnet", "model.head.pool=mean")
IMAGE = ("task=classify", "model.image.size=32", "model.image.patch=4")


@pytest.mark.parametrize(("given", "message"), [
    (["model.window=8"], "model.window=8: has no effect on images; remove it"),
    (["model.embedding.segments=2"], "model.embedding.segments=2: has no effect on images"),
    (["model.width=42", "model.heads=2"], "model.width: sinusoidal positions of rows and columns need a multiple of "
                                          "4, got 42; take 44"),
    (["model.width=36", "model.heads=6", "model.positions=rotary"], "need heads whose width is a multiple of 4, got 6"),
    (["model.image.resize=256"], "model.image.resize=256: only the middle 32 pixels would be left"),
    (["model.image.resize=16"], "model.image.resize=16: is smaller than model.image.size=32"),
    ([*CNN, "model.layer_scale=1"], "model.layer_scale=1.0: is for blocks over the patches of an image"),
    (["model.image.width=64"], "model.image.width=64: has no effect with model.image.stem=patches"),
    (["model.image.stem=convolutions", "model.image.patch=6", "model.image.size=36"], "take 2, 4, 8 or 16"),
    ([*CNN, "model.image.patch=2"], "model.image.patch=2: a resnet's first convolution takes 4, or 1"),
    ([*CNN, "model.image.stages=none"], "model.image.stages: must be at least one number"),
    ([*CNN, "model.image.width=100"], "cannot be halved so often; take model.image.width=96"),
])
def test_a_setting_that_images_cannot_have_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(UserError, match=r"^model\.") as error:
        load(overrides=[*IMAGE, *given])
    assert message in str(error.value)


@pytest.mark.parametrize(("given", "message"), [
    (["model.init=convolution"], "model.init=convolution: is for attention over the patches of an image"),
    (["model.init=mimetic"], "model.init=mimetic: is for attention over the patches of an image"),
    ([*IMAGE, "model.init=convolution"], "model.init=convolution: needs model.positions=relative"),
    ([*IMAGE, *CNN, "model.init=mimetic"], "model.init=mimetic: is for attention over the patches"),
    ([*IMAGE, "model.init=mimetic", "model.kv_heads=2"], "each head needs keys of its own, not model.kv_heads=2"),
    ([*IMAGE, "model.init=mimetic", "model.score=additive"], "not about model.score=additive"),
    ([*IMAGE, "model.init=mimetic", "model.head_width=8"], "as wide as model.width=256, not 64"),
])
def test_a_beginning_that_a_model_cannot_have_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        load(overrides=given)
    assert message in str(error.value)


@pytest.mark.parametrize("given", [
    ["model.init=convolution", "model.positions=relative"], ["model.init=mimetic"],
    ["model.image.class_token=false", "model.head.pool=mean"], ["model.head.pool=learned"],
    ["model.width=48", "model.heads=4", "model.positions=rotary"], ["model.positions=alibi"],
])
def test_what_goes_together_is_taken(given: list[str]) -> None:
    assert load(overrides=[*IMAGE, *given]).model.image is not None


def test_a_resnet_s_batch_is_not_split() -> None:
    with pytest.raises(UserError, match=r"train\.accumulate=2: the norms of a resnet need the whole batch"):
        load(overrides=[*IMAGE, *CNN, "train.accumulate=2"])


def test_a_preset_of_images_is_refused_where_there_is_text() -> None:
    run = load(overrides=["task=mask", "model.preset=vit-small"])
    with pytest.raises(UserError, match=r"model\.preset=vit-small: mask reads text"):
        refuse_images(run)
    assert sections_of(overrides=["model.preset=vit-small"]) == {"model.image"}
    with pytest.raises(UserError, match=r"model\.image: mask reads text; .* remove it, or take a preset of texts"):
        refuse_sections("mask", sections_of(overrides=["model.preset=vit-small"]))
    assert sections_of(overrides=["model.preset=bert-base"]) == set()


@pytest.mark.parametrize("preset", PRESETS_BY_KIND["encoders of images"])
def test_a_preset_of_images_takes_other_sizes(preset: str) -> None:
    patch = 1 if preset.startswith("resnet") else 4
    given = ["task=classify", f"model.preset={preset}", "model.image.size=64", f"model.image.patch={patch}"]
    image = load(overrides=given).model.image
    assert image is not None
    assert (image.size, image.patch) == (64, patch)
