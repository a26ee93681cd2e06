"""Traits of translate, and the settings that its runs begin with."""

from collections.abc import Collection
from dataclasses import fields

from regard.settings.schema import Run, Search, Tokens, Tower, Train
from regard.tasks.traits.base import DRAWING, SEARCHING, Known, Traits

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    """On the built-in pairs: small enough for two cores of a CPU and less than four minutes."""
    if not known.built_in:
        return Run(task="translate")
    return Run(
        task="translate", tokens=Tokens(vocabulary=4_000),
        model=Tower(width=128, depth=2, heads=4, dropout=0.0),
        train=Train(steps=1_100, batch_tokens=3_072, learning_rate=3e-3, warmup=150, schedule="stable-decay", decay=0.4,
                    label_smoothing=0.05, evaluate_every=275))


def search(run: Run) -> Collection[str]:
    every = {field.name for field in fields(Search)}
    return every - (DRAWING if run.search.temperature is None else SEARCHING)


def why_idle(run: Run) -> str:
    if run.search.temperature is None:
        return "beam search does not sample; also set search.temperature"
    return (f"search.temperature={run.search.temperature:g} samples each translation, without a beam; set "
            "search.temperature=none to search")


TRAITS = Traits(
    name="translate", code="regard.tasks.translate:Translate", defaults=defaults, built_in="phrasebook",
    head_settings=(),
    search=search, why_idle=why_idle)
