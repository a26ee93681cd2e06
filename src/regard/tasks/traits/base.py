"""Traits: the facts about a task that verbs need before torch is imported, which takes seconds."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from regard.settings.schema import Run, Tower

__all__ = ["DRAWING", "IMAGE_SHIFTS", "OF_IMAGES", "OF_TEXT", "SEARCHING", "TEXT_BATCH", "TEXT_SHIFTS", "Known",
           "Traits", "only"]

SEARCHING = frozenset({"beam", "length_penalty"})
"""Settings of a beam search, which a drawn answer does not use."""
DRAWING = frozenset({"top_k", "top_p", "min_p", "seed"})
"""Settings of drawing, which a beam search does not use."""


def only(*names: str) -> Callable[[Run], Collection[str]]:
    """These settings of the search act, whatever the run."""
    return lambda run: names


ONLY_BATCH = only("batch")

OF_IMAGES = {"train.augment.": "changes images, and this run reads none"}
"""Settings without effect on a run that reads no images, with the reason: see `Traits.unread`."""
OF_TEXT = dict.fromkeys(("tokens.", "data.max_tokens", "data.documents", "masking."),
                        "is for text, and this run reads images")
TEXT_SHIFTS, IMAGE_SHIFTS = ("typos", "case", "length"), ("noise", "blur", "colour")
TEXT_BATCH = 1_024  # tokens, for a run that starts from a trained model


@dataclass(frozen=True, kw_only=True)
class Known:
    """The facts about a run before it has settings: its defaults may depend on them."""

    built_in: bool = False
    """Whether it is on the built-in data."""
    paths: tuple[Path, ...] = ()
    """The files and folders of its data."""
    sections: frozenset[str] = frozenset()
    """The optional sections that its settings, or the model that it starts from, have."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """A task by its name: where its code is, what its runs begin with, and what holds of all of them."""

    name: str
    code: str
    """`module:Class`, imported when a model is needed."""
    defaults: Callable[[Known], Run]
    """The default settings of a run."""
    built_in: str | None = None
    """The name of the data that comes with regard."""
    built_in_images: str | None = None
    """The name of that for a run that reads images, of a task that may read texts, too."""
    is_trained: bool = True
    encoder_only: bool = False
    """Whether its model is an encoder with a head, and may start from any other encoder."""
    decoder_only: bool = False
    """Whether its model is a decoder, and may start from any other decoder."""
    pools: bool = False
    """Whether its head reads one vector of the whole input."""
    reads_each_token: bool = False
    """Whether its head reads each token."""
    head_settings: Collection[str] = ("hidden", "pool", "normalize")
    """The settings of the head that it reads. Those of any encoder make a vector of a text, for `predict --embed`."""
    reads_any_length: bool = False
    """Whether its inputs may be longer than `data.max_tokens`."""
    writes_unprompted: bool = False
    """Whether its model can answer an empty input, so that a sample of it can be shown after training."""
    reads_images: bool = False
    """Whether its inputs may be images."""
    unread: Callable[[Run], Mapping[str, str]] = lambda run: OF_IMAGES
    """Settings that would have no effect on a run, by the beginning of their names, with the reason."""
    shifts: Callable[[Run], Collection[str]] = lambda run: TEXT_SHIFTS
    """The ways in which `regard eval --shift` can change its inputs."""
    tuning_batch: Callable[[Tower], int] = lambda model: TEXT_BATCH
    """Tokens of a batch for a run that starts from a trained model."""
    head: str | None = None
    """The kind of head that `regard convert` knows families of models with."""
    search: Callable[[Run], Collection[str]] = ONLY_BATCH
    """The settings of the search that act in a run."""
    why_idle: Callable[[Run], str] = lambda run: f"a run of {run.task} has nothing to search for"
    """The reason why the other settings have no effect."""

    @property
    def learns_pooled(self) -> bool:
        """Whether its runs learn from one vector of an input."""
        return self.pools and self.is_trained

    def built_in_of(self, run: Run) -> str | None:
        """The name of the data that comes with regard for such a run."""
        return self.built_in if run.model.image is None or self.built_in_images is None else self.built_in_images
