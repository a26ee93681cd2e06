"""ClassificationMetrics: what a classifier said of labelled texts, and how good that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["ClassificationMetrics", "Scores", "f1"]

Scores = dict[str, float | str | dict[str, float]]
"""Named figures of an evaluation, tables of them, and the signatures that they were computed under."""


@dataclass(frozen=True)
class ClassificationMetrics:
    """How likely each text is found to have each label, and which it has."""

    labels: Sequence[str]
    logs: Float[np.ndarray, "texts labels"]
    """Log-probabilities of each label."""
    others: Float[np.ndarray, "texts labels"]
    """The same of all but it: if a text may have several, each is decided separately."""
    wanted: Bool[np.ndarray, "texts labels"]
    several: bool

    @property
    def given(self) -> Bool[np.ndarray, "texts labels"]:
        """The likeliest label of each text; or all that are likelier than not."""
        likelier: np.ndarray = self.logs > self.others
        likeliest: np.ndarray = np.arange(len(self.labels)) == self.logs.argmax(1)[:, None]
        return likelier if self.several else likeliest

    def scores(self) -> Scores:
        """Accuracy and macro-F1; of several labels exact matches, micro-F1 and macro-F1. And the mean loss.

        The loss is −log of the probability of the right label; of several labels, the mean over all of −log of the
        probability of the right decision, yes or no.
        """
        given = self.given
        right = float((given == self.wanted).all(1).mean())
        macro = float(np.mean([each for each in f1(self.wanted, given) if not np.isnan(each)] or [0.0]))
        if self.several:
            both, either = int((self.wanted & given).sum()), int(self.wanted.sum() + given.sum())
            loss = -float(np.where(self.wanted, self.logs, self.others).mean())
            return {"exact_match": right, "micro_f1": 2 * both / max(1, either), "macro_f1": macro, "loss": loss,
                    "examples": len(given)}
        return {"accuracy": right, "macro_f1": macro, "loss": -float(self.logs[self.wanted].mean()),
                "examples": len(given)}


def f1(wanted: Bool[np.ndarray, "texts labels"],
       given: Bool[np.ndarray, "texts labels"]) -> Float[np.ndarray, " labels"]:
    """2 · right / (wanted + given) of each label: the harmonic mean of its precision and its recall.

    A label that no text has and that none was given is not a number: nothing is known of it. macro-F1 is the plain mean
    of the others.

    >>> f1(np.array([[True, False], [True, False]]), np.array([[True, False], [False, True]])).round(3).tolist()
    [0.667, 0.0]
    """
    both, either = (wanted & given).sum(0), wanted.sum(0) + given.sum(0)
    found = np.full(len(both), np.nan)
    np.divide(2 * both, either, out=found, where=either > 0)
    return found
