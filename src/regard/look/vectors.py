"""The queries, keys and values of one example, from which a page computes the six steps of attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from regard.look.explain import FORMULAS, Caught, score_name
from regard.look.record import Record
from regard.nn.attend import AttentionPositions, Bias
from regard.nn.mask import whole

__all__ = ["Vectors", "vectors"]

SIMPLE = ("scaled-dot", "dot")  # scores that a page computes itself, from only queries and keys


@dataclass(frozen=True)
class Vectors:
    """Of one attention. A row of scores is a query; heads are those of its record."""

    score: str
    groups: tuple[int, ...]
    """Which keys and values each head has: heads may share them."""
    divisors: tuple[float, ...]
    """√d_k of each head, or 1."""
    temperature: float
    queries: Float[np.ndarray, "heads targets head"]
    keys: Float[np.ndarray, "groups sources head"]
    values: Float[np.ndarray, "groups sources value"]
    scores: Float[np.ndarray, "heads targets sources"] | None
    """Where they are more than q·k."""
    bias: Float[np.ndarray, "heads targets sources"] | None
    differences: Float[np.ndarray, "heads targets"]
    """The difference between the sum of the parts and the model's own output."""
    seen: Bool[np.ndarray, "targets sources"]
    projected: bool
    """Whether keys and values are projections of the states, or the states themselves."""

    @property
    def facts(self) -> dict[str, Any]:
        return {"score": self.score, "formula": FORMULAS[self.score], "groups": self.groups, "divisors": self.divisors,
                "temperature": self.temperature, "shared": len(self.keys), "head": self.keys.shape[-1],
                "value": self.values.shape[-1], "scores": self.scores is not None, "bias": self.bias is not None,
                "projected": self.projected}

    def pack(self) -> bytes:
        """Float32, as a browser's arrays hold it; then a bit for each pair, whether it is seen."""
        arrays = (self.queries, self.keys, self.values, self.scores, self.bias, self.differences)
        numbers = [array.astype("<f4").tobytes() for array in arrays if array is not None]
        return b"".join([*numbers, np.packbits(self.seen).tobytes()])


@torch.no_grad()
def vectors(caught: Mapping[str, Caught], record: Record) -> dict[str, Vectors]:
    """Of each attention whose newest pass is the very one that the record is of."""
    found = {site: _vectors(caught[site], record[site], record.heads[site]) for site in record if site in caught}
    return {site: each for site, each in found.items() if each is not None}


def _vectors(caught: Caught, weights: Float[np.ndarray, "heads targets sources"],
             heads: tuple[int, ...]) -> Vectors | None:
    _, targets, sources = weights.shape
    if not caught.inputs or caught.output is None or heads == (-1,):
        return None
    q, (k, v) = caught.queries[:1], (tensor.detach()[:1] for tensor in caught.inputs[1:])
    places: AttentionPositions = caught.options.get("positions") or AttentionPositions(
        whole(q.shape[2], q.device), whole(k.shape[2], k.device))
    if q.shape[2] < targets or k.shape[2] < sources or places.rows is not None:
        return None
    q, k, v = q[:, :, :targets].float(), k[:, :, :sources].float(), v[:, :, :sources].float()
    here, there = places.queries[:1, :targets], places.keys[:1, :sources]
    groups = [head * k.shape[1] // q.shape[1] for head in heads]
    part, queries, own = caught.attend.pick(heads), q[:, list(heads)], caught.contexts[0, list(heads)]
    allowed = caught.options["mask"].dense(here, there)
    seen = torch.ones(targets, sources) if allowed is None else allowed[0, 0].expand(targets, sources)
    score, context = score_name(caught.attend), torch.from_numpy(weights).to(v) @ v[0, groups]
    scales = [caught.attend.pick([head]).scale for head in heads]
    return Vectors(
        score, tuple(groups), tuple(1.0 if scale is None else 1 / float(scale) for scale in scales),
        caught.attend.temperature, _array(queries[0]), _array(k[0]), _array(v[0]),
        None if score in SIMPLE else _array(part.scores(queries, k[:, groups])[0]),
        _bias(caught.options.get("bias"), here, there, list(heads)),
        _array((context - own[:, :targets].float()).abs().amax(-1)), seen.bool().cpu().numpy(),
        projected=not torch.equal(k, v))


def _bias(bias: Bias | None, queries: Tensor, keys: Tensor,
          heads: list[int]) -> Float[np.ndarray, "heads targets sources"] | None:
    if bias is None:
        return None
    added = bias(queries, keys)[0]
    return _array(added[heads] if len(added) > 1 else added.expand(len(heads), -1, -1))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return cast(NDArray[np.float32], tensor.float().cpu().numpy())
