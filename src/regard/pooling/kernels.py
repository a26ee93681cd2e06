"""How the weight of a key falls with its distance from the query, as scores of attention.

The Gaussian kernel is the distance score of `regard.nn.attend`, computed from differences. For all of them the
temperature is σ², the square of the width.
"""

import math

import torch
from torch import Tensor

from regard.nn.attend import Attend
from regard.nn.score import DistanceAttend

__all__ = ["EDGE", "FARTHEST", "KERNELS", "BoxcarAttend", "ConstantAttend", "GaussianAttend", "TriangularAttend"]

OUTSIDE = 1e10  # makes the least difference of distances decide which key is the nearest
EDGE = 1 + 1e-9  # a key at the distance of the width is inside, whatever rounding says
FARTHEST = 1e140  # from the origin: distances can still be squared, and multiplied with OUTSIDE
FEW_FEATURES = 3  # up to here one pass for each feature is faster than `torch.cdist`


class GaussianAttend(DistanceAttend):
    """−‖q − k‖² / 2, from the differences of queries and keys.

    ‖q‖² + ‖k‖² − 2 q·k is one matrix product, but loses the digits of a distance that is small beside ‖q‖, wherever
    the origin: clusters far from each other have none that suits all. Here a score depends on its query and its key
    only, to the last bit, and has their precision.
    """

    def score(self, q: Tensor, projected_keys: Tensor) -> Tensor:
        if q.shape[-1] > FEW_FEATURES:
            return torch.cdist(q, projected_keys, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(-0.5)
        squares = None
        for mine, theirs in zip(q.unbind(-1), projected_keys.unbind(-1), strict=True):
            # Not addcmul, which may round once or twice depending on where in a tensor a number lies.
            square = (mine[..., None] - theirs[..., None, :]).square_()
            squares = square if squares is None else squares.add_(square)
        assert squares is not None
        return squares.mul_(-0.5)


class BoxcarAttend(GaussianAttend):
    """All keys within the width weigh the same, others nothing.

    A query without a key within the width takes the nearest one, like a Gaussian kernel far away:
    scores outside lie far below those inside, and far from each other.
    """

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k)
        return torch.where(scores >= -self.temperature / 2 * EDGE, 0.0, OUTSIDE * scores)


class TriangularAttend(GaussianAttend):
    """A key weighs 1 − ‖q − k‖/σ, and from the width σ on nothing; where all are farther, the nearest has all."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k)
        shares = (-2 * scores).sqrt_() / math.sqrt(self.temperature)
        return torch.where(shares < 1, self.temperature * torch.log1p(-shares), OUTSIDE * scores)


class ConstantAttend(Attend):
    """All keys weigh the same, near and far: the mean."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q.new_zeros(*q.shape[:3], k.shape[2])


KERNELS: dict[str, type[Attend]] = {
    "gaussian": GaussianAttend,
    "boxcar": BoxcarAttend,
    "triangular": TriangularAttend,
    "constant": ConstantAttend,
}
