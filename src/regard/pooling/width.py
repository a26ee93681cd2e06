"""The width of a kernel, chosen by leave-one-out: what do all other points say of each point?

That is exact here, since nothing has been fitted that would have to be fitted again without the point, and as cheap as
a prediction. Folds would hide a part of the neighbours with the point, and so prefer too wide a kernel.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.nn.attend import Attend
from regard.pooling.kernels import GaussianAttend
from regard.pooling.pieces import Boxes, Pooled, Values, pool

__all__ = ["best", "found"]

SAMPLE = 2_000  # at most this many points are predicted, each from all others
FINER = 4  # steps in an octave, around the best one
OCTAVES = 32  # from the widest width to the narrowest, at most
WORSE = 1.1  # times the smallest error: the search stops at a width with a larger error


def found(kernel: type[Attend], keys: Boxes, values: Values) -> float:
    """The best width there is: by octaves first, from the narrowest on, which costs least; then around the best."""
    widths, errors = octaves(keys, values), dict[float, float]()
    if len(widths) == 1:
        return widths[0]
    for width in widths:
        errors[width] = error(kernel, keys, values, width)
        if errors[width] > WORSE * min(errors.values()):
            break
    octave = min(reversed(errors), key=errors.__getitem__)
    return best(kernel, keys, values, [octave * 2 ** (step / FINER) for step in range(1 - FINER, FINER)])


def best(kernel: type[Attend], keys: Boxes, values: Values, widths: Iterable[float]) -> float:
    """The best width; of equally good ones the widest, which gives the smoothest answers."""
    falling = sorted(widths, reverse=True)
    if len(falling) == 1 or len(keys.points) == 1:  # a single point cannot be predicted from others
        return falling[0]
    return min(falling, key=lambda width: error(kernel, keys, values, width))


def error(kernel: type[Attend], keys: Boxes, values: Values, width: float) -> float:
    """The mean squared error of predicting a point from the others."""
    attend = kernel((keys.points.shape[1],), temperature=width**2)
    said, seen = _said_by_others(attend, keys, values).context, values(_sample(keys))
    return float((said - seen).square().sum(-1).mean())


def octaves(keys: Boxes, values: Values) -> list[float]:
    """From half the usual distance of two neighbours up to twice the spread of all points."""
    points = keys.points
    spread = float((points - points.mean(0)).square().sum(-1).mean().sqrt())
    if len(points) == 1 or spread == 0.0:
        return [1.0]  # there is one place only, and any width serves
    # Of so narrow a kernel's scores the best is all that counts.
    narrow = GaussianAttend((points.shape[1],), temperature=(spread / 2**OCTAVES) ** 2)
    apart = (-2 * _said_by_others(narrow, keys, values).best).sqrt()
    apart = apart[apart > spread / 2**OCTAVES]
    # Where every place was seen more than once, neighbours say nothing.
    least = float(apart.median()) / 2 if len(apart) else spread / len(points)
    widths = [2 * spread]
    while widths[-1] > least:
        widths.append(widths[-1] / 2)
    return widths[::-1]


def _said_by_others(attend: Attend, keys: Boxes, values: Values) -> Pooled:
    sample = _sample(keys)
    return pool(attend, keys.points[sample], keys, values, without=sample)


def _sample(keys: Boxes) -> Tensor:
    """Points spread over all: neighbours lie together, and every n-th point is taken."""
    points = len(keys.points)
    return torch.linspace(0, points - 1, min(points, SAMPLE), dtype=torch.float64).round().long()
