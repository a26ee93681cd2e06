"""Self-attention that begins as something else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models.build import image_encoder
from regard.nn.attention import Attention
from regard.nn.attention_init import NEIGHBOURS, convolve, mimic
from regard.nn.grid import GridRelativeBias, PatchGrid
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.schema import Image, Tower

TOWER = Tower(width=32, depth=2, heads=4, positions="relative", dropout=0.0, image=Image(size=20, patch=4))


def nine_heads(grid: PatchGrid, channels: int) -> Attention:
    attention = Attention(channels, heads=9, head_widths=(2,) * 9, value_widths=(channels,) * 9,
                          positions=GridRelativeBias(grid, 9))
    initialize(attention, seed=0)
    return attention.eval()


def padded_with_zeros(x: Tensor, kernel: Tensor) -> Tensor:
    return F.conv2d(x, kernel, padding=1)


def padded_with_neighbours(x: Tensor, kernel: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel)


@pytest.mark.parametrize(("before", "convolution"), [(1, padded_with_zeros), (0, padded_with_neighbours)])
def test_nine_heads_set_by_hand_are_a_convolution(before: int, convolution: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Without a class token the picture goes on beyond its border; with one, whose vector is 0, there is nothing."""
    picture, kernel = torch.randn(2, 6, 4, 5), torch.randn(6, 6, 3, 3)
    attention = nine_heads(PatchGrid(4, 5, before), 6)
    convolve(attention, kernel)
    x = torch.cat([torch.zeros(2, before, 6), picture.flatten(2).mT], dim=1)
    found = attention(x, mask=Mask())[:, before:].mT.unflatten(-1, (4, 5))
    torch.testing.assert_close(found, convolution(picture, kernel), rtol=1e-4, atol=1e-5)


def test_each_of_the_nine_looks_at_one_neighbour_only() -> None:
    grid = PatchGrid(3, 4)
    attention = nine_heads(grid, 2)
    convolve(attention, torch.randn(2, 2, 3, 3))
    q, places = torch.zeros(1, 9, 12, 2), torch.arange(12)[None]
    weights = attention.attend.weights(q, q, mask=Mask(), bias=attention.positions.bias())[0]
    for head, (down, right) in enumerate(NEIGHBOURS):
        for place in places[0].tolist():
            row = min(max(place // 4 + down, 0), 2)
            column = min(max(place % 4 + right, 0), 3)
            assert weights[head, place, 4 * row + column] == 1


def test_a_convolution_of_other_channels_is_refused() -> None:
    attention = Attention(4, heads=9, head_widths=(2,) * 9, positions=GridRelativeBias(PatchGrid(2, 2), 9))
    with pytest.raises(ValueError, match="value_widths: must be nine times 4"):
        convolve(attention, torch.randn(4, 4, 3, 3))


def attentions(**chosen: Any) -> list[Attention]:
    model = image_encoder(replace(TOWER, **chosen))
    initialize(model, seed=0, attention=chosen.get("init", "plain"))
    return [part for part in model.modules() if isinstance(part, Attention)]


def test_a_model_that_begins_as_a_convolution_looks_at_neighbours() -> None:
    """The mean weight of each head is the largest at its own neighbour, and eight heads have eight of them."""
    x, middle, found = torch.randn(20, 26, 32), 1 + 12, set()
    for attention in attentions(init="convolution"):
        q, k, _ = attention.projected(attention.qkv(x), torch.arange(26)[None])
        weights = attention.attend.weights(q, k, mask=Mask(), bias=attention.positions.bias())
        for head in weights[:, :, middle].mean(0):
            place = int(head.argmax()) - 1
            found.add((place // 5 - 2, place % 5 - 2))
    assert len(found) == 8
    assert found < set(NEIGHBOURS)


def test_mimetic_attention_looks_at_what_is_alike_and_subtracts_it() -> None:
    for attention in attentions(positions="none", init="mimetic"):
        q, k, v = (part.T for part in attention.qkv.weight.split(32))
        values = v @ attention.out.weight.T  # as the paper has it: x W_V W_O
        assert values.diagonal().mean().item() == pytest.approx(-0.4, abs=0.1)
        noise = values + 0.4 * torch.eye(32)
        assert noise.std().item() == pytest.approx(0.4 / 32**0.5, rel=0.15)
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)
            scores = q[:, part] @ k[:, part].T
            assert torch.linalg.matrix_rank(scores) == 8
            assert scores.diagonal().mean() > 0.1
            assert scores.diagonal().mean() > 5 * (scores.sum() - scores.trace()) / (32 * 31)


def test_a_head_s_queries_and_keys_are_the_best_of_their_rank() -> None:
    """Noise and identity, less the smallest singular values (Eckart and Young)."""
    attention = Attention(8, heads=2)
    mimic(attention, generator=torch.Generator().manual_seed(5))
    again = torch.Generator().manual_seed(5)
    q, k, v = attention.qkv.weight.detach().split(8)
    for part in (slice(4), slice(4, 8)):
        z = torch.empty(8, 8).normal_(0, 8**-0.5, generator=again)
        u, sizes, vh = torch.linalg.svd(0.7 * z + 0.7 * torch.eye(8))
        torch.testing.assert_close(q[part].T @ k[part], u[:, :4] @ sizes[:4].diag() @ vh[:4])
    whole = 0.4 * torch.empty(8, 8).normal_(0, 8**-0.5, generator=again) - 0.4 * torch.eye(8)
    torch.testing.assert_close(attention.out.weight @ v, whole)


def test_a_seed_gives_the_same_beginning() -> None:
    first, second = (attentions(positions="none", init="mimetic") for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.qkv.weight, other.qkv.weight)
