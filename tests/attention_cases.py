"""Calls of attention of every kind, and the comparison of how one is computed with the definition."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.attend import Attend, AttentionPositions, Bias
from regard.nn.mask import Mask, whole
from regard.nn.positions import Alibi, RelativeBias
from regard.nn.score import SCORES

CPU = torch.device("cpu")
HEADS, WIDTH = 4, 8
EQUAL, UNEQUAL = (WIDTH,) * HEADS, (8, 2, 5, 1)
MASKS = ("none", "causal", "keys", "causal keys", "window", "causal window", "globals", "causal globals",
         "spans", "window spans", "documents", "causal documents", "all", "blind")
BIASES = ("none", "alibi", "relative", "relative causal")


@dataclass(frozen=True)
class Case:
    """One way to call attention. Heads of unequal widths come padded with zeros."""

    score: str = "scaled-dot"
    mask: str = "none"
    rows: int = 2
    queries: int = 5
    keys: int = 5
    start: int | None = None  # where the queries stand among the keys; None: no positions are given
    groups: int = HEADS
    widths: tuple[int, ...] = EQUAL
    value: int = WIDTH
    bias: str = "none"
    temperature: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Call:
    attend: Attend
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    positions: AttentionPositions | None
    bias: Bias | None
    learned: tuple[Tensor, ...] = ()  # by the bias

    def fast(self) -> Tensor:
        return self.attend(
            self.q, self.k, self.v, mask=self.mask, positions=self.positions, bias=self.bias).context

    def weights(self) -> Tensor:
        return self.attend.weights(self.q, self.k, mask=self.mask, positions=self.positions, bias=self.bias)

    def explicit(self) -> Tensor:
        """The definition: no kernel, and no choice of one."""
        return self.weights() @ self.v.repeat_interleave(self.q.shape[1] // self.v.shape[1], dim=1)


def call(case: Case, dtype: torch.dtype = torch.float32) -> Call:
    torch.manual_seed(case.seed)
    attend = SCORES[case.score](case.widths, temperature=case.temperature).to(dtype)
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    heads, head = len(case.widths), max(case.widths)
    padding = torch.arange(head)[None] < torch.tensor(case.widths)[:, None]
    q = torch.randn(case.rows, heads, case.queries, head, dtype=dtype) * padding[:, None]
    k = torch.randn(case.rows, case.groups, case.keys, head, dtype=dtype)
    k = k * padding[:, None] if case.groups == heads else k
    v = torch.randn(case.rows, case.groups, case.keys, case.value, dtype=dtype)
    positions = None
    if case.start is not None:
        positions = AttentionPositions(whole(case.queries, CPU) + case.start, whole(case.keys, CPU))
    return Call(attend, q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), mask_of(case), positions,
                *bias_of(case, heads))


def mask_of(case: Case) -> Mask:
    """The kinds of `MASKS`, filled with random tokens."""
    length = max(case.keys, case.queries) + (case.start or 0)
    shape = (case.rows, length)
    keys, globals_ = torch.rand(shape) < 0.7, torch.rand(shape) < 0.2
    spans, documents = torch.randint(0, 3, shape), torch.randint(0, 2, shape).cumsum(1)
    full = Mask(causal=True, keys=keys, window=2, globals=globals_, spans=spans, documents=documents)
    if case.mask == "all":
        return full
    if case.mask == "blind":
        return Mask(keys=torch.zeros(case.rows, length, dtype=torch.bool))
    named = case.mask.split()
    return Mask(
        causal="causal" in named or "spans" in named,
        keys=keys if "keys" in named else None,
        window=2 if "window" in named or "globals" in named else None,
        globals=globals_ if "globals" in named else None,
        spans=spans if "spans" in named else None,
        documents=documents if "documents" in named else None)


def bias_of(case: Case, heads: int) -> tuple[Bias | None, tuple[Tensor, ...]]:
    """And what it learns."""
    if case.bias == "none":
        return None, ()
    if case.bias == "alibi":
        return Alibi(heads).bias(), ()
    relative = RelativeBias(heads, causal=case.bias == "relative causal", buckets=8, farthest=16)
    torch.nn.init.normal_(relative.table)
    return relative.bias(), (relative.table,)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shared = draw(st.booleans())
    case = Case(
        score=draw(st.sampled_from(sorted(SCORES))),
        mask=draw(st.sampled_from(MASKS)),
        rows=draw(st.integers(1, 3)),
        queries=draw(st.integers(1, 12)),
        groups=draw(st.sampled_from([1, 2])) if shared else HEADS,
        widths=EQUAL if shared else draw(st.sampled_from([EQUAL, UNEQUAL])),
        value=draw(st.sampled_from([WIDTH, 3])),
        bias=draw(st.sampled_from(BIASES)),
        temperature=draw(st.sampled_from([0.5, 1.0, 3.0])),
        seed=draw(st.integers(0, 100)))
    kind = draw(st.sampled_from(["self", "other", "cached"]))
    if kind == "self":
        return replace(case, keys=case.queries)
    if kind == "other":
        return replace(case, keys=draw(st.integers(1, 12)))
    start = draw(st.integers(0, 6))
    return replace(case, start=start, keys=start + case.queries + draw(st.integers(0, 3)))


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, in parts of the largest value."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-6)).item()


def agree(ours: Call) -> None:
    """The way it is computed and the definition, in value and in gradient."""
    fast, explicit = ours.fast(), ours.explicit()
    assert apart(fast, explicit) <= 1e-5
    direction = torch.randn_like(fast)
    inputs = (ours.q, ours.k, ours.v, *ours.learned)
    gradients = [torch.autograd.grad(context, inputs, direction) for context in (fast, explicit)]
    for quick, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=2e-5)
