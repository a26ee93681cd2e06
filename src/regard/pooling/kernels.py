"""How the weight of a key falls with its distance from the query, as scores of attention.

The Gaussian kernel is the distance score of `regard.nn.attend` as it is. For all of them the temperature is σ², the
square of the width.
"""

import torch
from torch import Tensor

from regard.nn.attend import Attend, DistanceAttend

__all__ = ["EDGE", "KERNELS", "BoxcarAttend", "ConstantAttend", "TriangularAttend"]

OUTSIDE = 1e10  # makes the least difference of distances decide which key is the nearest
EDGE = 1 + 1e-9  # a key at the distance of the width is inside, whatever rounding says


class BoxcarAttend(DistanceAttend):
    """All keys within the width weigh the same, others nothing.

    A query that has no key within the width takes the nearest one, which is what a Gaussian kernel gives far away:
    scores outside lie far below those inside, and far from each other.
    """

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k)
        return torch.where(scores >= -self.temperature / 2 * EDGE, 0.0, OUTSIDE * scores)


class TriangularAttend(DistanceAttend):
    """A key weighs 1 − ‖q − k‖/σ, and from the width σ on nothing; where all are farther, the nearest has all."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k).clamp(max=0.0)  # rounding may find a key nearer than at the query itself
        shares = (scores * (-2 / self.temperature)).sqrt()
        return torch.where(shares < 1, self.temperature * torch.log1p(-shares), OUTSIDE * scores)


class ConstantAttend(Attend):
    """All keys weigh the same, near and far: the mean."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q.new_zeros(*q.shape[:3], k.shape[2])


KERNELS: dict[str, type[Attend]] = {
    "gaussian": DistanceAttend,
    "boxcar": BoxcarAttend,
    "triangular": TriangularAttend,
    "constant": ConstantAttend,
}
