"""Convolutions, and the norm that knows a batch."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.convolution import BatchNorm, ConvolutionStem, ResidualBlock
from regard.nn.init import initialize


def ready(model: nn.Module) -> nn.Module:
    """All of it random, also what begins as zeros or ones."""
    initialize(model, seed=0)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape)
    for part in model.modules():
        if isinstance(part, BatchNorm):
            part.running = torch.stack([torch.randn_like(part.running[0]), torch.rand_like(part.running[1]) + 0.5])
    return model


def norm(channels: int = 3) -> BatchNorm:
    return ready(BatchNorm(channels))


def test_a_channel_is_normed_over_the_batch_and_all_its_places() -> None:
    model, x = norm(), torch.randn(4, 3, 5, 6)
    for channel in range(3):
        mean, variance = x[:, channel].mean(), x[:, channel].var(unbiased=False)
        expected = (x[:, channel] - mean) / (variance + 1e-5).sqrt() * model.weight[channel] + model.bias[channel]
        torch.testing.assert_close(model(x)[:, channel], expected, rtol=1e-4, atol=1e-5)


def test_the_running_statistics_are_torch_s() -> None:
    """Unbiased variances, a tenth of each new batch."""
    model, peer = norm(), nn.BatchNorm2d(3)
    peer.running_mean, peer.running_var = (each.clone() for each in model.running)
    for _ in range(3):
        x = torch.randn(4, 3, 5, 6) * 2 + 1
        model(x), peer(x)
    torch.testing.assert_close(model.running, torch.stack([peer.running_mean, peer.running_var]))


def test_outside_of_training_an_image_does_not_see_the_others() -> None:
    model, x = norm().eval(), torch.randn(4, 3, 5, 6)
    before = model.running.clone()
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    assert torch.equal(model.running, before)


def test_a_frozen_norm_keeps_its_statistics_while_the_rest_learns() -> None:
    model, x = norm(), torch.randn(4, 3, 5, 6)
    before = model.running.clone()
    model.weight.requires_grad_(False)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    assert torch.equal(model.running, before)


def test_a_batch_that_is_not_finite_leaves_no_trace() -> None:
    model, x = norm(), torch.randn(4, 3, 5, 6)
    x[0, 1] = torch.nan
    before = model.running.clone()
    model(x)
    assert model.running.isfinite().all()
    assert torch.equal(model.running[:, 1], before[:, 1])


def test_two_processes_norm_by_the_batch_of_both() -> None:
    """Each by its own share and the sums of both, played here one after the other."""
    whole, x = norm(), torch.randn(6, 3, 4, 4, dtype=torch.float64).requires_grad_()
    whole.double()
    begun = whole.running.clone()
    y = whole(x)
    weight = torch.randn_like(y)
    (expected,) = torch.autograd.grad((weight * y).sum(), x)
    parts, shares = (x[:4], x[4:]), []

    def total(place: int) -> Callable[[Tensor], Tensor]:
        calls = [0]

        def summed(here: Tensor) -> Tensor:
            calls[0] += 1
            other = parts[1 - place]
            if calls[0] == 1:
                there = torch.cat([other.sum((0, 2, 3)), other.new_tensor([other.numel() / 3])])
            else:
                there = (other - x.mean((0, 2, 3))[:, None, None]).square().sum((0, 2, 3))
            return here + there

        return summed

    for place, part in enumerate(parts):
        whole.running.copy_(begun)
        whole.total = total(place)
        shares.append(whole(part))
        torch.testing.assert_close(whole.running[0], begun[0].lerp(x.mean((0, 2, 3)), 0.1))
        torch.testing.assert_close(whole.running[1], begun[1].lerp(x.transpose(0, 1).flatten(1).var(1), 0.1))
    found = torch.cat(shares)
    torch.testing.assert_close(found, y, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad((weight * found).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bottleneck", [False, True])
@pytest.mark.parametrize(("inputs", "stride"), [(8, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("early", [False, True])
def test_a_residual_block_is_the_paper_s_figure(bottleneck: bool, inputs: int, stride: int, early: bool) -> None:
    model = ready(ResidualBlock(inputs, 8, stride=stride, bottleneck=bottleneck, early=early)).eval()
    weights, x = dict(model.state_dict()), torch.randn(2, inputs, 6, 6)

    def convolved(x: Tensor, name: str, stride: int) -> Tensor:
        kernel = weights[f"{name}.kernel.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        mean, variance = weights[f"{name}.norm.running"][:, :, None, None]
        x = (x - mean) / (variance + 1e-5).sqrt()
        return x * weights[f"{name}.norm.weight"][:, None, None] + weights[f"{name}.norm.bias"][:, None, None]

    strides = [stride, 1] if not bottleneck else [stride, 1, 1] if early else [1, stride, 1]
    h = x
    for place, step in enumerate(strides):
        h = convolved(h if place == 0 else h.relu(), f"convolutions.{place}", step)
    shortcut = x if inputs == 8 and stride == 1 else convolved(x, "shortcut", stride)
    torch.testing.assert_close(model(x), (shortcut + h).relu(), rtol=1e-4, atol=1e-4)
    if bottleneck:
        assert [convolution.kernel.weight.shape[0] for convolution in model.convolutions] == [2, 2, 8]


def test_a_residual_block_begins_by_passing_on_what_it_gets() -> None:
    model, x = ResidualBlock(4, 4), torch.rand(2, 4, 5, 5)
    initialize(model, seed=0)
    torch.testing.assert_close(model(x), x)


def test_a_relu_after_a_convolution_keeps_the_size_of_its_input() -> None:
    """He et al. 2015, eq. 10: the mean square stays."""
    x = torch.randn(4, 64, 16, 16)
    for _ in range(4):
        kernel = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular", bias=False)
        initialize(kernel, seed=_)
        x = kernel(x.relu())
    assert 0.5 < x.square().mean() < 4


def test_each_layer_of_a_stem_convolves_rectifies_and_takes_the_largest_of_nine() -> None:
    model, pixels = ConvolutionStem(2, 5, channels=1), torch.randn(2, 1, 8, 8)
    initialize(model, seed=0)
    first, second = (kernel.weight for kernel in model.kernels)
    x = pixels
    for kernel in (first, second):
        x = F.conv2d(x, kernel, padding=1).relu()
        x = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))
    torch.testing.assert_close(model(pixels), x.flatten(2).mT)
    assert model(pixels).shape == (2, 4, 5)
