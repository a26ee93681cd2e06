"""Position encodings: attention has no order of its own; these add it.

Some positions act once, on the input (`embed`); some inside every attention (`rotate`, `bias`). The lectures
name two different ones "the standard": the sinusoidal of Vaswani et al. (geometric frequencies) and the
Fourier basis (linear frequencies, whose shifts are rotations). Both are here.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attend import Bias

__all__ = ["Alibi", "Fourier", "Learned", "Positions", "RelativeBias", "Rotary", "Sinusoidal"]


class Positions(nn.Module):
    """Positions that do nothing: the model sees a set of tokens. The others override one of the three methods."""

    width: int = 0
    """Its addition to the width of a token: more than 0 only if it is concatenated."""

    def embed(
        self, x: Float[Tensor, "batch length token"], positions: Int[Tensor, "#batch length"]
    ) -> Float[Tensor, "batch length width"]:
        return x

    def rotate(
        self, x: Float[Tensor, "batch heads length head"], positions: Int[Tensor, "#batch length"]
    ) -> Float[Tensor, "batch heads length head"]:
        return x

    def bias(self) -> Bias | None:
        """None, or the function from positions of queries and keys to the bias of the scores."""
        return None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Positions":
        # Frequencies and slopes stay in float32 whatever the weights turn to: bfloat16 counts 256, 258, 260 …
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None and not buffer.is_meta}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in exact.items():
            self._buffers[name] = buffer.to(fn(buffer).device)
        return self


class PositionTable(Positions):
    """A vector for each position, added to the token's or concatenated to it."""

    def __init__(self, size: int, *, concatenate: bool = False) -> None:
        super().__init__()
        self.size, self.concatenate = size, concatenate
        self.width = size if concatenate else 0

    def vectors(self, positions: Int[Tensor, "#batch length"]) -> Float[Tensor, "#batch length size"]:
        raise NotImplementedError

    def embed(
        self, x: Float[Tensor, "batch length token"], positions: Int[Tensor, "#batch length"]
    ) -> Float[Tensor, "batch length width"]:
        vectors = self.vectors(positions).to(x.dtype)
        if self.concatenate:
            return torch.cat([x, vectors.expand(x.shape[0], -1, -1)], dim=-1)
        return x + vectors


class Sinusoidal(PositionTable):
    """p(i, 2j) = sin(i / C^(2j/D)), p(i, 2j+1) = cos(the same) (Vaswani et al. 2017, 3.5).

    >>> Sinusoidal(4).vectors(torch.tensor([[1]]))
    tensor([[[0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def __init__(self, size: int, *, base: float = 10_000.0, concatenate: bool = False) -> None:
        super().__init__(size, concatenate=concatenate)
        even = torch.arange(0, size, 2)
        self.register_buffer("frequencies", base ** (-even / size), persistent=False)
        self.frequencies: Tensor

    def vectors(self, positions: Int[Tensor, "#batch length"]) -> Float[Tensor, "#batch length size"]:
        angles = positions[..., None] * self.frequencies
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


class Fourier(PositionTable):
    """cos(πkt/T), sin(πkt/T) for k = 1 … D/2: linear frequencies, where T is the longest length.

    A shift of all positions is then one matrix: `e(t − d) = M_d e(t)`.
    """

    def __init__(self, size: int, *, longest: int, concatenate: bool = False) -> None:
        super().__init__(size, concatenate=concatenate)
        self.register_buffer("frequencies", math.pi / longest * torch.arange(1, size // 2 + 1), persistent=False)
        self.frequencies: Tensor

    def vectors(self, positions: Int[Tensor, "#batch length"]) -> Float[Tensor, "#batch length size"]:
        angles = positions[..., None] * self.frequencies
        return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)

    def shift(self, distance: int) -> Float[Tensor, "size size"]:
        """M_d: block-diagonal, a rotation by −πkd/T in each plane (cos, sin).

        A head whose query projection is M_d looks d steps back.
        """
        angles = distance * self.frequencies
        planes = torch.stack([torch.stack([angles.cos(), angles.sin()], -1),
                              torch.stack([-angles.sin(), angles.cos()], -1)], -2)
        return torch.block_diag(*planes)  # type: ignore[no-any-return]


class Learned(PositionTable):
    """A table trained with the rest."""

    def __init__(self, size: int, *, longest: int, concatenate: bool = False) -> None:
        super().__init__(size, concatenate=concatenate)
        self.table = nn.Parameter(torch.empty(longest, size))

    def vectors(self, positions: Int[Tensor, "#batch length"]) -> Float[Tensor, "#batch length size"]:
        # Beyond the table there is only padding, or an answer longer than any that was trained on.
        return self.table[positions.clamp(max=len(self.table) - 1)]


class Rotary(Positions):
    """Turns each plane of queries and keys by an angle that grows with the position (Su et al. 2021, 3.2.2).

    A score then depends only on the distance. The planes are (j, j + head/2), the layout of Llama's weights.
    """

    def __init__(self, head: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("frequencies", base ** (-torch.arange(0, head, 2) / head), persistent=False)
        self.frequencies: Tensor

    def rotate(
        self, x: Float[Tensor, "batch heads length head"], positions: Int[Tensor, "#batch length"]
    ) -> Float[Tensor, "batch heads length head"]:
        angles = (positions[..., None] * self.frequencies)[:, None]  # (batch, 1, length, head / 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class RelativeBias(Positions):
    """A learned number per head and distance, far distances sharing one (Raffel et al. 2020, 2.1).

    There the first layer's table serves all layers; here each layer learns its own.
    """

    def __init__(self, heads: int, *, causal: bool, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.causal, self.buckets, self.farthest = causal, buckets, farthest
        self.table = nn.Parameter(torch.empty(buckets, heads))

    def bias(self) -> Bias:
        return lambda queries, keys: self.table[self.bucket(keys[:, None, :] - queries[:, :, None])].movedim(-1, 1)

    def bucket(self, distance: Int[Tensor, "batch queries keys"]) -> Int[Tensor, "batch queries keys"]:
        """Half the buckets are exact near distances, half grow logarithmically up to the farthest."""
        buckets, start = self.buckets, torch.zeros_like(distance)
        if self.causal:
            near = (-distance).clamp(min=0)
        else:
            buckets //= 2
            start, near = (distance > 0) * buckets, distance.abs()
        exact = buckets // 2
        far = exact + (near.clamp(min=1) / exact).log() / math.log(self.farthest / exact) * (buckets - exact)
        return start + torch.where(near < exact, near, far.long().clamp(max=buckets - 1))


class Alibi(Positions):
    """A fixed penalty per step of distance, other for each head (Press et al. 2022, 3). Not trained."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        # The paper's slopes for a power of two; between two powers, every other slope of the next one.
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        slopes += [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * (heads - power), 2)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)
        self.slopes: Tensor

    def bias(self) -> Bias:
        return lambda queries, keys: (
            -(keys[:, None, :] - queries[:, :, None]).abs()[:, None] * self.slopes[:, None, None])
