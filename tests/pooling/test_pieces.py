"""Pooling by pieces is pooling at once: for any cut, near and far, and in memory that stays small."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.mask import Mask
from regard.pooling.kernels import KERNELS
from regard.pooling.pieces import Boxes, pool

ROOT = Path(__file__).parents[2]


def at_once(attend: torch.nn.Module, queries: np.ndarray, keys: Boxes, values: Tensor) -> Tensor:
    q, k = torch.from_numpy(queries)[None, None], keys.points[None, None]
    return attend.weights(q, k, mask=Mask())[0, 0] @ values


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=40)
@given(size=st.integers(1, 70), points=st.integers(1, 60), features=st.integers(1, 4),
       width=st.sampled_from([1e-3, 0.1, 0.5, 2.0]), seed=st.integers(0, 99))
def test_pieces_of_any_size_are_the_whole(
        kernel: str, size: int, points: int, features: int, width: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    keys, queries = Boxes.cut(draw.normal(size=(points, features)), size), draw.normal(size=(9, features))
    values = torch.from_numpy(draw.normal(size=(points, 2)))
    attend = KERNELS[kernel]((features,), temperature=width**2)
    pooled = pool(attend, torch.from_numpy(queries), keys, values.__getitem__)
    torch.testing.assert_close(pooled.context, at_once(attend, queries, keys, values), rtol=0, atol=1e-12)
    alone = [pool(attend, torch.from_numpy(query[None]), keys, values.__getitem__).context for query in queries]
    torch.testing.assert_close(pooled.context, torch.cat(alone), rtol=0, atol=1e-12)


@settings(max_examples=40)
@given(size=st.integers(1, 50), points=st.integers(1, 50), features=st.integers(1, 3), seed=st.integers(0, 99))
def test_every_point_lies_in_one_box_and_inside_it(size: int, points: int, features: int, seed: int) -> None:
    given = np.random.default_rng(seed).integers(-3, 4, size=(points, features)) / 2
    boxes = Boxes.cut(given, size)
    assert sorted(boxes.order.tolist()) == list(range(points))
    np.testing.assert_array_equal(boxes.points.numpy(), given[boxes.order.numpy()])
    assert (boxes.edges[0], boxes.edges[-1]) == (0, points)
    for box in range(len(boxes)):
        inside = boxes.points[boxes.part(box)]
        assert 1 <= len(inside) <= size
        assert torch.equal(inside.amin(0), boxes.low[box])
        assert torch.equal(inside.amax(0), boxes.high[box])
    assert boxes.distances(boxes.low[0], boxes.high[0])[0] == 0


def test_boxes_that_are_too_far_away_are_not_looked_into() -> None:
    keys = Boxes.cut(np.linspace(0, 100, 1000)[:, None], 10)
    asked, ones = [], torch.ones(1000, 1, dtype=torch.float64)

    def values(part: slice | Tensor) -> Tensor:
        asked.append(part)
        return ones[part]

    pool(KERNELS["gaussian"]((1,), temperature=0.25), torch.tensor([[50.0]], dtype=torch.float64), keys, values)
    assert 5 < len(asked) < 15  # ten widths to each side, of a hundred boxes that are two widths long


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "triangular"])
def test_a_key_that_is_hidden_from_a_query_is_as_if_it_were_not_there(kernel: str) -> None:
    draw = np.random.default_rng(0)
    keys, values = Boxes.cut(draw.normal(size=(40, 2)), 7), torch.from_numpy(draw.normal(size=(40, 1)))
    attend = KERNELS[kernel]((2,), temperature=0.16)
    without = pool(attend, keys.points, keys, values.__getitem__, without=torch.arange(40)).context
    for key in range(40):
        others = torch.arange(40) != key
        rest, seen = Boxes.cut(keys.points[others].numpy(), 7), values[others]
        alone = pool(attend, keys.points[key:key + 1], rest, seen[rest.order].__getitem__).context
        torch.testing.assert_close(without[key:key + 1], alone)


def peak_megabytes(*arguments: str) -> float:
    """What a process of its own took at the most, by its own account on the last line."""
    command = [sys.executable, str(ROOT / "benchmarks" / "pooling.py"), "--one", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return float(run.stdout.split()[-1])


def test_memory_hardly_grows_with_queries_times_points() -> None:
    few, many = (peak_megabytes("--points", points, "--queries", queries, "--features", "1")
                 for points, queries in (("1000", "10"), ("100000", "1000")))
    assert many - few < 100  # 1,000 × 100,000 weights are 800 MB


@pytest.mark.slow
@pytest.mark.parametrize(("features", "kernel"), [("1", "gaussian"), ("8", "gaussian"), ("2", "boxcar")])
def test_a_million_points_fit_into_a_gigabyte(features: str, kernel: str) -> None:
    size = ("--points", "1000000", "--queries", "10000", "--features", features)
    assert peak_megabytes(*size, "--kernel", kernel) < 1000
