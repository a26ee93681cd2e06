"""Whether a search can fit into memory: what cannot is refused before any of it is taken."""

import torch

from regard.device import available, size_in_words
from regard.settings.errors import Failure
from regard.settings.schema import Search, Tower

__all__ = ["refuse_search"]

ID, SCORE = 8, 4  # bytes


def refuse_search(how: Search, tower: Tower, *, rows: int, tokens: int, longest: int, width: torch.dtype,
                  device: torch.device) -> None:
    """Refuse `rows` answers at once, each with `tokens` prompt tokens and up to `longest` new ones, if they cannot fit.

    Counts only the certain memory: the ids of all answers, and the keys and values of the tokens.
    """
    kept = tokens + longest if device.type == "cuda" else tokens  # a GPU makes room for all at the beginning
    needed = rows * (ID * longest + SCORE + _remembered(tower, kept) * width.itemsize)
    there = available(device)
    if there is None or needed <= there:
        return
    asked = [f"search.beam={how.beam}", f"search.best={how.best}", f"search.batch={how.batch}",
             f"search.max_tokens={how.max_tokens}"]
    raise Failure(f"not enough memory for up to {longest:,} tokens of {rows:,} answers at once. They take "
                  f"at least {size_in_words(needed)}, and {size_in_words(there)} is free ({device.type}); lower "
                  f"one of {', '.join(asked)}, or give a shorter text")


def _remembered(tower: Tower, tokens: int) -> int:
    """Numbers that a decoder keeps for this many tokens. A recurrent one keeps only its newest state."""
    if tower.recurrent is not None:
        return tower.width
    seen = tokens if tower.window is None else min(tokens, tower.window)
    kv_heads, head_width = tower.kv_heads or tower.heads, max(tower.widths_of_heads)
    return 2 * (tower.decoder_depth or tower.depth) * kv_heads * head_width * seen
