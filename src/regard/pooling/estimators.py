"""Nadaraya-Watson regression and classification (Nadaraya 1964, Watson 1964), as estimators of scikit-learn.

A prediction is Σ wᵢ yᵢ, the weights w being attention: for the Gaussian kernel softmax(−‖q − kᵢ‖² / 2σ²).

>>> import numpy as np
>>> x = np.linspace(0, 6, 200)[:, None]
>>> seen = np.sin(x[:, 0]) + np.random.default_rng(0).normal(0, 0.2, 200)
>>> curve = NadarayaWatsonRegressor().fit(x, seen)
>>> print(f"{curve.predict([[np.pi / 2]])[0]:.1f}")
1.0
"""

import sys
from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.nn.attend import Attend
from regard.pooling.kernels import FARTHEST, KERNELS, ConstantAttend
from regard.pooling.pieces import Boxes, pool, weights
from regard.pooling.width import best, found

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("attention pooling needs scikit-learn: pip install scikit-learn",
                              name=missing.name) from missing

__all__ = ["NadarayaWatsonClassifier", "NadarayaWatsonRegressor"]

if TYPE_CHECKING:
    Kernel = Literal["gaussian", "boxcar", "triangular", "constant"]
    Width = float | Iterable[float] | Literal["auto"]
else:
    Kernel = Width = Any  # scikit-learn wants any value taken as it is, and refused by `fit`
Table = Any  # what scikit-learn takes for rows of numbers: an array, a list of lists, a data frame


class NadarayaWatson(BaseEstimator):
    """Shared by both estimators: training points as keys, a kernel and its width.

    `kernel` says how the weight of a training point falls with its distance: "gaussian", "boxcar" (none beyond the
    width), "triangular" (down to none at the width), or "constant" (the mean of all). Where a boxcar or a triangle
    holds no point, the nearest one answers. `width` is the same for all features: bring them to one scale first. Of a
    list of widths the best by leave-one-out is taken, with "auto" the best of all; `width_` is the one that was chosen.

    All is computed in float64, and in chunks: a million points take only the memory of the points themselves.
    """

    width_: float
    _keys: Boxes
    _seen: Tensor

    def __init__(self, *, kernel: Kernel = "gaussian", width: Width = "auto") -> None:
        self.kernel = kernel
        self.width = width

    def weights(self, X: Table) -> Float[np.ndarray, "queries points"]:
        """The attention matrix: how much each row of X takes of each training point. It is held whole."""
        queries = self._queries(X)
        return weights(self._attend, queries, self._keys.points)[:, self._keys.order.argsort()].numpy()

    def _remember(self, X: Float[np.ndarray, "points features"], seen: np.ndarray) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel: {self.kernel!r} is none of {', '.join(KERNELS)}")
        kernel, widths = KERNELS[self.kernel], _widths(self.width)
        _refuse_far(X)
        self._keys = Boxes.cut(X)
        self._seen = torch.from_numpy(seen[self._keys.order.numpy()])
        if widths is None and kernel is ConstantAttend:
            widths = [1.0]  # it has none
        if widths is None:
            self.width_ = found(kernel, self._keys, self._values)
        else:
            self.width_ = best(kernel, self._keys, self._values, widths)

    def _values(self, part: slice | Tensor) -> Float[Tensor, "keys value"]:
        raise NotImplementedError

    def _queries(self, X: Table) -> Float[Tensor, "queries features"]:
        check_is_fitted(self)
        queries = validate_data(self, X, reset=False, dtype=np.float64)
        _refuse_far(queries)
        return torch.tensor(queries)

    @property
    def _attend(self) -> Attend:
        return KERNELS[self.kernel]((self._keys.points.shape[1],), temperature=self.width_**2)

    def _pooled(self, X: Table) -> Float[np.ndarray, "queries value"]:
        queries = self._queries(X)
        return pool(self._attend, queries, self._keys, self._values).context.numpy()


class NadarayaWatsonRegressor(MultiOutputMixin, RegressorMixin, NadarayaWatson):
    """The weighted mean of the training points' values; nearer points weigh more. One output, or several.

    >>> NadarayaWatsonRegressor(width=0.5).fit([[0.0], [1.0], [2.0]], [0.0, 10.0, 20.0]).predict([[1.0]])
    array([10.])
    """

    def fit(self, X: Table, y: Table) -> "NadarayaWatsonRegressor":
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._single = y.ndim == 1
        self._remember(X, y.astype(np.float64).reshape(len(y), -1))
        return self

    def predict(self, X: Table) -> Float[np.ndarray, "queries *outputs"]:
        pooled = self._pooled(X)
        return pooled[:, 0] if self._single else pooled

    def _values(self, part: slice | Tensor) -> Float[Tensor, "keys value"]:
        return self._seen[part]


class NadarayaWatsonClassifier(ClassifierMixin, NadarayaWatson):
    """The share of each class among the training points, the nearer ones weighing more. Labels are numbers or texts.

    >>> sorts = NadarayaWatsonClassifier(width=1.0).fit([[0.0], [1.0], [5.0]], ["cat", "cat", "dog"])
    >>> sorts.predict([[0.5], [6.0]]).tolist(), sorts.predict_proba([[3.0]]).round(2).tolist()
    (['cat', 'dog'], [[0.52, 0.48]])
    """

    classes_: np.ndarray

    def fit(self, X: Table, y: Table) -> "NadarayaWatsonClassifier":
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        self._remember(X, numbers)
        return self

    def predict(self, X: Table) -> np.ndarray:
        likeliest = self._pooled(X).argmax(1)  # before `classes_`, which exists only after `fit`
        labels: np.ndarray = self.classes_[likeliest]
        return labels

    def predict_proba(self, X: Table) -> Float[np.ndarray, "queries classes"]:
        return self._pooled(X)

    def _values(self, part: slice | Tensor) -> Float[Tensor, "keys value"]:
        # Made for each piece: a million rows of a thousand classes would not fit into memory.
        return F.one_hot(self._seen[part], len(self.classes_)).double()


def _refuse_far(X: Float[np.ndarray, "rows features"]) -> None:
    farthest = max(X.max(initial=0.0), -X.min(initial=0.0))
    if farthest > FARTHEST:
        raise ValueError(f"X: {farthest:g} is beyond {FARTHEST:g}, where distances cannot be squared; scale X first")


def _widths(given: Any) -> list[float] | None:
    """Those to choose from; None where any may be."""
    if isinstance(given, str) and given == "auto":
        return None
    try:
        widths = [given] if isinstance(given, (str, Real)) else list(given)
    except TypeError:
        widths = [given]
    if not widths:
        raise ValueError("width: the list is empty; name some widths, or 'auto'")
    for width in widths:
        if not isinstance(width, Real):
            raise ValueError(f"width: {width!r} is neither 'auto' nor a number")
        if not (float(width) > 0 and sys.float_info.min <= float(width) * float(width) < float("inf")):
            raise ValueError(f"width: {float(width)} is no positive number that could be squared")
    return [float(width) for width in widths]
