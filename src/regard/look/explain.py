"""Attention step by step, with numbers: project, score, divide, softmax, weigh, sum.

The same code explains the two words of a lecture and one word of a trained model. The module itself computes the scores
and the weights (`Attend.scores`, `Attend.weights`).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.look.thread_hooks import in_this_thread
from regard.look.watch import matching, sites
from regard.nn.attend import Attend, Attended, AttentionPositions, Bias
from regard.nn.mask import Mask, whole
from regard.nn.score import SCORES, ScaledDotAttend
from regard.settings.errors import UserError

__all__ = ["FORMULAS", "AttentionSteps", "Caught", "catch", "catch_all", "example", "explain", "score_name"]

FORMULAS = {"scaled-dot": "q·k", "dot": "q·k", "bilinear": "q·Wk", "additive": "w·tanh(Wk + Uq)",
            "distance": "−‖q − k‖²/2"}


@dataclass(frozen=True)
class AttentionSteps:
    """The six steps of one query in one head; a row of `keys`, `values` and `parts` for each word it may attend to."""

    score: str
    """The name of the score, such as scaled-dot."""
    query: Float[Tensor, " head"]
    keys: Float[Tensor, "words head"]
    values: Float[Tensor, "words value"]
    scores: Float[Tensor, " words"]
    divisor: float
    """√d_k where the score is the scaled dot product; 1 where nothing is divided."""
    divided: Float[Tensor, " words"]
    bias: Float[Tensor, " words"] | None
    """The position bias of the scores, in models that have one."""
    temperature: float
    logits: Float[Tensor, " words"]
    """The input of the softmax: divided, with the bias, by the temperature."""
    seen: Bool[Tensor, " words"]
    """Which words the mask lets it see."""
    weights: Float[Tensor, " words"]
    parts: Float[Tensor, "words value"]
    sum: Float[Tensor, " value"]

    @property
    def formula(self) -> str:
        return FORMULAS.get(self.score, self.score)


@torch.no_grad()
def explain(
    attend: Attend, q: Float[Tensor, " head"], k: Float[Tensor, "words head"], v: Float[Tensor, "words value"], *,
    mask: Mask = Mask(), positions: AttentionPositions | None = None, bias: Bias | None = None,
) -> AttentionSteps:
    """The steps of one query of an attention that has one head."""
    query, keys = q[None, None, None].float(), k[None, None].float()
    places = positions or AttentionPositions(whole(1, q.device), whole(len(k), k.device))
    divided = attend.scores(query, keys)[0, 0, 0]
    scale = 1.0 if attend.scale is None else float(attend.scale)
    added = None if bias is None else bias(places.queries, places.keys)[0, 0, 0]
    allowed = mask.dense(places.queries, places.keys)
    seen = torch.ones_like(divided, dtype=torch.bool) if allowed is None else allowed[0, 0, 0]
    logits = (divided if added is None else divided + added) / attend.temperature
    weights = attend.weights(query, keys, mask=mask, positions=places, bias=bias)[0, 0, 0]
    parts = weights[:, None] * v.float()
    return AttentionSteps(score_name(attend), q, k, v, divided / scale, 1 / scale, divided, added,
                          attend.temperature, logits, seen, weights, parts, parts.sum(0))


def score_name(attend: Attend) -> str:
    return next(name for name, kind in SCORES.items() if kind is type(attend))


def example() -> AttentionSteps:
    """Two words whose scores are 102 and 99, d_k = 3. Divided they are 58.9 and 57.2; their weights 0.85 and 0.15.

    >>> steps = example()
    >>> steps.scores.tolist(), [round(score, 1) for score in steps.divided.tolist()]
    ([102.0, 99.0], [58.9, 57.2])
    >>> [round(weight, 2) for weight in steps.weights.tolist()], [round(part, 2) for part in steps.sum.tolist()]
    ([0.85, 0.15], [0.85, 0.3, 2.7])
    """
    q, k = torch.tensor([5.0, 4.0, 7.0]), torch.tensor([[6.0, 4.0, 8.0], [7.0, 2.0, 8.0]])
    v = torch.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 1.0]])
    return explain(ScaledDotAttend((3,)), q, k, v)


@dataclass
class Caught:
    """The newest pass of an attention: what went in, and what came out.

    A pass is one call, or several to the very same keys, as by a recurrent decoder, whose words ask one by one.
    """

    attend: Attend
    inputs: tuple[Tensor, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    output: Attended | None = None
    earlier: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Queries and contexts of the calls before the newest, in the same pass."""

    @property
    def queries(self) -> Float[Tensor, "batch heads queries head"]:
        return torch.cat([*(q for q, _ in self.earlier), self.inputs[0]], dim=2).detach()

    @property
    def contexts(self) -> Float[Tensor, "batch heads queries value"]:
        """The model's own output, by its fast path."""
        assert self.output is not None, "the attention has not been called yet"
        return torch.cat([*(context for _, context in self.earlier), self.output.context], dim=2).detach()

    def take(self, inputs: tuple[Tensor, ...], options: dict[str, Any], output: Attended) -> None:
        # A call with query positions has a cache: the keys at the same place may have changed.
        if self.output is not None and _is_same(self.inputs, inputs) and options.get("positions") is None:
            self.earlier.append((self.inputs[0], self.output.context))
        else:
            self.earlier.clear()
        self.inputs, self.options, self.output = inputs, options, output

    def steps(self, *, head: int, row: int) -> AttentionSteps:
        """Of one query of the first sentence."""
        q, (k, v) = self.queries, (tensor.detach() for tensor in self.inputs[1:])
        group = head * k.shape[1] // q.shape[1]
        places = self.options.get("positions") or AttentionPositions(
            whole(q.shape[2], q.device), whole(k.shape[2], k.device))
        bias: Bias | None = self.options.get("bias")

        def of_head(queries: Tensor, keys: Tensor) -> Tensor:
            assert bias is not None
            return bias(queries, keys)[:, [head]]

        return explain(self.attend.pick([head]), q[0, head, row], k[0, group], v[0, group], mask=self.options["mask"],
                       positions=places._replace(queries=places.queries[:, [row]]),
                       bias=None if bias is None else of_head)

    def context(self, *, head: int, row: int) -> Float[Tensor, " value"]:
        """The model's own output for this query."""
        return self.contexts[0, head, row].float()


def _is_same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    """Whether two calls ask the same keys, in as many rows."""
    (q, k, *_), (p, j, *_) = one, other
    return q.shape[0] == p.shape[0] and k.shape == j.shape and k.data_ptr() == j.data_ptr()


@contextmanager
def catch(model: nn.Module, site: str) -> Iterator[Caught]:
    """Keep the newest pass of one attention while a model runs."""
    known = sites(model)
    if site not in known:
        raise UserError(f"{site}: no attention of this name; there are {', '.join(known)}")
    caught = Caught(known[site])

    def take(attend: Attend, inputs: tuple[Tensor, ...], options: dict[str, Any], output: Attended) -> None:
        caught.take(inputs, options, output)

    hook = known[site].register_forward_hook(in_this_thread(take), with_kwargs=True)
    try:
        yield caught
    finally:
        hook.remove()


@contextmanager
def catch_all(model: nn.Module, only: str | Sequence[str] = "*") -> Iterator[dict[str, Caught]]:
    """The same of every attention whose site matches."""
    with ExitStack() as stack:
        yield {site: stack.enter_context(catch(model, site)) for site in matching(sites(model), only)}
