"""For the tests of attention: `pytest.mark.parametrize("way", WAYS, indirect=True)` runs one in each way."""

from collections.abc import Iterator

import pytest

from attention_paths import Taken, forced


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[Taken]:
    """Forces the way that a test is parametrised with, and afterwards asserts that no other one was taken."""
    if not hasattr(request, "param"):
        yield []
        return
    with forced(request.param) as taken:
        yield taken
