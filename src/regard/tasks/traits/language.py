"""Traits of language, and the settings that its runs begin with."""

from collections.abc import Collection
from dataclasses import fields, replace

from regard.settings.presets import modern_small
from regard.settings.schema import Data, Run, Search, Tokens, Train
from regard.tasks.traits.base import SEARCHING, Known, Traits

__all__ = ["TRAITS"]


def defaults(known: Known) -> Run:
    """A small modern decoder, without label smoothing: the loss should measure the token's own probability."""
    plain = Run(
        task="language",
        model=replace(modern_small(), preset=None, width=256, depth=4, heads=4, kv_heads=2, ffn_width=None,
                      dropout=0.1),
        train=Train(batch_tokens=8_192, schedule="cosine", warmup=100, weight_decay=0.1, beta2=0.95, epsilon=1e-8,
                    label_smoothing=0.0))
    if not known.built_in:
        return plain
    return replace(  # for two cores of a CPU and less than four minutes
        plain, data=Data(held_out=0.03), tokens=Tokens(vocabulary=4_000),
        model=replace(plain.model, width=128, depth=3, dropout=0.0),
        train=replace(plain.train, steps=500, batch_tokens=4_096, learning_rate=4e-3, evaluate_every=250))


def search(run: Run) -> Collection[str]:
    return {field.name for field in fields(Search)} - SEARCHING


TRAITS = Traits(
    name="language", code="regard.tasks.language:Language", defaults=defaults, built_in="python",
    decoder_only=True, head_settings=(), reads_any_length=True, writes_unprompted=True, head="causal-lm", search=search,
    why_idle=lambda run: "a run of language samples its answers, without a beam")
