"""A run that ends in the middle of an update, without leaving this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from regard.data.batch import Batch
from regard.training.update import Update

__all__ = ["Killed", "killed_at"]


class Killed(BaseException):
    """As abrupt as a signal: no code of ours expects it."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """The run ends inside this step's update."""
    whole = Update.__call__

    def call(self: Update, batch: Batch, here: int, counts: dict[str, float]) -> object:
        if here == step:
            raise Killed
        return whole(self, batch, here, counts)

    with patch.object(Update, "__call__", call), pytest.raises(Killed):
        yield
