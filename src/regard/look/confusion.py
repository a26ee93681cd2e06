"""The confusion matrix of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

__all__ = ["Confusion"]


@dataclass(frozen=True)
class Confusion:
    """How many texts that have a label, its row, were given another, its column."""

    labels: Sequence[str]
    counts: Int[np.ndarray, "wanted given"]
