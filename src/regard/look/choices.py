"""Choices: what a model could have said at each token of an output, and how likely each was."""

from dataclasses import dataclass

__all__ = ["Choice", "Output"]


@dataclass(frozen=True)
class Choice:
    """One token of an output: what came, its probability, and the likeliest tokens with theirs, the best first."""

    token: str
    probability: float
    best: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Output:
    """A whole output with its choices, one for each token and for the end."""

    text: str
    choices: tuple[Choice, ...]
