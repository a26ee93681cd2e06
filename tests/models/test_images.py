"""Encoders of images."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from regard.generate.text_vectors import vectors
from regard.kernels.quantize import quantize
from regard.models.build import image_encoder, text_encoder
from regard.models.classifier import Classifier
from regard.models.encoder import Encoder
from regard.models.inputs import PatchInputs
from regard.nn.feed_forward import Activation
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.norm import Norm
from regard.settings.presets import PRESETS
from regard.settings.schema import Embedding, Head, Image, Recurrence, Tower

POSITIONS = get_args(get_type_hints(Tower)["positions"])
TOWER = Tower(width=16, depth=2, heads=2, ffn_width=24, positions="learned", dropout=0.0,
              image=Image(size=12, patch=4))


def changed(**image: object) -> Tower:
    assert TOWER.image is not None
    return replace(TOWER, image=replace(TOWER.image, **image))


def ready(model: nn.Module) -> nn.Module:
    initialize(model, seed=0)
    return model.eval()


def encoder(tower: Tower) -> Encoder:
    return ready(image_encoder(tower))


def classifier(tower: Tower, labels: int = 5) -> Classifier:
    return ready(Classifier(image_encoder(tower), tower, labels=labels))


def pixels(rows: int = 2, size: int = 12, channels: int = 3) -> Tensor:
    return torch.randn(rows, channels, size, size)


def moved(images: Tensor, order: Tensor, patch: int = 4) -> Tensor:
    """The same patches at other places, by a loop."""
    side = images.shape[-1] // patch
    found = torch.empty_like(images)
    for place, source in enumerate(order.tolist()):
        (row, column), (old_row, old_column) = divmod(place, side), divmod(source, side)
        found[..., row * patch : (row + 1) * patch, column * patch : (column + 1) * patch] = images[
            ..., old_row * patch : (old_row + 1) * patch, old_column * patch : (old_column + 1) * patch]
    return found


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("class_token", [True, False])
def test_every_patch_gets_a_state(positions: str, class_token: bool) -> None:
    model = encoder(replace(changed(class_token=class_token), positions=positions))
    states = model(model.embed(pixels()))
    assert states.shape == (2, 9 + class_token, 16)
    assert isinstance(model.inputs, PatchInputs)
    assert (model.inputs.grid, model.inputs.before, model.before) == ((3, 3), class_token, class_token)
    assert model.memory(model.embed(pixels())).states.shape == states.shape


@pytest.mark.parametrize("positions", POSITIONS)
def test_only_without_positions_is_an_image_a_set_of_patches(positions: str) -> None:
    model, images, order = encoder(replace(TOWER, positions=positions)), pixels(), torch.randperm(9)
    for name, parameter in model.named_parameters():  # a table of zeros would tell no place
        if name.endswith("table"):
            nn.init.normal_(parameter)
    states, others = model(model.embed(images)), model(model.embed(moved(images, order)))
    told = states[:, [0, *(1 + order).tolist()]]
    assert torch.allclose(others, told, atol=1e-5) == (positions == "none")


@pytest.mark.parametrize("positions", ["sinusoidal", "fourier", "rotary", "relative", "alibi"])
def test_an_image_turned_over_its_diagonal_is_another_image(positions: str) -> None:
    """Rows are told from columns wherever an offset has two numbers; a distance has only one."""
    model, images = encoder(replace(TOWER, positions=positions)), torch.randn(1, 3, 3, 3)
    for name, parameter in model.named_parameters():
        if name.endswith("table"):
            nn.init.normal_(parameter)
    images = images.repeat_interleave(4, 2).repeat_interleave(4, 3)  # patches of one colour
    across = torch.arange(9).view(3, 3).T.flatten()
    states, others = model(model.embed(images)), model(model.embed(images.mT))
    assert torch.allclose(others[:, 1:][:, across], states[:, 1:], atol=1e-5) == (positions == "alibi")


def test_the_vision_transformer_is_the_paper_s_equations() -> None:
    """Dosovitskiy et al. 2021, eq. 1 to 4, written out."""
    model, images = classifier(TOWER), pixels(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    weights = dict(model.encoder.named_parameters())

    def matrix(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    squares = [images[0, :, row : row + 4, column : column + 4].flatten() for row in (0, 4, 8) for column in (0, 4, 8)]
    z = torch.stack([weights["inputs.class_token"], *(matrix(x, "inputs.patches.matrix") for x in squares)])
    z = z + weights["inputs.positions.table"]
    for block in range(2):
        here = f"blocks.{block}"
        q, k, v = matrix(norm(z, f"{here}.self_norm"), f"{here}.self.qkv").split(16, dim=-1)
        heads = [(q[:, part] @ k[:, part].T / 8**0.5).softmax(-1) @ v[:, part] for part in (slice(8), slice(8, 16))]
        z = z + matrix(torch.cat(heads, -1), f"{here}.self.out")
        hidden = matrix(norm(z, f"{here}.feed_forward_norm"), f"{here}.feed_forward.up").relu()
        z = z + matrix(hidden, f"{here}.feed_forward.down")
    y = norm(z, "norm")[0]
    torch.testing.assert_close(model(images)[0], model.head.output(y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("class_token", [True, False])
def test_the_mean_is_that_of_the_patches(class_token: bool) -> None:
    model, images = classifier(replace(changed(class_token=class_token), head=Head(pool="mean"))), pixels()
    states = model.encoder(model.encoder.embed(images))
    torch.testing.assert_close(model(images), model.head(states[:, int(class_token):].mean(1)))


def test_a_learned_query_weighs_the_patches() -> None:
    """Sequence pooling (Hassani et al. 2021, eq. 3): softmax(g(x))ᵀ x."""
    model, images = classifier(replace(TOWER, head=Head(pool="learned"))), pixels()
    assert model.pool.query is not None
    nn.init.normal_(model.pool.query)
    states = model.encoder(model.encoder.embed(images))[:, 1:]
    for row, logits in zip(states, model(images), strict=True):
        exp = [(state @ model.pool.query).exp() for state in row]
        mean = sum(weight * state for weight, state in zip(exp, row, strict=True)) / sum(exp)
        torch.testing.assert_close(logits, model.head(mean), rtol=1e-4, atol=1e-5)


def test_a_learned_query_gives_nothing_to_padding() -> None:
    model = classifier(replace(TOWER, head=Head(pool="learned")))
    states, real = torch.randn(2, 6, 16), torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    torch.testing.assert_close(model.pool(states, real)[0], model.pool(states[:1, :4], real[:1, :4])[0])


def test_clip_s_sum_of_patches_and_positions_has_a_norm_and_no_bias() -> None:
    model = encoder(replace(TOWER, embedding=Embedding(scaled=False, norm=True)))
    assert isinstance(model.inputs, PatchInputs)
    assert isinstance(model.inputs.norm, Norm)
    assert model.inputs.patches.matrix.bias is None
    torch.testing.assert_close(model.embed(pixels()).mean(-1), torch.zeros(2, 10), rtol=0, atol=1e-5)


def test_grey_images_have_one_channel() -> None:
    model = encoder(changed(grey=True))
    assert model(model.embed(pixels(channels=1))).shape == (2, 10, 16)


def test_positions_may_stand_beside_the_patch_s_vector() -> None:
    for positions in ("learned", "sinusoidal"):
        model = encoder(replace(TOWER, positions=positions, position_width=4))
        assert model(model.embed(pixels())).shape == (2, 10, 16)


def test_a_recurrent_decoder_s_encoder_of_images_has_blocks_of_attention() -> None:
    model = encoder(replace(TOWER, recurrent=Recurrence(cell="lstm")))
    assert model(model.embed(pixels())).shape == (2, 10, 16)
    assert not model.ordered


CNN = replace(TOWER, width=16, head=Head(pool="mean"),
              image=Image(size=12, stem="resnet", patch=1, stages=(1, 2), class_token=False))


def test_patches_may_be_made_by_convolutions() -> None:
    model = encoder(changed(stem="convolutions", class_token=False))
    states = model(model.embed(pixels()))
    assert states.shape == (2, 9, 16)
    other = pixels()[:1].repeat(2, 1, 1, 1)
    other[1, :, 4, 4] += 1  # the first pixel of the patch in the middle
    first, second = model.inputs.patches(other)
    assert (first - second).abs().sum(-1).count_nonzero() > 1  # is seen by its neighbours too


@pytest.mark.parametrize(("size", "patch", "stages", "side"), [
    (12, 1, (1, 2), 6), (12, 4, (1,), 3), (9, 1, (1, 1, 1), 3), (37, 4, (1, 1), 5), (64, 4, (1, 1, 1, 1), 2)])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_resnet_gives_a_state_for_each_cell_of_its_last_grid(
        size: int, patch: int, stages: tuple[int, ...], side: int, bottleneck: bool) -> None:
    tower = replace(CNN, width=32, image=Image(
        size=size, stem="resnet", patch=patch, stages=stages, bottleneck=bottleneck))
    model, images = encoder(tower), pixels(size=size)
    assert model(model.embed(images)).shape == (2, side * side, 32)
    assert (model.inputs.grid, model.before, len(model.blocks), model.width) == ((side, side), 0, 0, 32)
    assert not model.ordered


def test_a_resnet_may_be_wider_than_its_decoder() -> None:
    assert CNN.image is not None
    model = encoder(replace(CNN, image=replace(CNN.image, width=24)))
    assert model.memory(model.embed(pixels())).states.shape == (2, 36, 24)


def test_labels_are_read_from_the_mean_of_a_resnet_s_cells() -> None:
    model, images = classifier(CNN), pixels()
    torch.testing.assert_close(model(images), model.head.output(model.encoder.embed(images).mean(1)))
    torch.testing.assert_close(model(images)[:1], model(images[:1]))


def parameters(preset: str, labels: int) -> int:
    tower = PRESETS[preset]()
    with torch.device("meta"):
        return sum(p.numel() for p in Classifier(image_encoder(tower), tower, labels=labels).parameters())


@pytest.mark.parametrize(("preset", "published"), [
    ("vit-tiny", 5_717_416), ("vit-small", 22_050_664), ("vit-base", 86_567_656), ("vit-large", 304_326_632),
    ("vit-huge", 632_199_400), ("resnet-18", 11_689_512), ("resnet-50", 25_557_032)])
def test_a_preset_has_as_many_parameters_as_the_published_model(preset: str, published: int) -> None:
    assert parameters(preset, 1000) == published


def test_the_compact_transformer_has_the_published_number_of_parameters() -> None:
    """Hassani et al. 2021, as published: no biases of queries, keys and values, and one in the pooling."""
    assert parameters("cct-7", 10) == 3_760_139 + 7 * 3 * 256 - 1


def test_a_layer_s_scale_multiplies_the_output_of_each_part_of_a_block() -> None:
    """x + λ₁ ∘ attention(norm(x)), then x + λ₂ ∘ feed-forward(norm(x)) (Touvron et al. 2021b, eq. 4)."""
    model = encoder(replace(TOWER, layer_scale=1e-5))
    block = model.blocks[0]
    assert (block.self_scale.factors == 1e-5).all()
    assert (block.feed_forward_scale.factors == 1e-5).all()
    first, second = (nn.init.normal_(scale.factors) for scale in (block.self_scale, block.feed_forward_scale))
    x = torch.randn(2, 10, 16)
    middle = x + first * block.self(block.self_norm(x), mask=Mask())
    expected = middle + second * block.feed_forward(block.feed_forward_norm(middle))
    torch.testing.assert_close(block(x, mask=Mask()), expected)


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_a_scale_of_1_is_none(norm_place: str) -> None:
    plain, scaled = (encoder(replace(TOWER, norm_place=norm_place, layer_scale=scale)) for scale in (None, 1.0))
    plain.load_state_dict(scaled.state_dict(), strict=False)
    torch.testing.assert_close(plain(x := torch.randn(2, 10, 16)), scaled(x))


def test_quick_gelu_is_a_sigmoid_near_gelu() -> None:
    x = torch.linspace(-6, 6, 99)
    torch.testing.assert_close(Activation("quick-gelu")(x), x / (1 + (-1.702 * x).exp()))
    assert (Activation("quick-gelu")(x) - nn.functional.gelu(x)).abs().max() < 0.021


def test_the_vectors_of_texts_are_pooled_by_the_model_s_own_query() -> None:
    tower = Tower(width=16, depth=1, heads=2, head=Head(pool="learned"))
    model = ready(Classifier(text_encoder(tower, vocabulary=20), tower, labels=3))
    rows = [[5, 6, 7], [8, 9]]
    found = vectors(model, rows, pad=0, pool="learned")
    for vector, row in zip(found, rows, strict=True):
        states = model.encoder(model.encoder.embed(torch.tensor([row])))
        torch.testing.assert_close(torch.from_numpy(vector), model.pool(states, torch.ones(states.shape[:2]) > 0)[0])


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("more", [{}, {"class_token": False}, {"stem": "convolutions", "class_token": False},
                                  {"stem": "resnet", "patch": 1, "stages": (1, 1)}])
def test_an_encoder_reads_pixels_in_the_precision_of_its_weights(more: dict[str, object], narrow: bool) -> None:
    model, seen = encoder(replace(changed(**more), positions="none")), pixels()
    exact = model(model.embed(seen))
    if narrow:
        quantize(model, "int8")
    model.to(torch.bfloat16)
    states = model(model.embed(seen))
    assert states.dtype == torch.bfloat16
    assert (states.float() - exact).abs().mean() < 0.1 * exact.abs().mean()
