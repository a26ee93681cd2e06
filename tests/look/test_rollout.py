"""Rollout is the product of the layers' means, with the residual path or without, whatever the layers come from."""

import time
from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.look.axes import AxisPair, Grid
from regard.look.record import Record
from regard.look.rollout import rollout, rollout_of_record, rollout_of_seen
from regard.look.watch import watch
from regard.models.build import translator
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.schema import Tower

SITES = [f"encoder.blocks.{layer}.self" for layer in range(3)]


def some_weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def record_of(layers: list[np.ndarray], sites: list[str] = SITES) -> Record:
    grid = Grid(2, 2, before=("[CLS]",))
    return Record(dict(zip(sites, layers, strict=True)), dict.fromkeys(sites, AxisPair(grid, grid)),
                  {site: tuple(range(len(layer))) for site, layer in zip(sites, layers, strict=True)})


def by_loops(layers: list[np.ndarray], identity: float) -> list[list[float]]:
    """Abnar and Zuidema 2020, eq. 1, number by number."""
    heads, n, _ = layers[0].shape
    through = [[float(i == j) for j in range(n)] for i in range(n)]
    for layer in layers:
        mixed = [[(1 - identity) * sum(float(layer[h, i, j]) for h in range(heads)) / heads + identity * (i == j)
                  for j in range(n)] for i in range(n)]
        mixed = [[cell / (sum(row) or 1) for cell in row] for row in mixed]
        through = [[sum(mixed[i][k] * through[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
    return through


@given(st.integers(0, 99), st.sampled_from([0.0, 0.5, 0.25]))
def test_rollout_is_what_plain_loops_compute(seed: int, identity: float) -> None:
    layers = [some_weights(2, 5, 5, seed=seed + n) for n in range(3)]
    layers[1][:, 2] = 0  # a row that may see nothing
    expected = by_loops(layers, identity)
    np.testing.assert_allclose(rollout(layers, identity=identity), expected, rtol=1e-6, atol=1e-12)
    of_record = rollout_of_record(record_of(layers), identity=identity)
    np.testing.assert_allclose(of_record[SITES[2]][0], expected, rtol=1e-5, atol=1e-7)


@given(st.integers(0, 99), st.floats(0, 1))
def test_what_rolls_out_adds_up_to_one(seed: int, identity: float) -> None:
    layers = [0.3 * some_weights(3, 5, 5, seed=seed + n) for n in range(4)]  # as if a row had been cut
    assert rollout(layers, identity=identity).sum(-1) == pytest.approx(1, abs=1e-5)


def test_nothing_rolls_out_of_the_future() -> None:
    layers = [np.tril(some_weights(2, 6, 6, seed=n)) for n in range(3)]
    assert np.array_equal(np.triu(rollout(layers), 1), np.zeros((6, 6)))


def test_each_site_of_a_record_has_the_rollout_through_it() -> None:
    layers = [some_weights(2, 5, 5, seed=n) for n in range(3)]
    found = rollout_of_record(record_of(layers[::-1], SITES[::-1]))  # the numbers of the layers decide, not their order
    for count, site in enumerate(SITES, 1):
        np.testing.assert_allclose(found[site][0], rollout(layers[:count]), rtol=1e-5)
        assert found.heads[site] == (-1,)
    assert found.axes[SITES[0]].sources == Grid(2, 2, before=("[CLS]",))


def test_a_stack_without_its_first_layer_is_refused() -> None:
    layers = [some_weights(2, 5, 5, seed=n) for n in range(2)]
    with pytest.raises(UserError, match=r"encoder\.blocks\.\*\.self: layer 0 was not recorded"):
        rollout_of_record(record_of(layers, SITES[1:]))


def test_attention_between_two_sequences_has_no_rollout_even_if_it_is_square() -> None:
    words = AxisPair((" a", " b"), (" c", " d"))
    with pytest.raises(UserError, match="self-attention"):
        rollout_of_record(Record({"decoder.blocks.0.cross": some_weights(1, 2, 2)}, {"decoder.blocks.0.cross": words},
                                 {"decoder.blocks.0.cross": (0,)}))


def test_a_watched_model_rolls_out_as_its_record_does() -> None:
    model = translator(Tower(width=16, depth=2, heads=2), sources=20, targets=20).eval()
    initialize(model, seed=0)
    with torch.no_grad(), watch(model, "encoder.*.self") as seen:
        model.encoder(model.encoder.embed(torch.tensor([[3, 4, 5], [6, 7, 8]])))
    found = rollout_of_seen(seen, identity=0)
    for row in range(2):
        layers = [seen[site][row].numpy() for site in seen]
        np.testing.assert_allclose(found["encoder.blocks.1.self"][row], rollout(layers, identity=0), rtol=1e-4)
    with torch.no_grad(), watch(model, "encoder.*.self", rows=[1]) as seen:
        model.encoder(model.encoder.embed(torch.tensor([[3, 4, 5]])))
    with pytest.raises(UserError, match="1 rows and 3 columns"):
        rollout_of_seen(seen)


def test_twelve_layers_of_197_places_take_at_most_50_ms() -> None:
    layers = [some_weights(12, 197, 197, seed=n) for n in range(12)]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        rollout(layers)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05, f"median {1000 * median(times):.0f} ms"
