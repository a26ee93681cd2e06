"""What attention costs: products, numbers written, time, and steps that have to wait for one another."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from regard.models.recurrent_layer import Recurrent
from regard.nn.attention import Attention
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import SCORES

WIDTH, WINDOW = 16, 8


class Counted(TorchDispatchMode):
    """Counts the numbers that operations write, and the longest chain of operations that wait for one another."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.chain = 0, 0
        self.steps: dict[int, int] = {}  # by storage: what is written into a part of a tensor is in the tensor
        self.kept: list[Tensor] = []  # so that no storage takes the place of another

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        result = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.kept += made
        before = {t.untyped_storage()._cdata for t in read}
        after = 1 + max((self.steps.get(storage, 0) for storage in before), default=0)
        for tensor in made:
            if func.is_view:
                continue
            self.written += tensor.numel()
            self.steps[tensor.untyped_storage()._cdata] = after
            self.chain = max(self.chain, after)
        return result


@torch.no_grad()
def counted(work: Callable[[], object]) -> Counted:
    work()  # what is worked out once and kept is no part of it
    with Counted() as count:
        work()
    return count


@torch.no_grad()
def products(work: Callable[[], object]) -> int:
    """Multiplications and additions of all matrix products, those inside a fused attention included."""
    def fused(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_flop_count(q, k, v)  # type: ignore[no-any-return]

    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={flash: fused}) as counter:
        work()
    return counter.get_total_flops()


def scored(score: str, length: int) -> Callable[[], object]:
    attend, (q, k) = SCORES[score]((WIDTH, WIDTH)), torch.randn(2, 1, 2, length, WIDTH)
    initialize(attend, seed=0)
    return lambda: attend.scores(q, k)


def attended(length: int, *, window: int | None = None, score: str = "scaled-dot") -> Callable[[], object]:
    """Attention without its projections, which are linear in any case."""
    attend, (q, k, v) = SCORES[score]((WIDTH, WIDTH)), torch.randn(3, 1, 2, length, WIDTH)
    initialize(attend, seed=0)
    return lambda: attend.eval()(q, k, v, mask=Mask(causal=True, window=window))


@pytest.mark.parametrize("score", ["bilinear", "distance", "additive"])
def test_every_other_score_costs_more_than_a_dot_product(score: str) -> None:
    dot, other = scored("dot", 64), scored(score, 64)
    assert counted(other).written > 1.1 * counted(dot).written
    assert products(other) >= products(dot)


def test_distance_scores_write_twice_as_much_as_a_dot_product_and_have_no_fused_kernel() -> None:
    """The product is the same; the squares, and the difference from them, are more matrices of all pairs."""
    length = 128
    assert products(scored("distance", length)) == products(scored("dot", length))
    assert counted(scored("distance", length)).written > 2 * counted(scored("dot", length)).written
    pairs = 2 * length**2
    assert counted(attended(length, score="dot")).written < pairs < counted(attended(length, score="distance")).written


def test_full_attention_costs_the_square_of_the_length_and_a_window_the_length() -> None:
    lengths = (512, 1024, 2048)
    assert [products(attended(n)) for n in lengths] == [4 * n * n * WIDTH * 2 for n in lengths]
    near = [products(attended(n, window=WINDOW)) for n in lengths]
    written = [counted(attended(n, window=WINDOW)).written for n in lengths]
    for cost in (near, written):
        assert [b / a for a, b in pairwise(cost)] == pytest.approx([2, 2], rel=0.15)
    assert near[-1] < products(attended(lengths[-1])) / 8


def test_the_time_grows_in_the_same_way() -> None:
    """8 times the length: about 64 times the time of full attention, about 8 times that of a window."""
    def seconds(work: Callable[[], object]) -> float:
        took = []
        for _ in range(5):
            begun = time.thread_time()
            work()
            took.append(time.thread_time() - begun)
        return min(took)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        full, near = (seconds(attended(4096, window=window)) / seconds(attended(512, window=window))
                      for window in (None, WINDOW))
    finally:
        torch.set_num_threads(threads)
    assert full > 3 * near


@pytest.mark.parametrize("kind", ["elman", "gru"])
def test_a_recurrent_layer_takes_a_step_for_each_token_and_attention_as_many_for_any_length(kind: str) -> None:
    lengths = (8, 16, 32)
    inputs = [torch.randn(1, n, WIDTH) for n in lengths]
    cell, attention = Recurrent(kind, WIDTH).eval(), Attention(WIDTH, heads=2).eval()
    of_cell = [counted(lambda x=x: cell(x)).chain for x in inputs]
    first, second = (b - a for a, b in pairwise(of_cell))
    assert second == 2 * first >= 2 * (16 - 8)
    assert len({counted(lambda x=x: attention(x, mask=Mask(causal=True))).chain for x in inputs}) == 1
    for score in SCORES:  # by the definition, too
        assert len({counted(attended(n, score=score)).chain for n in lengths}) == 1
