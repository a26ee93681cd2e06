"""The vectors of a word: cosines between its texts, and the plane in which they are drawn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.look.word_in_context import Word

STATES = st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-10, 10, width=32)))


@given(STATES)
def test_cosines_are_alike_both_ways_and_never_beyond_one(states: np.ndarray) -> None:
    word = Word("bank", ["…"] * len(states), states)
    assert np.allclose(word.cosines, word.cosines.transpose(0, 2, 1), atol=1e-6)
    assert (abs(word.cosines) <= 1 + 1e-5).all()
    assert word.plane.shape == (*states.shape[:2], 2)


def test_the_plane_keeps_distances_where_there_are_no_more_than_two_directions() -> None:
    angles = np.array([[0.0, 0.3], [0.0, 1.2]])
    states = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=-1).astype(np.float32)
    plane = Word("bank", ["river", "street"], 5 * states).plane
    for a, b in (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((0, 0), (1, 1))):
        assert np.isclose(np.linalg.norm(plane[a] - plane[b]), np.linalg.norm(states[a] - states[b]), atol=1e-5)
