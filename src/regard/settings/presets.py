"""Named settings. Shapes of models are functions that give a `Tower`, each from the one it resembles by `replace`."""

from collections.abc import Callable
from dataclasses import replace

from regard.settings.schema import Run, Tokens, Tower, Train

__all__ = ["PRESETS", "phrasebook"]


def transformer_base() -> Tower:
    """Vaswani et al. 2017, table 3, "base"."""
    return Tower(preset="transformer-base", width=512, depth=6, heads=8, hidden_width=2048, norm_place="post")


def transformer_big() -> Tower:
    """Vaswani et al. 2017, table 3, "big"."""
    return replace(transformer_base(), preset="transformer-big", width=1024, heads=16, hidden_width=4096, dropout=0.3)


def transformer_tiny() -> Tower:
    """Wu et al. 2021, "Good for Misconceived Reasons": the size for some ten thousand sentences."""
    return replace(transformer_base(), preset="transformer-tiny", width=128, depth=4, heads=4, hidden_width=256,
                   dropout=0.3)


PRESETS: dict[str, Callable[[], Tower]] = {
    "transformer-base": transformer_base,
    "transformer-big": transformer_big,
    "transformer-tiny": transformer_tiny,
}


def phrasebook() -> Run:
    """The run of a bare `regard train`: small enough for two cores of a CPU and less than four minutes."""
    return Run(
        tokens=Tokens(vocabulary=4_000),
        model=Tower(width=128, depth=2, heads=4, dropout=0.0),
        train=Train(steps=1_100, batch_tokens=3_072, rate=3e-3, warmup=150, schedule="stable-decay", decay=0.4,
                    smoothing=0.05, evaluate_every=275))
