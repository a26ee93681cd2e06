"""A word in its contexts: one vector before the first block, another in every text after the last."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["Word"]


@dataclass(frozen=True)
class Word:
    """The states of one word in several texts, layer by layer; the first is the input of the first block."""

    word: str
    texts: Sequence[str]
    states: Float[np.ndarray, "texts layers width"]

    @property
    def cosines(self) -> Float[np.ndarray, "layers texts texts"]:
        """The cosine between the vectors of every two texts, in each layer."""
        unit = self._unit
        cosines: np.ndarray = np.einsum("alw, blw -> lab", unit, unit)
        return cosines

    @property
    def pairs(self) -> list[tuple[int, int]]:
        count = len(self.texts)
        return [(first, second) for first in range(count) for second in range(first + 1, count)]

    @property
    def _unit(self) -> Float[np.ndarray, "texts layers width"]:
        lengths = np.linalg.norm(self.states, axis=-1, keepdims=True)
        unit: np.ndarray = self.states / lengths.clip(min=1e-12)
        return unit

    @property
    def plane(self) -> Float[np.ndarray, "texts layers 2"]:
        """All vectors, made one long, in the plane in which they differ the most."""
        flat = self._unit.reshape(-1, self.states.shape[-1])
        centred = flat - flat.mean(0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        two = np.pad(axes[:2], ((0, max(0, 2 - len(axes))), (0, 0)))
        return np.reshape(centred @ two.T, (*self.states.shape[:2], 2))
