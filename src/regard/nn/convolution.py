"""Convolutions: the residual network (He et al. 2016), and a stem that cuts an image into overlapping patches."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["BatchNorm", "Convolution", "ConvolutionStem", "ResidualBlock", "pooled_half"]

MOMENTUM = 0.1  # of the running statistics: the share of the newest batch
STEM_WIDTH = 64  # of all layers but the last (Hassani et al. 2021, as published)
NARROWED = 4  # a bottleneck's 3 × 3 convolution has a quarter of its channels (He et al. 2016, table 1)


class BatchNorm(nn.Module):
    """(x − μ) / σ · γ + β, with the mean and variance of each channel over a batch (Ioffe and Szegedy 2015, alg. 1).

    Outside of training, and where its γ is frozen, they are the running ones of the batches before (alg. 2).
    """

    def __init__(self, channels: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        # Buffers are saved, resumed and averaged with the weights.
        self.register_buffer("running", torch.stack([torch.zeros(channels), torch.ones(channels)]))
        self.running: Tensor
        self.total: Callable[[Tensor], Tensor] | None = None
        """The sum over the processes that share a batch. Absent: there is one."""

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        weight, bias = self.weight, self.bias
        if not (self.training and weight.requires_grad):
            mean, variance = self.running
            return F.batch_norm(x, mean, variance, weight, bias, eps=self.epsilon)
        if self.total is None:
            mean, variance = running = self.running.clone()
            y = F.batch_norm(x, mean, variance, weight, bias, training=True, momentum=MOMENTUM, eps=self.epsilon)
        else:
            mean, variance, count = self.moments(x, self.total)
            factor = weight * (variance + self.epsilon).rsqrt()
            y = (x * factor[:, None, None] + (bias - mean * factor)[:, None, None]).to(x.dtype)
            unbiased = torch.stack([mean, variance * count / (count - 1).clamp(min=1)]).detach()
            running = self.running.lerp(unbiased, MOMENTUM)
        # A batch that is not finite is skipped: no trace of it stays.
        self.running.copy_(torch.where(running.isfinite(), running, self.running))
        return y

    def moments(
        self, x: Float[Tensor, "batch channels height width"], total: Callable[[Tensor], Tensor]
    ) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"], Float[Tensor, ""]]:
        """Mean, variance and number of the values of each channel, in all processes."""
        x = x.float()
        here = x.new_tensor(x.numel() / x.shape[1])
        sums, count = total(torch.cat([x.sum((0, 2, 3)), here[None]])).split([x.shape[1], 1])
        mean = sums / count
        squares = total((x - mean[:, None, None]).square().sum((0, 2, 3)))
        return mean, squares / count, count[0]


class Convolution(nn.Module):
    """A convolution and a batch norm. Half of its padding is on each side: a stride of 2 halves an even size."""

    def __init__(self, inputs: int, outputs: int, *, size: int, stride: int = 1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.kernel = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
        self.norm = BatchNorm(outputs, epsilon=epsilon)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs rows columns"]:
        return self.norm(self.kernel(x))  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """relu(x + f(x)): two convolutions of 3 × 3, or a bottleneck of 1 × 1, 3 × 3 and 1 × 1 (He et al. 2016, figure 5).

    A bottleneck strides in its 3 × 3, as in most published weights, or `early`, in its first 1 × 1, as in the paper.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, bottleneck: bool = False, early: bool = False,
                 epsilon: float = 1e-5) -> None:
        super().__init__()
        sizes, strides, widths = [3, 3], [stride, 1], [inputs, outputs, outputs]
        if bottleneck:
            inner = outputs // NARROWED
            sizes, strides = [1, 3, 1], [stride, 1, 1] if early else [1, stride, 1]
            widths = [inputs, inner, inner, outputs]
        self.convolutions = nn.ModuleList(
            Convolution(widths[place], widths[place + 1], size=size, stride=step, epsilon=epsilon)
            for place, (size, step) in enumerate(zip(sizes, strides, strict=True)))
        is_same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if is_same else Convolution(
            inputs, outputs, size=1, stride=stride, epsilon=epsilon)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs rows columns"]:
        *others, last = self.convolutions
        h = x
        for convolution in others:
            h = convolution(h).relu()
        return (self.shortcut(x) + last(h)).relu()  # type: ignore[no-any-return]

    def settle(self) -> None:
        """At first a block passes its input on: the last γ is 0 (Goyal et al. 2017, 5.1)."""
        nn.init.zeros_(self.convolutions[-1].get_parameter("norm.weight"))


class ConvolutionStem(nn.Module):
    """Convolutions of 3 × 3, each with a pooling that halves the image (Hassani et al. 2021, 3.3, eq. 5)."""

    def __init__(self, layers: int, width: int, *, channels: int = 3) -> None:
        super().__init__()
        widths = [channels, *[STEM_WIDTH] * (layers - 1), width]
        self.kernels = nn.ModuleList(
            nn.Conv2d(widths[layer], widths[layer + 1], 3, padding=1, bias=False) for layer in range(layers))

    def forward(
        self, pixels: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch patches features"]:
        x = pixels
        for kernel in self.kernels:
            x = pooled_half(kernel(x).relu())
        return x.flatten(2).mT


def pooled_half(x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels rows columns"]:
    """The largest of each 3 × 3, at every second place."""
    return F.max_pool2d(x, 3, stride=2, padding=1)
