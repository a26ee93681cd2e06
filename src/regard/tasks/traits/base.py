"""Traits: the facts about a task that verbs need before torch is imported, which takes seconds."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from regard.settings.schema import Run

__all__ = ["DRAWING", "SEARCHING", "Traits", "only"]

SEARCHING = frozenset({"beam", "length_penalty"})
"""Settings of a beam search, which a drawn answer does not use."""
DRAWING = frozenset({"top_k", "top_p", "min_p", "seed"})
"""Settings of drawing, which a beam search does not use."""


def only(*names: str) -> Callable[[Run], Collection[str]]:
    """These settings of the search act, whatever the run."""
    return lambda run: names


ONLY_BATCH = only("batch")


@dataclass(frozen=True, kw_only=True)
class Traits:
    """A task by its name: where its code is, what its runs begin with, and what holds of all of them."""

    name: str
    code: str
    """`module:Class`, imported when a model is needed."""
    defaults: Callable[[bool], Run]
    """The default settings of a run; given True, of one on the built-in data."""
    built_in: str | None = None
    """The name of the data that comes with regard."""
    is_trained: bool = True
    encoder_only: bool = False
    """Whether its model is an encoder with a head, and may start from any other encoder."""
    decoder_only: bool = False
    """Whether its model is a decoder, and may start from any other decoder."""
    pools: bool = False
    """Whether its head reads one vector of the whole input."""
    reads_each_token: bool = False
    """Whether its head reads each token."""
    reads_any_length: bool = False
    """Whether its inputs may be longer than `data.max_tokens`."""
    writes_unprompted: bool = False
    """Whether its model can answer an empty input, so that a sample of it can be shown after training."""
    head: str | None = None
    """The kind of published head that `regard convert` has for it."""
    search: Callable[[Run], Collection[str]] = ONLY_BATCH
    """The settings of the search that act in a run."""
    why_idle: Callable[[Run], str] = lambda run: f"a run of {run.task} has nothing to search for"
    """The reason why the other settings have no effect."""
